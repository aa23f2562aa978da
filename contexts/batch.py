"""The inputs of one step of a batch, in memory that is made once and used for every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.contexts.matcher import require_matcher
from heddle.contexts.numeric import is_masked, whole
from heddle.contexts.open_steps import OpenSteps
from heddle.contexts.step_memory import step_memory
from heddle.contexts.step_windows import StepWindows
from heddle.contexts.text import TextContext
from heddle.contexts.values import LogProbabilities
from heddle.runtime import CPU, Device

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
    Sampling rows and cache block tables stay as they are while a context keeps its row. A step is
    `write`, `write_blocks` for the rows that it names, `send`, the model, `commit`: the same calls
    on a CPU and on a GPU, where the next step may be written while this one is still copied.

    Args:
        rows: Most contexts of a step.
        tokens: Most tokens of a step.
        max_length: Longest sequence.
        blocks: Most cache blocks of a context.
        device: Where the model reads the inputs.
        stream: For a GPU, the `cupy.cuda.Stream` of the step; None: a new one.

    Attributes:
        buffers: The memory itself, by name; `inputs` are views of what the step uses.
        stream: The stream on which inputs are copied and outputs come back; None on a CPU.

    Raises:
        ValueError: A number is too small: of rows, tokens and positions there is at least one.
        DeviceError: A GPU is wanted and not there, or CuPy is not installed.
    """

    def __init__(
        self,
        rows: int,
        tokens: int,
        max_length: int,
        blocks: int = 0,
        device: Device | None = None,
        stream: Any = None,
    ) -> None:
        sizes = ("rows", rows, 1), ("tokens", tokens, 1), ("max_length", max_length, 1)
        for name, value, least in (*sizes, ("blocks", blocks, 0)):
            if whole(f"StepBatch.{name}", value) < least:
                raise ValueError(f"StepBatch: wanted {name} of at least {least}, got {value}")
        device = device or CPU()
        # Written anew in each step, so in turns where a copy may still run.
        self._step = step_memory(
            {
                "tokens": ("int64", (tokens,)),
                "positions": ("int64", (tokens,)),
                "row_offsets": ("int64", (rows + 1,)),
                "lengths": ("int64", (rows,)),
            },
            device,
            slots=2,
            returned=8 * rows,
            stream=stream,
        )
        self.stream = self._step.stream
        # Written where a row changes hands.
        self._kept = step_memory(
            {
                "blocks": ("int32", (rows, blocks)),
                "sampling": ("float32", (rows, len(SAMPLING))),
                "sampling_integers": ("int64", (rows, len(SAMPLING_INTEGERS))),
            },
            device,
            stream=self.stream,
        )
        self.buffers = {**self._step.buffers, **self._kept.buffers}
        self._windows = StepWindows(self._step, max_length)
        self._tables = self._kept.slots[0]
        # The rows of `_kept` that the device has not got yet: from, to.
        self._stale = (0, rows)
        self._most_rows = rows
        self._owners: list[TextContext] = []
        self._open = OpenSteps()
        self._rows = self._tokens = 0

    @property
    def inputs(self) -> dict[str, Any]:
        """What the last `write` has written, as views: NumPy on a CPU, CuPy on a GPU.

        `tokens` and `positions` int64 [tokens], `row_offsets` int64 [rows + 1], `lengths` (of the
        sequences, this step included) int64 [rows], `blocks` int32 [rows, blocks], `sampling`
        float32 [rows, 6] with the columns `SAMPLING`, `sampling_integers` int64 [rows, 2] with the
        columns `SAMPLING_INTEGERS`.

        On a GPU they are valid in the order of `stream`, from `send` on: what reads them runs on
        it, or gets them under `with batch.stream:`, which is how CuPy tells others to wait.
        """
        parts = self._parts()
        kept = slice(self._rows)
        return {name: array[parts[name]] for name, array in self._step.arrays.items()} | {
            name: array[kept] for name, array in self._kept.arrays.items()
        }

    def _parts(self) -> dict[str, slice]:
        tokens, rows = slice(self._tokens), slice(self._rows)
        return {
            "tokens": tokens,
            "positions": tokens,
            "row_offsets": slice(self._rows + 1),
            "lengths": rows,
        }

    @property
    def copies(self) -> int:
        """How many copies between host and device were started so far; none on a CPU."""
        return self._step.copies + self._kept.copies

    def write(
        self, contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]] = ()
    ) -> list[int]:
        """Write the window of each context.

        Args:
            contexts: Those of the step.
            drafts: For each context, tokens that may come next, which are written behind its
                window: the model says what comes after each of them as well. They are no tokens of
                the context, and `commit` does not look at them. Empty: no context has any.

        Returns:
            The rows that hold another context than before: their block tables are to be written.

        Raises:
            ValueError: More contexts, tokens or positions than this batch was made for, not as
                many drafts as contexts, a draft behind a chunk, or one context twice; the inputs
                are as before.
        """
        rows = len(contexts)
        if rows > self._most_rows:
            raise ValueError(f"StepBatch: wanted at most {self._most_rows} contexts, got {rows}")
        if drafts and len(drafts) != rows:
            raise ValueError(
                f"StepBatch: wanted a draft for each of {rows} contexts, got {len(drafts)}"
            )
        unchanged = contexts == self._owners
        if not unchanged and len(set(map(id, contexts))) < rows:
            raise ValueError(f"StepBatch: wanted {rows} different contexts, got one of them again")
        self._tokens = self._windows.write(contexts, drafts)
        self._rows = rows
        owners = self._owners if unchanged else list(contexts)
        self._open.begin(owners)
        if unchanged:
            return []
        changed = [
            row
            for row, context in enumerate(owners)
            if row >= len(self._owners) or self._owners[row] is not context
        ]
        if changed:
            self._touch(changed[0], changed[-1] + 1)
        for row in changed:
            self._write_sampling(row, owners[row])
        self._owners = owners
        return changed

    def _write_sampling(self, row: int, context: TextContext) -> None:
        params = context.sampling_params
        self._tables["sampling"][row] = [getattr(params, name) for name in SAMPLING]
        self._tables["sampling_integers"][row] = [getattr(params, n) for n in SAMPLING_INTEGERS]

    def _touch(self, first: int, end: int) -> None:
        """Rows of `_kept` are about to be written."""
        self._kept.turn()
        known, known_end = self._stale
        self._stale = (
            (min(known, first), max(known_end, end)) if known < known_end else (first, end)
        )

    def write_blocks(self, row: int, blocks: Sequence[int], first: int = 0) -> None:
        """Write cache blocks of the context in `row`, from its block number `first` on.

        Raises:
            ValueError: More blocks than this batch was made for, or a row that it does not have.
        """
        table = self._tables["blocks"]
        if not 0 <= row < len(table) or first < 0:
            raise ValueError(
                f"StepBatch: wanted a row from 0 to {len(table) - 1} and a first block of at least "
                f"0, got row {row} and block {first}"
            )
        if first + len(blocks) > table.shape[1]:
            raise ValueError(
                f"StepBatch: wanted at most {table.shape[1]} blocks, got {first + len(blocks)}"
            )
        self._touch(row, row + 1)
        table[row, first : first + len(blocks)] = blocks

    def send(self) -> None:
        """Start to copy what was written to the device, on the stream; nothing to do on a CPU."""
        self._step.send(self._parts())
        first, end = self._stale
        if first < end:
            self._kept.send(dict.fromkeys(self._kept.arrays, slice(first, end)))
            self._stale = (0, 0)

    def commit(
        self,
        contexts: Sequence[TextContext],
        next_tokens: Any,
        log_probabilities: Sequence[LogProbabilities | None] | None = None,
    ) -> dict[int, Exception]:
        """Hand each context its next token.

        Up to 16 steps may wait for this at once, where no context is in two of them.

        Args:
            contexts: Those of the step, as `write` got them.
            next_tokens: One token for each, integers, shape [rows], a Buffer or an array: read
                where it is, or after one copy from a GPU to page-locked memory, in stream order; a
                CuPy array behind CuPy's current stream, which should be the one it was made on.
            log_probabilities: One entry for each, or None.

        Returns:
            For each row whose context has refused its token, why; the others went on. A token
            below 0 (`ops.sample_tokens` had nothing to choose from) is a ValueError of its row, as
            is one for a context whose `json_schema` no matcher holds it to.

        Raises:
            ValueError: `next_tokens` is not such an array, there are not as many log probabilities
                as contexts, or these are of no step that was written and not committed yet; no
                context has got anything then.
        """
        if is_masked(next_tokens):
            raise ValueError("StepBatch: wanted next tokens without a mask, got a MaskedArray")
        tokens, count = self._step.fetch(next_tokens), len(contexts)
        if tokens.shape != (count,) or (count and tokens.dtype.kind not in "iu"):
            raise ValueError(
                f"StepBatch: wanted {count} integers as next tokens, one for each context, got "
                f"shape {list(tokens.shape)} of {tokens.dtype}"
            )
        entries = [None] * count if log_probabilities is None else log_probabilities
        if len(entries) != count:
            raise ValueError(
                f"StepBatch: wanted {count} log probabilities, one for each context, got "
                f"{len(entries)}"
            )
        self._open.end(contexts)
        refused: dict[int, Exception] = {}
        rows = zip(contexts, tokens.tolist(), entries, strict=True)
        for row, (context, token, entry) in enumerate(rows):
            try:
                if token < 0:
                    raise ValueError(
                        f"StepBatch: wanted a token for row {row}, got {token}: there was nothing "
                        "to choose from, as where a mask allows no token or logits are no numbers"
                    )
                require_matcher("StepBatch", context)
                context.update(token, entry)
            except (AssertionError, ValueError) as error:
                refused[row] = error
        return refused
