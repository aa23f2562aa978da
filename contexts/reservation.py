"""Room for tokens that are about to come, for the time of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from heddle.contexts.numeric import whole
from heddle.contexts.ranges import Range
from heddle.contexts.text import TextContext


@contextmanager
def reserve_token_space_for_batch(batch: Iterable[TextContext], num_tokens: int) -> Iterator[None]:
    """Count `num_tokens` more tokens to each context while the block runs.

    A context that is in the batch twice is counted once. Tokens that come while the block runs are
    gone after it, and what they did; what was handed out stays handed out. 0 does nothing.

    Raises:
        ValueError: `num_tokens` is negative.
    """
    num_tokens = whole("reserve_token_space_for_batch", num_tokens)
    if num_tokens < 0:
        raise ValueError(f"reserve_token_space_for_batch: wanted at least 0, got {num_tokens}")
    if not num_tokens:
        yield
        return
    with ExitStack() as reserved:
        for context in {id(context): context for context in batch}.values():
            reserved.enter_context(_reserved(context, num_tokens))
        yield


@contextmanager
def _reserved(context: TextContext, count: int) -> Iterator[None]:
    """Count `count` more tokens, all 0, to window and length while the block runs."""
    tokens = context.tokens
    length, window, offset = len(tokens), tokens._window, tokens._offset
    completion_end = tokens.outstanding.end
    tokens.set_indices(window.start, window.end + count - offset, length + count)
    tokens.all[length:] = 0
    cuts = tokens.cuts
    try:
        yield
    finally:
        changed = tokens.cuts != cuts or len(tokens) != length + count
        tokens._set_length(length)
        tokens._window, tokens._offset = window, offset
        handed_out = min(tokens.outstanding.start, completion_end)
        tokens._completion = Range(handed_out, completion_end)
        if changed:
            context._forget_beyond(length)
