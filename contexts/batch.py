"""The inputs of one step of a batch, in memory that is made once and used for every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from heddle.contexts.text import TextContext
from heddle.contexts.values import LogProbabilities
from heddle.runtime import Buffer

# Columns of `StepBatch.sampling` and `StepBatch.sampling_integers`.
SAMPLING = (
    "temperature",
    "top_p",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)
SAMPLING_INTEGERS = ("top_k", "seed")


class StepBatch:
    """Ragged inputs for a list of contexts, written straight into 64-byte aligned buffers.

    The tokens of all contexts follow one another; `row_offsets` says where each context begins.
    Sampling rows and cache block tables stay as they are while a context keeps its row.

    Args:
        rows: Most contexts of a step.
        tokens: Most tokens of a step.
        max_length: Longest sequence.
        blocks: Most cache blocks of a context.

    Attributes:
        buffers: The memory itself, by name; the properties are views of what the step uses.
    """

    def __init__(self, rows: int, tokens: int, max_length: int, blocks: int = 0) -> None:
        self.buffers = {
            "tokens": Buffer("int64", (tokens,)),
            "positions": Buffer("int64", (tokens,)),
            "row_offsets": Buffer("int64", (rows + 1,)),
            "lengths": Buffer("int64", (rows,)),
            "blocks": Buffer("int32", (rows, blocks)),
            "sampling": Buffer("float32", (rows, len(SAMPLING))),
            "sampling_integers": Buffer("int64", (rows, len(SAMPLING_INTEGERS))),
        }
        views: dict[str, npt.NDArray[Any]] = {k: b.to_numpy() for k, b in self.buffers.items()}
        for view in views.values():
            view[...] = 0
        self._views = views
        # Single elements are written faster through a memoryview than through NumPy.
        self._token_items = views["tokens"].data
        self._position_items = views["positions"].data
        self._rising = np.arange(max(max_length, rows + 1))
        self._owners: list[TextContext] = []
        self._rows = self._tokens = 0

    @property
    def inputs(self) -> dict[str, npt.NDArray[Any]]:
        """What the last `write` has written, as views.

        `tokens` and `positions` int64 [tokens], `row_offsets` int64 [rows + 1], `lengths` (of the
        sequences, this step included) int64 [rows], `blocks` int32 [rows, blocks], `sampling`
        float32 [rows, 6] with the columns `SAMPLING`, `sampling_integers` int64 [rows, 2] with the
        columns `SAMPLING_INTEGERS`.
        """
        sizes = {"tokens": self._tokens, "positions": self._tokens, "row_offsets": self._rows + 1}
        return {name: view[: sizes.get(name, self._rows)] for name, view in self._views.items()}

    def write(self, contexts: Sequence[TextContext]) -> list[int]:
        """Write the window of each context.

        Returns:
            The rows that hold another context than before: their block tables are to be written.

        Raises:
            ValueError: More contexts, tokens or positions than this batch was made for.
        """
        rows = len(contexts)
        if rows > len(self._views["lengths"]):
            raise ValueError(
                f"StepBatch: wanted at most {len(self._views['lengths'])} contexts, got {rows}"
            )
        if not self._write_single_tokens(contexts):
            self._write_windows(contexts)
        self._rows = rows
        if contexts == self._owners:
            return []
        owners = list(contexts)
        changed = [
            row
            for row, context in enumerate(owners)
            if row >= len(self._owners) or self._owners[row] is not context
        ]
        for row in changed:
            self._write_sampling(row, owners[row])
        self._owners = owners
        return changed

    def _write_single_tokens(self, contexts: Sequence[TextContext]) -> bool:
        """The decode step, where each window is one token; False when one is not."""
        rows = len(contexts)
        if rows > len(self._token_items):
            return False
        tokens, positions = self._token_items, self._position_items
        for row, context in enumerate(contexts):
            buffer = context.tokens
            window = buffer._window
            position = window.start
            if window.end - position != 1 or buffer._offset:
                return False
            tokens[row] = buffer._array.item(position)
            positions[row] = position
        self._tokens = rows
        self._views["row_offsets"][: rows + 1] = self._rising[: rows + 1]
        np.add(self._views["positions"][:rows], 1, out=self._views["lengths"][:rows])
        return True

    def _write_windows(self, contexts: Sequence[TextContext]) -> None:
        views = self._views
        needed = sum(context.tokens.active_length for context in contexts)
        longest = max(context.tokens._window.end for context in contexts)
        if needed > len(views["tokens"]) or longest > len(self._rising):
            raise ValueError(
                f"StepBatch: wanted at most {len(views['tokens'])} tokens at positions up to "
                f"{len(self._rising)}, got {needed} tokens at positions up to {longest}"
            )
        at = 0
        views["row_offsets"][0] = 0
        for row, context in enumerate(contexts):
            active = context.tokens.active
            end = context.tokens._window.end
            views["tokens"][at : at + len(active)] = active
            views["positions"][at : at + len(active)] = self._rising[end - len(active) : end]
            at += len(active)
            views["row_offsets"][row + 1] = at
            views["lengths"][row] = end
        self._tokens = at

    def _write_sampling(self, row: int, context: TextContext) -> None:
        params = context.sampling_params
        self._views["sampling"][row] = [getattr(params, name) for name in SAMPLING]
        self._views["sampling_integers"][row] = [getattr(params, n) for n in SAMPLING_INTEGERS]

    def write_blocks(self, row: int, blocks: Sequence[int], first: int = 0) -> None:
        """Write cache blocks of the context in `row`, from its block number `first` on.

        Raises:
            ValueError: More blocks than this batch was made for.
        """
        table = self._views["blocks"]
        if first + len(blocks) > table.shape[1]:
            raise ValueError(
                f"StepBatch: wanted at most {table.shape[1]} blocks, got {first + len(blocks)}"
            )
        table[row, first : first + len(blocks)] = blocks

    def commit(
        self,
        contexts: Sequence[TextContext],
        next_tokens: Buffer | npt.NDArray[np.integer[Any]],
        log_probabilities: Sequence[LogProbabilities | None] | None = None,
    ) -> dict[int, Exception]:
        """Hand each context its next token.

        Args:
            contexts: Those of the step.
            next_tokens: One token for each, integers, shape [rows]; read where they are.
            log_probabilities: One entry for each, or None.

        Returns:
            For each row whose context has refused its token, why; the others went on.
        """
        refused: dict[int, Exception] = {}
        entries = log_probabilities or [None] * len(contexts)
        rows = zip(contexts, np.asarray(next_tokens).tolist(), entries, strict=True)
        for row, (context, token, entry) in enumerate(rows):
            try:
                context.update(token, entry)
            except (AssertionError, ValueError) as error:
                refused[row] = error
        return refused
