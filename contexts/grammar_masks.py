"""Which tokens the grammars of a batch allow next, as one bitmask."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher, LLTokenizer

from heddle.contexts.matcher import TrackedMatcher, require_matcher
from heddle.contexts.step_memory import step_memory
from heddle.contexts.text import TextContext
from heddle.runtime import CPU, Device


class GrammarMasks:
    """A bitmask, made once and filled for each step.

    Bit `t % 32` of word `t // 32` of a row says whether token `t` may come next.

    Args:
        tokenizer: The one that the matchers share.
        rows: Most rows of a step: one for each context, and one for each draft token.
        threads: Threads that compute masks; None: as llguidance chooses.
        device: Where the masks are read.
        stream: For a GPU, the `cupy.cuda.Stream` of the step; None: a new one.

    Attributes:
        bitmask: The masks on the host, int32 [rows, words].
        device_bitmask: The masks where they are read: `bitmask` itself on a CPU, else a CuPy array
            that each call fills in the order of the stream.
        buffer: The memory of `device_bitmask`.

    Raises:
        DeviceError: A GPU is wanted and not there, or CuPy is not installed.
    """

    def __init__(
        self,
        tokenizer: LLTokenizer,
        rows: int,
        threads: int | None = None,
        device: Device | None = None,
        stream: Any = None,
    ) -> None:
        self._vocabulary = tokenizer.vocab_size
        self._words = -(-tokenizer.vocab_size // 32)
        self._ends = frozenset(tokenizer.eos_tokens)
        layout = {"bitmask": ("int32", (rows, self._words))}
        self._memory = step_memory(layout, device or CPU(), stream=stream)
        self.buffer = self._memory.buffers["bitmask"]
        self.device_bitmask: Any = self._memory.arrays["bitmask"]
        self.bitmask: npt.NDArray[np.int32] = self._memory.slots[0]["bitmask"]
        self.bitmask[:] = -1
        # Address, bytes of a row, rows: where llguidance writes.
        self._target = self.bitmask.ctypes.data, self._words * 4, rows
        self._free = [True] * rows
        # The contexts of the last `fill`, `TrackedMatcher.changes` then, and what llguidance was
        # asked for: mostly the next one's.
        self._contexts: Sequence[TextContext] = []
        self._changes = -1
        self._work: list[tuple[LLMatcher, int]] = []
        self._written = {"bitmask": slice(0)}
        self._executor = LLExecutor(num_threads=threads)

    def fill(self, contexts: Sequence[TextContext]) -> None:
        """Write row i for context i; all ones where it has no grammar.

        A matcher that has failed, for example at a limit of llguidance, allows nothing but an end,
        which `update` refuses then. The other rows are as if it were not there.

        Raises:
            ValueError: More contexts than rows, a matcher that two of them share, or none for a
                `json_schema`.
        """
        changes = TrackedMatcher.changes
        # Masks leave nothing else in the caches: to touch each context takes 4% of what they take.
        known = changes == self._changes and contexts == self._contexts
        if not known or len(self._work) < len(contexts):  # some row has no matcher
            for context in contexts:
                require_matcher("GrammarMasks", context)
        if not known:
            self._check_rows(len(contexts))
            _refuse_shared(contexts)
        self._memory.turn()
        if not known:
            self._plan(contexts)
            self._changes = changes
        if self._work:  # llguidance refuses an empty list
            self._executor.unsafe_compute_mask_ptr(self._work, *self._target)
        self._memory.send(self._written)

    def _plan(self, contexts: Sequence[TextContext]) -> None:
        self._contexts = contexts[:]  # a list may have changed by the next call
        self._written = {"bitmask": slice(len(contexts))}
        self._work = []
        for row, context in enumerate(contexts):
            if context.matcher is not None:
                self._work.append((cast("LLMatcher", context.matcher), row))
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
            ValueError: More contexts and draft tokens than rows, not as many lists of drafts as
                contexts, a matcher that two contexts share, or none for a `json_schema`.
        """
        if len(drafts) != len(contexts):
            raise ValueError(
                f"GrammarMasks: wanted a list of draft tokens for each of {len(contexts)} "
                f"contexts, got {len(drafts)} lists"
            )
        rows = len(contexts) + sum(map(len, drafts))
        self._check_rows(rows)
        _refuse_shared(contexts)
        for context in contexts:
            require_matcher("GrammarMasks", context)
        self._memory.turn()
        drafted: list[tuple[LLMatcher, int, list[int]]] = []
        plain: list[tuple[LLMatcher, int]] = []
        firsts = []
        row = 0
        for context, draft in zip(contexts, drafts, strict=True):
            firsts.append(row)
            matcher = context.matcher
            if isinstance(matcher, LLMatcher):
                # A token outside of the vocabulary would break the matcher.
                known = list(takewhile(self._is_token, draft))
                if known:
                    drafted.append((matcher, row, known))
                else:
                    plain.append((matcher, row))
                self._free[row : row + 1 + len(draft)] = [False] * (1 + len(draft))
            else:
                for free in range(row, row + 1 + len(draft)):
                    self._allow_all(free)
            row += 1 + len(draft)
        self._changes = -1
        if plain:
            self._executor.unsafe_compute_mask_ptr(plain, *self._target)
        if drafted:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafted, *self._target)
        self._written = {"bitmask": slice(rows)}
        self._memory.send(self._written)
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
        word = self.bitmask[row, token // 32] if self._is_token(token) else 0
        return bool(word >> (token % 32) & 1)

    def _is_token(self, number: int) -> bool:
        return 0 <= number < self._vocabulary

    def _allow_all(self, row: int) -> None:
        self.bitmask[row] = -1
        self._free[row] = True

    def _check_rows(self, wanted: int) -> None:
        if wanted > len(self.bitmask):
            raise ValueError(
                f"GrammarMasks: wanted at most {len(self.bitmask)} rows, as it was made for, got "
                f"{wanted}"
            )


def _refuse_shared(contexts: Sequence[TextContext]) -> None:
    """A matcher takes tokens for one sequence; llguidance fails where two threads have it."""
    owners: dict[int, int] = {}
    for row, context in enumerate(contexts):
        if context.matcher is None:
            continue
        first = owners.setdefault(id(context.matcher), row)
        if first != row:
            raise ValueError(
                f"GrammarMasks: wanted a matcher for each context, got the one of row {first}, "
                f"request {contexts[first].request_id}, again in row {row}, request "
                f"{context.request_id}"
            )
