"""Some rows by a strip of columns of a b that nobody has packed, its sums in registers.

More rows than a tile of registers has find the strip on the stack: in memory, rows of b may lie so
that they share a few sets of a cache. The first tile puts it there while it is multiplied; that of
a transposed b is turned before. All steps along k lie there at once, if they are not very many:
between two chunks of them sums would be stored and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import bodies, crosslane, emit, host, memory, rows, sizes
from heddle.kernels.cpu.products.panels import SET_APART, WAYS
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

AHEAD = 8
"""Steps from what is read of b to what is asked for."""

CHUNK = 256 << 10
"""Bytes of a strip that are on the stack at once, at most: part of a second cache."""

INLINE = 4
"""Operations of an epilogue that is computed of registers, where each of them is written."""

MOST = 15
"""Rows of a tile: of more, which lie half as far apart as `SET_APART`, each step would miss."""


def rows_fitting(vectors: int, registers: int) -> int:
    """Rows whose sums by so many vectors fit in registers, with those vectors and one of a."""
    return (registers - 1) // vectors - 1


@dataclass(frozen=True)
class Part:
    """Rows of `k` elements from `left` on, `row` in the result, by columns of a right side.

    The rows are `across` elements from each other, the elements of one `along`. The right side is
    k rows of `n` from `right` on, or n of k if it is `transposed`. The columns are those of vectors
    of `lanes`, each with its mask.
    """

    left: Any
    across: Size
    along: Size
    right: Any
    dtype: str
    k: Size
    n: Size
    transposed: bool
    row: Size
    columns: Sequence[tuple[Size, Any]]
    lanes: int

    def vectors(self, step: Size) -> list[Any]:
        """Those of a row of b; asks for those of another one."""
        asked = sizes.least(step + AHEAD, self.k - 1) * self.n + self.columns[0][0]
        for line in range(0, len(self.columns) * self.lanes, LINE // emit.ITEM_SIZE[self.dtype]):
            memory.prefetch(self.right, asked + line, self.dtype)
        places = ((step * self.n + column, mask) for column, mask in self.columns)
        return [memory.load(self.right, i, self.dtype, self.lanes, mask) for i, mask in places]

    def turned(self, column: Size, step: Size, stop: Size) -> list[Any]:
        """Of as many steps as a vector has lanes the vectors from a column of a transposed b on.

        Columns that are not there are the last one again, steps from `stop` on zero.
        """
        mask = host.first_lanes(stop - step, self.lanes)
        starts = (sizes.least(column + lane, self.n - 1) * self.k for lane in range(self.lanes))
        lines = [memory.load(self.right, i + step, self.dtype, self.lanes, mask) for i in starts]
        return crosslane.transposed(lines)


class Strip:
    """The products of a part of `height` rows; what is on the stack they share with others."""

    def __init__(self, finish: rows.Finish, part: Part, height: int) -> None:
        self._finish, self._part, self._height = finish, part, height
        self._count, self._dtype, self._lanes = len(part.columns), part.dtype, part.lanes
        k, across = part.k, part.across
        size = emit.ITEM_SIZE[self._dtype]
        registers = finish.frame.machine.vector_bytes // 2
        apart = isinstance(across, int) and across * size % SET_APART == 0
        most = min(rows_fitting(self._count, registers), WAYS if apart else MOST)
        self._tall = max(1, min(height, most))
        self._staged = part.transposed or self._tall < height
        width = self._count * self._lanes * size
        depth = CHUNK // width
        if isinstance(k, int):
            depth = sizes.ceildiv(max(k, 1), sizes.ceildiv(max(k, 1), depth))
        self._depth = -(-depth // self._lanes) * self._lanes
        self._at_once = not self._staged or (isinstance(k, int) and k <= self._depth)
        if self._staged:
            self._b = host.byte_buffer(self._depth * width, shared="b")
        # What writes is there once for a long epilogue, and behind the last of several chunks.
        self._direct = self._at_once and bodies.work(finish.frame.spec.epilogue) <= INLINE
        if not self._direct:
            self._sums = host.byte_buffer(height * width, shared="sums")

    def multiply(self) -> None:
        """Emits the results."""
        part = self._part
        if self._staged:
            for start in emit.loop(0, sizes.greatest(part.k, 1), self._depth):
                self._add_chunk(start)
        else:
            self._add_tile(0, self._height, 0, part.k, part.vectors)
        if self._direct:
            return
        for r in emit.loop(0, self._height):
            write = self._finish.row(part.row + r)
            for place, (column, mask) in zip(self._places(r, 1), part.columns, strict=True):
                value = memory.load(self._sums, place, self._dtype, self._lanes)
                write(column, mask, value)

    def _add_chunk(self, start: Size) -> None:
        """Adds the steps from `start` on that lie on the stack at once."""
        stop = sizes.least(start + self._depth, self._part.k)
        stored = partial(self._stored, start)
        first: Callable[[Size], list[Any]] = stored
        if self._part.transposed:
            self._turn(start, stop)
        else:
            first = partial(self._stored_now, start)
        tall, height = self._tall, self._height
        self._add_tile(0, tall, start, stop, first)
        for top in emit.loop(tall, height // tall * tall, tall):
            self._add_tile(top, tall, start, stop, stored)
        if height % tall:
            self._add_tile(height // tall * tall, height % tall, start, stop, stored)

    def _add_tile(
        self,
        top: Size,
        tall: int,
        start: Size,
        stop: Size,
        vectors: Callable[[Size], list[Any]],
    ) -> None:
        """Adds some steps, whose vectors of b are given, to the sums of the rows from `top` on."""
        part, dtype, lanes, count = self._part, self._dtype, self._lanes, self._count
        left = memory.at(part.left, top * part.across, dtype)
        before = [emit.constant(emit.register_type(dtype), 0, lanes)] * (tall * count)
        if not self._at_once:
            # The sums before the first step are zero, whatever lies on the stack.
            kept = emit.select(emit.compare("greater", start, 0), emit.index(lanes), 0)
            mask, places = host.first_lanes(kept, lanes), self._places(top, tall)
            before = [memory.load(self._sums, at, dtype, lanes, mask) for at in places]

        def add(step: Size, *sums: Any) -> list[Any]:
            right, found = vectors(step), []
            for r in range(tall):
                a = memory.load(left, r * part.across + step * part.along, dtype)
                a = emit.splat(a, lanes)
                own = sums[r * count : (r + 1) * count]
                found += [emit.fma(a, b, total) for b, total in zip(right, own, strict=True)]
            return found

        sums = emit.carry(start, stop, 1, before, add)
        if not self._direct:
            for place, value in zip(self._places(top, tall), sums, strict=True):
                memory.store(value, self._sums, place, dtype)
            return
        for r in range(tall):
            write = self._finish.row(part.row + top + r)
            own = sums[r * count : (r + 1) * count]
            for (column, mask), value in zip(part.columns, own, strict=True):
                write(column, mask, value)

    def _places(self, top: Size, tall: int) -> list[Size]:
        """Where the sums of rows from `top` on are on the stack."""
        width = self._count * self._lanes
        return [top * width + i * self._lanes for i in range(tall * self._count)]

    def _stored(self, start: Size, step: Size) -> list[Any]:
        """The vectors of a step on the stack, which begins with step `start`."""
        places = self._places(step - start, 1)
        return [memory.load(self._b, at, self._dtype, self._lanes) for at in places]

    def _stored_now(self, start: Size, step: Size) -> list[Any]:
        """The vectors of a step in memory, which are put on the stack."""
        found = self._part.vectors(step)
        for place, value in zip(self._places(step - start, 1), found, strict=True):
            memory.store(value, self._b, place, self._dtype)
        return found

    def _turn(self, start: Size, stop: Size) -> None:
        """Puts steps of a transposed b on the stack."""
        for step in emit.loop(start, stop, self._lanes):
            for number, (column, _) in enumerate(self._part.columns):
                for i, value in enumerate(self._part.turned(column, step, stop)):
                    place = self._places(step - start + i, 1)[number]
                    memory.store(value, self._b, place, self._dtype)


def counts(total: Size, each: int, number: Any) -> Iterator[int]:
    """Emits the Python body of a `for count in` this for each count of parts of `each` of `total`.

    One of them is run, that of part `number`. A part of a total that is not known has `each`.
    """
    if not isinstance(total, int):
        yield each
        return
    whole, rest = divmod(total, each)
    if whole:
        with emit.when(emit.compare("less", number, whole)) if rest else nullcontext():
            yield each
    if rest:
        with emit.when(emit.compare("equal", number, whole)) if whole else nullcontext():
            yield rest
