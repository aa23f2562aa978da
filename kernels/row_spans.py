"""Rows of a ragged batch, for both targets: which a token is in, and where a row's keys are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from heddle.kernels import bodies, convert, emit, memory, sizes
from heddle.kernels.emit import compare, select
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, product

OUT_OF_RANGE, FALLING, OUT_OF_RANGE_UNSIGNED = 1, 2, 3
"""Codes of the status word: an index out of range; offsets that fall or end too late; a uint64."""

QUERY_OFFSETS = 3
"""The operand of attention over ragged rows that holds where the queries of each row begin."""

LARGEST_HEAD = 1024
"""The largest head size of attention; values may be narrower."""

Report = Callable[[Any, int, Any, Any, Any], None]
"""Writes the status word of a frame: a code, the value, its limit, the value before it."""


class Keys(Protocol):
    """Where the keys and values of rows are."""

    def length(self, row: Any) -> Any:
        """How many keys the row has; 0 where that is wrong, which is reported, or `row` is -1."""

    def place(self, row: Any, key: Any) -> tuple[Any, Any]:
        """Where the row's key number `key` is among all keys, and whether it has a place there.

        Where it has none, which is reported, the place is that of another key.
        """


class RowSpans:
    """The rows by the offsets in operand `offsets` of a kernel with neither prologue nor epilogue.

    `limit` is the number of what the offsets point into.
    """

    def __init__(self, frame: Any, report: Report, offsets: int, limit: Size) -> None:
        self._frame, self._report = frame, report
        self._pointer, self._limit = frame.inputs[offsets], emit.as_index(limit)
        self._count = frame.size(frame.spec.operands[offsets].shape[0])

    def find(self, token: Any) -> tuple[Any, Any]:
        """The row of `token`, -1 where it is in none, and where the row ends, within the limit.

        A token in no row is alone. Every offset is looked at, so that whoever looks for a token
        finds what is wrong with them.
        """
        row, stop = self._looked(token, 0, 1)
        return row, emit.minimum(stop, self._limit)

    def _looked(self, token: Any, first: Any, step: int) -> list[Any]:
        """`find` among each `step`-th row from the first on."""

        def look(number: Any, row: Any, stop: Any) -> list[Any]:
            start, end, _ = self.ends(number)
            inside = compare("less_equal", start, token) & compare("less", token, end)
            return [select(inside, number, row), select(inside, end, stop)]

        none = [emit.index(-1), token + 1]
        return emit.carry(first, emit.as_index(self._count) - 1, step, none, look)

    def ends(self, row: Any) -> tuple[Any, Any, Any]:
        """Where a row starts and ends, and whether that is wrong, which is reported."""
        start, end = (memory.load(self._pointer, row + n, "int64") for n in (0, 1))
        falls = compare("less", start, 0) | compare("less", end, start)
        wrong = falls | compare("greater", end, self._limit)
        with emit.when(wrong):
            self._report(self._frame, FALLING, end, self._limit, start)
        return start, end, wrong


class Contiguous:
    """Keys of rows that follow one another; operand 1 holds them, operand 4 the offsets."""

    def __init__(self, frame: Any, report: Report) -> None:
        self._spans = RowSpans(frame, report, 4, frame.size(frame.spec.operands[1].shape[0]))
        self._offsets = frame.inputs[4]

    def length(self, row: Any) -> Any:
        """See `Keys`."""

        def checked() -> Any:
            start, end, wrong = self._spans.ends(row)
            return select(wrong, 0, end - start)

        return _of_row(row, checked)

    def place(self, row: Any, key: Any) -> tuple[Any, Any]:
        """See `Keys`."""
        return memory.load(self._offsets, row, "int64") + key, emit.constant(emit.integer(1), 1)


class Table:
    """Keys in the blocks of a cache.

    Args:
        frame: The kernel's frame.
        report: Writes its status word.
        cache: The operand that is `[blocks, block size, ...]`.
        lengths: The operand that counts the keys of each row; after it comes the table of blocks.
    """

    def __init__(self, frame: Any, report: Report, cache: int, lengths: int) -> None:
        self._frame, self._report = frame, report
        self._lengths, self._table = frame.inputs[lengths : lengths + 2]
        blocks, self._block_size = frame.shape(frame.spec.operands[cache].shape[:2])
        self._blocks = emit.as_index(blocks)
        self._width = frame.size(frame.spec.operands[lengths + 1].shape[1])
        held = emit.as_index(sizes.product((self._width, self._block_size)))
        self._capacity = select(compare("greater", self._blocks, 0), held, 0)

    def length(self, row: Any) -> Any:
        """See `Keys`; no row has more keys than its table holds."""
        return _of_row(row, lambda: self._checked(row)[0])

    def _checked(self, row: Any) -> tuple[Any, Any]:
        """How many keys a row has, 0 where that is wrong, and whether it is, which is reported."""
        found = memory.load(self._lengths, row, "int64")
        wrong = compare("greater", found, self._capacity, unsigned=True)
        with emit.when(wrong):
            self._report(self._frame, OUT_OF_RANGE, found, self._capacity + 1, emit.index(0))
        return select(wrong, 0, found), wrong

    def place(self, row: Any, key: Any) -> tuple[Any, Any]:
        """See `Keys`."""
        number = row * self._width + key // self._block_size
        block = convert.cast(memory.load(self._table, number, "int32"), "int32", "int64")
        known = compare("less", block, self._blocks, unsigned=True)
        with emit.when(known ^ True):
            self._report(self._frame, OUT_OF_RANGE, block, self._blocks, emit.index(0))
        block = emit.maximum(emit.minimum(block, self._blocks - 1), 0)
        return block * self._block_size + key % self._block_size, known

    def put(self, spans: RowSpans, token: Any, write: Callable[[Any], None]) -> None:
        """Emits `write(place)` for a new token's place; one outside of the cache is reported."""
        row, stop = spans.find(token)
        with emit.when(compare("greater_equal", row, 0)):
            length, wrong = self._checked(row)
            position = length - (stop - token)
            early = compare("less", position, 0)
            with emit.when(early & (wrong ^ True)):
                self._report(self._frame, OUT_OF_RANGE, position, length, emit.index(0))
            with emit.when(early ^ True):
                place, known = self.place(row, position)
                with emit.when(known):
                    write(place)


