"""The windows of a batch as the ragged inputs of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.contexts.step_memory import StepMemory
from heddle.contexts.text import TextContext

_Views = dict[str, npt.NDArray[Any]]


class StepWindows:
    """Writes the windows of contexts one after another, all of them or none.

    Args:
        memory: Where to: `tokens`, `positions`, `row_offsets` and `lengths`.
        max_length: Longest sequence.
    """

    def __init__(self, memory: StepMemory, max_length: int) -> None:
        self._memory = memory
        rows = len(memory.slots[0]["lengths"])
        self._most = len(memory.slots[0]["tokens"])
        self._max_length = max_length
        self._rising = np.arange(max(max_length, rows + 1))
        # Tokens and positions of a decode step, before all of them are known to be right. Single
        # elements are written faster through a memoryview than through NumPy.
        self._singles = np.zeros((2, rows), np.int64)
        self._items = self._singles[0].data, self._singles[1].data

    def write(self, contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]] = ()) -> int:
        """Write the windows, each with its draft behind it; returns of how many tokens.

        Raises:
            ValueError: More tokens or positions than there is room for, or a draft behind a chunk;
                nothing has changed then.
        """
        single = not any(drafts) and self._read_single_tokens(contexts)
        if not single:
            drafts = drafts or [()] * len(contexts)
            self._check(contexts, drafts)
        views = self._memory.slots[self._memory.turn()]
        if not single:
            return self._write_all(views, contexts, drafts)
        self._write_single_tokens(views, len(contexts))
        return len(contexts)

    def _read_single_tokens(self, contexts: Sequence[TextContext]) -> bool:
        """The decode step, where each window is one token; False when one is not."""
        longest = self._max_length
        tokens, positions = self._items
        if len(contexts) > self._most:
            return False
        for row, context in enumerate(contexts):
            buffer = context.tokens
            window = buffer._window
            position = window.start
            if window.end - position != 1 or buffer._offset or position >= longest:
                return False
            tokens[row] = buffer._array.item(position)
            positions[row] = position
        return True

    def _write_single_tokens(self, views: _Views, rows: int) -> None:
        views["tokens"][:rows], views["positions"][:rows] = self._singles[:, :rows]
        views["row_offsets"][: rows + 1] = self._rising[: rows + 1]
        np.add(views["positions"][:rows], 1, out=views["lengths"][:rows])

    def _check(self, contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]]) -> None:
        needed = longest = 0
        for row, (context, draft) in enumerate(zip(contexts, drafts, strict=True)):
            if draft and context.tokens.actively_chunked:
                raise ValueError(
                    f"StepBatch: wanted no draft behind a chunk, got {list(draft)} in row {row}"
                )
            needed += context.tokens.active_length + len(draft)
            longest = max(longest, context.tokens._window.end + len(draft))
        if needed > self._most or longest > self._max_length:
            raise ValueError(
                f"StepBatch: wanted at most {self._most} tokens at positions up to "
                f"{self._max_length}, got {needed} tokens at positions up to {longest}"
            )

    def _write_all(
        self, views: _Views, contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]]
    ) -> int:
        at = 0
        views["row_offsets"][0] = 0
        for row, (context, draft) in enumerate(zip(contexts, drafts, strict=True)):
            active = context.tokens.active
            end = context.tokens._window.end + len(draft)
            first, at = at, at + len(active) + len(draft)
            views["tokens"][first : first + len(active)] = active
            views["tokens"][first + len(active) : at] = draft
            views["positions"][first:at] = self._rising[end - (at - first) : end]
            views["row_offsets"][row + 1] = at
            views["lengths"][row] = end
        return at
