"""Which tokens the grammars of a batch allow next, as one bitmask."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import attrgetter
from typing import cast

import numpy as np
import numpy.typing as npt
from heddle.contexts.matcher import TrackedMatcher
from heddle.contexts.text import TextContext
from heddle.runtime import Buffer
from llguidance import LLExecutor, LLMatcher, LLTokenizer

_MATCHER_OF = attrgetter("_matcher")


class GrammarMasks:
    """A bitmask, made once and filled for each step.

    Bit `t % 32` of word `t // 32` of a row says whether token `t` may come next.

    Args:
        tokenizer: The one that the matchers share.
        rows: Most rows of a step: one for each context, and one for each draft token.
        threads: Threads that compute masks; None: as llguidance chooses.
    """

    def __init__(self, tokenizer: LLTokenizer, rows: int, threads: int | None = None) -> None:
        self._vocabulary = range(tokenizer.vocab_size)
        self._words = -(-tokenizer.vocab_size // 32)
        self._ends = frozenset(tokenizer.eos_tokens)
        self.buffer = Buffer("int32", (rows, self._words))
        self.bitmask: npt.NDArray[np.int32] = self.buffer.to_numpy()
        self.bitmask[:] = -1
        # Address, bytes of a row, rows: where llguidance writes.
        self._target = self.bitmask.ctypes.data, self._words * 4, rows
        self._free = [True] * rows
        # The matchers of the last `fill`, and what llguidance was asked for: mostly the next one's.
        self._matchers: list[TrackedMatcher | None] = []
        self._work: list[tuple[LLMatcher, int]] = []
        self._executor = LLExecutor(num_threads=threads)

    def fill(self, contexts: Sequence[TextContext]) -> None:
        """Write row i for context i; all ones where it has no grammar.

        A matcher that has failed, for example at a limit of llguidance, allows nothing but an end,
        which `update` refuses then. The other rows are as if it were not there.

        Raises:
            ValueError: More contexts than rows.
        """
        matchers = list(map(_MATCHER_OF, contexts))
        if matchers != self._matchers:
            self._check_rows(len(contexts))
            self._plan(matchers)
        if self._work:  # llguidance refuses an empty list
            self._executor.unsafe_compute_mask_ptr(self._work, *self._target)

    def _plan(self, matchers: list[TrackedMatcher | None]) -> None:
        self._matchers = matchers
        self._work = []
        for row, tracked in enumerate(matchers):
            if tracked is not None:
                self._work.append((cast("LLMatcher", tracked.matcher), row))
                self._free[row] = False
            elif not self._free[row]:
                self._allow_all(row)

    def fill_drafts(
        self, contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]]
    ) -> list[int]:
        """Write the rows of each context one after another: before, and after each draft token.

        The matchers stay where they are. Rows beyond a token that is not allowed mean nothing.

        Returns:
            For each context, how many of its draft tokens the grammar allows.

        Raises:
            ValueError: More contexts and draft tokens than rows.
        """
        self._check_rows(len(contexts) + sum(map(len, drafts)))
        drafted: list[tuple[LLMatcher, int, list[int]]] = []
        plain: list[tuple[LLMatcher, int]] = []
        firsts = []
        row = 0
        for context, draft in zip(contexts, drafts, strict=True):
            firsts.append(row)
            matcher = context.matcher
            if isinstance(matcher, LLMatcher):
                # A token outside of the vocabulary would break the matcher.
                known = list(takewhile(self._vocabulary.__contains__, draft))
                if known:
                    drafted.append((matcher, row, known))
                else:
                    plain.append((matcher, row))
                self._free[row : row + 1 + len(draft)] = [False] * (1 + len(draft))
            else:
                for free in range(row, row + 1 + len(draft)):
                    self._allow_all(free)
            row += 1 + len(draft)
        self._matchers = []
        if plain:
            self._executor.unsafe_compute_mask_ptr(plain, *self._target)
        if drafted:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafted, *self._target)
        return [
            self._allowed(context, first, draft)
            for context, first, draft in zip(contexts, firsts, drafts, strict=True)
        ]

    def _allowed(self, context: TextContext, first: int, draft: Sequence[int]) -> int:
        if context.matcher is None:
            return len(draft)
        for index, token in enumerate(draft):
            if not self.allows(first + index, token):
                return index
            if token in self._ends:
                return index + 1
        return len(draft)

    def allows(self, row: int, token: int) -> bool:
        """Whether row `row` allows `token`."""
        word = self.bitmask[row, token // 32] if token in self._vocabulary else 0
        return bool(word >> (token % 32) & 1)

    def _allow_all(self, row: int) -> None:
        self.bitmask[row] = -1
        self._free[row] = True

    def _check_rows(self, wanted: int) -> None:
        if wanted > len(self.bitmask):
            raise ValueError(
                f"GrammarMasks: wanted at most {len(self.bitmask)} rows, as it was made for, got "
                f"{wanted}"
            )
