"""Tokens that may come next in a text, guessed without the model (speculative decoding).

A step that is given guesses says what comes after each of them (Leviathan et al.,
arXiv:2211.17192). What is drawn at a place depends on the text before it alone, so guesses are
right or wrong, and a text is the same with them as without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from heddle.contexts import TextContext

if TYPE_CHECKING:
    from llguidance import LLMatcher

SIZES = (5, 2)
"""Tokens of the runs that are looked for in the text before, the longer first.

These and the numbers below do well by programs that are edited, programs and prose, all replayed.
"""

ROW = 0.25
"""What one more token costs a step, in steps of no token at all, which read the weights.

That is between what it was measured to be on CPUs beside weights of bfloat16 and of int4.
"""

PACE = 0.125
"""Share of the newest draft token in the chance of the next one."""

HOPE = 0.005
"""How far the chance moves to 1 with each step for which it was too small."""

CERTAIN = 0.99
"""The chance of a guess at most: one that was always right may be wrong next."""


class DraftCounts(NamedTuple):
    """How drafts have fared.

    Attributes:
        checked: Draft tokens that steps have checked.
        right: How many of them were what was drawn.
    """

    checked: int
    right: int


class Lookup:
    """What followed the end of a text where that was in the text before.

    That is prompt lookup (Saxena, "Prompt Lookup Decoding", 2023), which Yang et al.
    (arXiv:2304.04487) do with references. A run is noted once it is known what follows it, so that
    no text is looked through twice.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._known = 0

    def __call__(self, text: NDArray[np.int64], count: int) -> list[int]:
        """The `count` tokens that may follow `text`, int64 [tokens]; none where none are known.

        `text` is that of the last call, with more behind it.
        """
        first = max(0, self._known - SIZES[0])
        new = text[first:].tolist()
        for place in range(self._known, len(text)):
            end = place - first
            for size in SIZES:
                if size <= end:
                    self._after[tuple(new[end - size : end])] = place
        self._known = len(text)
        for size in SIZES:
            place = self._after.get(tuple(text[-size:].tolist()), 0)
            if place:
                found: list[int] = text[place : place + count].tolist()
                while len(found) < count:  # it goes on with itself
                    found += found[: count - len(found)]
                return found
        return []


class Drafts:
    """The guesses for one text, of which there are as many as are worth it."""

    def __init__(self) -> None:
        self._lookup = Lookup()
        self._chance = 0.5  # that the next guess is right, as those of late were
        self._certain = False

    def propose(self, context: TextContext, most: int, tokens: int) -> list[int]:
        """Tokens that may come next.

        Those that the grammar asks for come first. Others are as many as have a chance, to be
        reached and right, that is more than the share of the step that one more token takes.

        Args:
            context: The text, with nothing left to process behind the next step.
            most: How many there may be.
            tokens: Tokens that the step has without them.
        """
        if most < 1:
            return []
        draft = _forced(context)[:most]
        self._certain = bool(draft)
        if not draft:
            share = ROW * tokens / (1 + ROW * tokens)
            worth = int(math.log(share) / math.log(self._chance))
            if not worth:
                self._chance += HOPE * (CERTAIN - self._chance)
            draft = self._lookup(context.tokens.all, min(most, worth))
        ends = context.eos_tracker.eos_token_ids
        return list(takewhile(lambda token: token not in ends, draft))

    def verify(self, proposed: int, right: int) -> None:
        """Says that of the last `proposed` guesses the first `right` were right."""
        if self._certain:
            return
        self._chance = CERTAIN - (CERTAIN - self._chance) * (1 - PACE) ** right
        if right < proposed:  # what came behind the first wrong one was not looked at
            self._chance *= 1 - PACE


def right(draft: Sequence[int], drawn: Sequence[int]) -> int:
    """How many tokens of a draft are right, from the first one on.

    Args:
        draft: The guesses.
        drawn: What was drawn in front of each of them, and behind the last one; below 0 where
            there was nothing to choose from, which is left for a step of its own.
    """
    pairs = zip(draft, drawn, drawn[1:], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] and pair[2] >= 0, pairs))


def _forced(context: TextContext) -> list[int]:
    """The tokens that alone the grammar lets come next."""
    if context.matcher is None:
        return []
    return list(cast("LLMatcher", context.matcher).compute_ff_tokens())