def out_of_range(dtype: str) -> int:
    """The code for an index of that dtype."""
    return OUT_OF_RANGE_UNSIGNED if dtype == "uint64" else OUT_OF_RANGE


def _of_row(row: Any, count: Callable[[], Any]) -> Any:
    """`count()` for a row, 0 for -1, of which nothing is read."""
    is_row = compare("greater_equal", row, 0)
    return emit.either(is_row, [emit.integer(64)], lambda: [count()], lambda: [emit.index(0)])[0]


def group_of(spec: Spec) -> int:
    """The query heads of a key head, in attention of ragged rows."""
    heads, key_heads = spec.operands[0].shape[1], spec.operands[1].shape[-2]
    assert isinstance(heads, int)
    assert isinstance(key_heads, int)
    return heads // key_heads


def sinks_of(spec: Spec) -> int | None:
    """The operand of attention of ragged rows that holds the sinks; None where there are none.

    They come last: for each head the score, scaled, of one more key whose value is zeros.
    """
    others = {"ragged_attention": 5, "paged_attention": 6}[spec.op]
    return others if len(spec.operands) > others else None


def keys_of_table(spec: Spec) -> Expr:
    """The most keys that a row may have, in paged attention: those of all its blocks."""
    return product((spec.operands[5].shape[1], spec.operands[1].shape[1]))


def unsupported(spec: Spec) -> str | None:
    """Why a kernel of ragged attention does not take `spec`, or None.

    Kernels take floats of up to 32 bits (queries of 8 bits aside), static heads of a size of up to
    `LARGEST_HEAD`, and no prologue.
    """
    for number, operand in enumerate(spec.operands[:3]):
        if operand.dtype not in ("float32", *(emit.NARROW if number else emit.NARROW[:2])):
            return f"wanted floats of up to 32 bits, got {operand.dtype}"
    heads = (*spec.operands[0].shape[1:], spec.operands[1].shape[-2])
    if any(not isinstance(size, int) or size == 0 for size in heads):
        return f"wanted static heads, got {heads}"
    if int(heads[1]) > LARGEST_HEAD:  # type: ignore[arg-type]
        return f"wanted a head size of at most {LARGEST_HEAD}, got {heads[1]}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)
