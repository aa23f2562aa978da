"""What products by panels are cut into: rows by their panels, blocks, strips and tiles.

And rows in chunks, on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products.tile import rows_of
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size

vector = dialect("vector")

PANEL = 32
"""Columns of a panel of packed b."""


@dataclass(frozen=True)
class Rows:
    """`height` rows of a, at most a task's, from `row` on, and the panels they are multiplied by.

    These begin with number `panel`, among those of all batches or groups.
    """

    row: Size
    height: Size
    panel: Size


@dataclass(frozen=True)
class Block(Rows):
    """The rows by one panel; `column` is its first one in the result."""

    column: Size


@dataclass(frozen=True)
class Strip:
    """The rows of a block from `top` to `bottom - 1`, at most those of a tile, by two vectors.

    `part` is the first column in the panel.
    """

    block: Block
    top: Size
    bottom: Size
    part: int


@dataclass(frozen=True)
class Tile:
    """`height` rows of a block of `all_rows` from its row `top` on, by `vectors` of its panel.

    `row` and `panel` count through all batches. Its first column is `part` in the panel, and
    `column` in the result; None where its part of the result is asked for before it is multiplied.
    """

    row: Size
    top: Size
    height: int
    all_rows: Size
    panel: Size
    part: int
    vectors: int = 2
    column: Size | None = None

    def places(self, lanes: int) -> list[Size]:
        """Where its sums are among the block's, in row-major order."""
        columns = [self.part + number * lanes for number in range(self.vectors)]
        return [(self.top + r) * PANEL + column for r in range(self.height) for column in columns]


@dataclass(frozen=True)
class Shares:
    """Some rows shared out over tiles of at most `most`, whose heights differ by one at most.

    Where there is more than one, they have at most `several`, if that leaves half of `most`.
    """

    rows: Size
    most: int
    several: int | None = None

    @property
    def count(self) -> Size:
        """How many tiles there are."""
        count = sizes.ceildiv(self.rows, self.most)
        if self.several is None:
            return count
        low = sizes.floordiv(sizes.greatest(self.rows, 1) - 1, self.most // 2)
        return sizes.greatest(count, sizes.least(sizes.ceildiv(self.rows, self.several), low))

    def spans(self, some: bool = False) -> Iterator[tuple[Any, Size, Size]]:
        """Emits the Python body of a `for number, top, bottom in` this over the tiles.

        `some` says that there is at least one row, which spares a comparison.
        """
        count = self.count
        each = sizes.floordiv(self.rows, count if some else sizes.greatest(count, 1))
        higher = self.rows - each * count
        for number in emit.loop(0, count):
            top, bottom = (i * each + sizes.least(i, higher) for i in (number, number + 1))
            yield number, top, bottom


def heights(most: int, rows: Iterable[int]) -> range:
    """Rows of a tile of at most `most`, the greatest first, where so many `rows` are shared out."""
    return range(most, min(count // -(-count // most) for count in rows) - 1, -1)


def strips(
    frame: host.Frame, block: Block, lanes: int, several: int | None = None
) -> Iterator[Strip]:
    """Emits the Python body of a `for strip in` this; heights are those of `Shares`."""
    shares = Shares(block.height, rows_of(frame.machine), several)
    for part in range(0, PANEL, 2 * lanes):
        for _, top, bottom in shares.spans():
            yield Strip(block, top, bottom, part)


def tiles(
    frame: host.Frame,
    strip: Strip,
    heights: range | None = None,
    widths: Iterable[tuple[int, Any]] = ((2, True),),
) -> Iterator[Tile]:
    """Emits the Python body of a `for tile in` this once for each size; one of them is run.

    `widths` is numbers of vectors, each with whether it is that of the strip.
    """
    block, top, part = strip.block, strip.top, strip.part
    # LLVM else computes where a tile begins in each step again: half the rate.
    row, column = emit.pinned(emit.as_index(block.row + top)), block.column + part
    for vectors, is_so in widths:
        for height in heights or range(rows_of(frame.machine), 0, -1):
            with emit.when(emit.compare("equal", strip.bottom - top, height) & is_so):
                yield Tile(row, top, height, block.height, block.panel, part, vectors, column)


def last_word(place: Any, count: Size, dtype: str, group: int) -> Any:
    """The word of `group` elements at a pointer, zero behind the first `count` of them."""
    mask = host.first_lanes(count, group)
    value = memory.load(place, 0, memory.raw(dtype), group, mask)
    word = vector.bitcast(ir.VectorType.get([1], emit.integer(32)), value)
    return vector.extract(word, [], [0])


def put_on_stack(
    frame: host.Frame, rows: Rows, start: Size, stop: Size, stack: Any, apart: int
) -> None:
    """Puts the elements from `start` to `stop - 1` of each row of a on the stack.

    There the rows begin `apart` bytes from each other.
    """
    a = frame.spec.operands[0]
    k, dtype = frame.size(a.shape[-1]), memory.raw(a.dtype)
    lanes = frame.machine.vector_bytes // emit.ITEM_SIZE[dtype]
    for r in emit.loop(0, rows.height):
        source, target = (rows.row + r) * k, memory.at(stack, r * apart, "int8")
        for place, mask in host.vectors(start, stop, lanes):
            value = memory.load(frame.inputs[0], source + place, dtype, lanes, mask)
            memory.store(value, target, place - start, dtype, mask)


def touched(frame: host.Frame) -> list[tuple[Any, str]]:
    """Pointers, with dtypes, to what the epilogue writes and reads at the result's elements."""
    spec = frame.spec
    inputs = spec.epilogue.inputs if spec.epilogue else ()
    buffers = zip(frame.inputs[len(frame.inputs) - len(inputs) :], inputs, strict=True)
    wanted = [(frame.outputs[0], spec.outputs[0].dtype)]
    return wanted + [(at, own.dtype) for at, own in buffers if own.shape == spec.result.shape]
