"""By what the next token of each place of a step is chosen, and how likely it is.

A place is a token whose next one is wanted: the last one of a context, and each of its draft, of
which it is checked what comes behind them. Those of a context lie one after another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heddle.contexts import LogProbabilities, TextContext

if TYPE_CHECKING:
    from heddle.contexts import GrammarMasks


def allowed(
    contexts: Sequence[TextContext],
    drafts: Sequence[Sequence[int]],
    masks: GrammarMasks | None,
    free: NDArray[np.int32],
) -> tuple[NDArray[np.int32], list[Sequence[int]]]:
    """Which tokens may come next: those of the grammars, and no end that is not wanted.

    A grammar that lets nothing but an end follow has its way.

    Args:
        contexts: Whose windows are whole.
        drafts: For each context, what may come next.
        masks: The memory for those of the grammars; None: there is none.
        free: The mask of no grammar, for as many places as there are at most.

    Returns:
        A row of bits for each place, as `GrammarMasks` has them, and the drafts without what the
        grammars do not let come next.
    """
    kept = list(drafts)
    if masks is None or all(context.matcher is None for context in contexts):
        bitmask = free[: len(contexts) + sum(map(len, kept))]
    elif not any(drafts):
        masks.fill(contexts)
        bitmask = masks.bitmask[: len(contexts)]
    else:
        counts = masks.fill_drafts(contexts, drafts)
        kept = [draft[:count] for draft, count in zip(drafts, counts, strict=True)]
        firsts = np.cumsum([0, *(1 + len(draft) for draft in drafts)])
        rows = [
            first + number
            for first, count in zip(firsts, counts, strict=False)
            for number in range(1 + count)
        ]
        bitmask = masks.bitmask[rows]
    return _longer(contexts, kept, bitmask), kept


def _longer(
    contexts: Sequence[TextContext],
    drafts: Sequence[Sequence[int]],
    bitmask: NDArray[np.int32],
) -> NDArray[np.int32]:
    """The mask without ends that are not wanted, but where nothing else may come."""
    changed = bitmask
    first = 0
    for context, draft in zip(contexts, drafts, strict=True):
        if unwanted := _unwanted(context, 1 + len(draft)):
            changed = bitmask.copy() if changed is bitmask else changed
            for place, ends in enumerate(unwanted, first):
                row = changed[place].view(np.uint32)
                for token in ends:
                    row[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
                if not row.any():
                    changed[place] = bitmask[place]
        first += 1 + len(draft)
    return changed


def _unwanted(context: TextContext, count: int) -> list[Collection[int]]:
    """The ends that are not to come at each of `count` places; empty: all may come everywhere.

    They are those before `min_tokens`; and, with `ignore_eos`, those that a grammar would end with.
    """
    params = context.sampling_params
    ignored: set[int] = set()
    if params.ignore_eos and context.matcher is not None:
        ignored = context.eos_tracker.eos_token_ids - set(params.stop_token_ids or ())
    if context.tokens.generated_length < context.min_tokens:
        early = context.get_min_token_logit_mask(count)
        return [{*ends[:, 1].tolist(), *ignored} for ends in early]
    return [ignored] * count if ignored else []


def seen(
    contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `ops.penalize` takes: the tokens before each place that has penalties, and offsets."""
    parts = [np.empty((0, 2), np.int64)]
    counts = [0]
    for context, draft in zip(contexts, drafts, strict=True):
        params = context.sampling_params
        if params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1:
            text = np.concatenate([context.tokens.all, np.array(draft, np.int64)])
            for end in range(len(context.tokens), len(text) + 1):
                tokens, places = np.unique(text[:end], return_inverse=True)
                new = places[context.tokens.prompt_length :]
                parts.append(np.stack([tokens, np.bincount(new, minlength=len(tokens))], axis=1))
                counts.append(len(tokens))
        else:
            counts += [0] * (1 + len(draft))
    return np.concatenate(parts), np.cumsum(counts, dtype=np.int64)


def log_probabilities(logits: NDArray[np.float32], token: int, count: int) -> LogProbabilities:
    """The log probability of `token` by softmax, and those of the `count` likeliest tokens."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    best = np.argpartition(wide, -count)[-count:] if count < len(wide) else np.arange(len(wide))
    ordered = sorted(best.tolist(), key=lambda t: (-wide[t], t))
    return LogProbabilities([wide[token]], [{t: wide[t] for t in ordered}])
