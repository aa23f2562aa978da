"""Room for tokens that are about to come, for the time of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from heddle.contexts.numeric import whole
from heddle.contexts.text import TextContext


@contextmanager
def reserve_token_space_for_batch(batch: Iterable[TextContext], num_tokens: int) -> Iterator[None]:
    """Count `num_tokens` more tokens to each context while the block runs.

    A context that is in the batch twice is counted once.

    Raises:
        ValueError: `num_tokens` is negative.
    """
    num_tokens = whole("reserve_token_space_for_batch", num_tokens)
    if num_tokens < 0:
        raise ValueError(f"reserve_token_space_for_batch: wanted at least 0, got {num_tokens}")
    with ExitStack() as reserved:
        for context in {id(context): context for context in batch}.values():
            reserved.enter_context(context.tokens.reserved(num_tokens))
        yield
