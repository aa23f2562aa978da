"""a @ b of a few rows by a b that is read where it lies: to pack it would take longer.

A task is all rows by a block of columns, whose sums stay in registers along all of k: the fewer
rows, the more columns, so that b is read in long stretches of its rows. As those lie far apart,
what comes some steps later is asked for. A sum takes its products in the order of k, so that a
row's bits do not depend on the others. By a transposed b sums are made along k (`products.lines`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, sizes
from heddle.kernels.cpu.products import lines
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

DTYPES = ("float32", "float64")
"""Of both sides."""

ROWS = 12
"""Rows at most: by two vectors of columns they fill the registers of AVX-512, as half of them do
those of AVX2, which goes through a block twice."""

WIDE = 8
"""Lines of a row of b that a block has at most."""

AHEAD = 8
"""Steps from what is read of b to what is asked for."""

DEPTH = 128
"""Steps of a block that are on the stack at once where rows are more than a tile's."""


def emit_matmul(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    dtype, (_, m, k) = spec.operands[0].dtype, frame.shape(_extents(spec))
    lanes, width = host.lanes_for(machine, [dtype]), _columns(spec)
    registers = machine.vector_bytes // 2
    tall = -(-m // -(-m // _most_rows(registers))) if m else 1
    count = _divisor(width // lanes, _vectors(tall, registers))
    finish = rows.Finish(frame, lanes)
    n, transposed = finish.length, spec.attr("transposed")
    staged = Staged(dtype, m, tall, count, lanes) if m > tall and not transposed else None
    for task in emit.loop(frame.first, frame.last):
        item, block = sizes.split(task, (1, sizes.ceildiv(n, width)))
        left = memory.at(frame.inputs[0], item * (m * k), dtype)
        right = memory.at(frame.inputs[1], item * (k * n), dtype)
        stop = sizes.least(block * width + width, n)
        if transposed:
            along = lines.Lines(left, right, dtype, k, n, lanes)
            along.multiply(m, (block * width, stop), partial(_row, finish, item * m))
            continue
        for column in emit.loop(block * width, stop, count * lanes):
            places = [column + i * lanes for i in range(count)]
            vectors = [(place, finish.mask(place, n, count * lanes)) for place in places]
            sides = Sides(left, right, dtype, k, n, vectors, lanes)
            sums = staged.sums(sides) if staged else sides.sums(range(m), k, sides.row)
            for r in range(m):
                write = finish.row(item * m + r)
                for place, mask in vectors:
                    write(place, mask, sums.pop(0))


def _row(finish: rows.Finish, top: Size, number: int) -> Callable[..., None]:
    """What writes row `number` behind row `top`."""
    return finish.row(top + number)


@dataclass(frozen=True)
class Sides:
    """Rows of `k` elements from `left` on, and k rows of `n` from `right` on.

    Of these `vectors` of so many `lanes` are multiplied: their columns, and masks.
    """

    left: Any
    right: Any
    dtype: str
    k: Size
    n: Size
    vectors: Sequence[tuple[Size, Any]]
    lanes: int

    def row(self, at: Size) -> list[Any]:
        """The vectors of a row of b; asks for those of another one."""
        asked = sizes.least(at + AHEAD, self.k - 1) * self.n + self.vectors[0][0]
        for line in range(0, len(self.vectors) * self.lanes, LINE // emit.ITEM_SIZE[self.dtype]):
            memory.prefetch(self.right, asked + line, self.dtype)
        places = ((at * self.n + column, mask) for column, mask in self.vectors)
        return [memory.load(self.right, i, self.dtype, self.lanes, mask) for i, mask in places]

    def sums(
        self,
        some: range,
        steps: Size,
        row: Callable[[Size], list[Any]],
        start: Size = 0,
        before: Sequence[Any] = (),
    ) -> list[Any]:
        """The products of some rows from step `start` on added to those `before`, row by row.

        `row(i)` is what step `start + i` takes of b.
        """
        count = len(self.vectors)

        def add(i: Size, *sums: Any) -> list[Any]:
            b, found = row(i), []
            for number, r in enumerate(some):
                a = memory.load(self.left, r * self.k + start + i, self.dtype)
                own = sums[number * count : (number + 1) * count]
                pairs = zip(b, own, strict=True)
                found += [emit.fma(emit.splat(a, self.lanes), x, total) for x, total in pairs]
            return found

        zero = emit.constant(emit.register_type(self.dtype), 0, self.lanes)
        return emit.carry(0, steps, 1, before or [zero] * (len(some) * count), add)


class Staged:
    """Sums of more rows than a tile has; made in the function's entry block.

    Each tile reads what the first one has put on the stack: in memory, rows of b may lie so that
    they share a few sets of the first cache.
    """

    def __init__(self, dtype: str, m: int, tall: int, count: int, lanes: int) -> None:
        self._tiles = [range(top, min(top + tall, m)) for top in range(0, m, tall)]
        size = count * lanes * emit.ITEM_SIZE[dtype]
        self._b, self._sums = (host.byte_buffer(each * size) for each in (DEPTH, m))

    def sums(self, sides: Sides) -> list[Any]:
        """Those of all rows, row by row."""
        dtype, lanes, count = sides.dtype, sides.lanes, len(sides.vectors)

        def b_at(i: Size) -> list[Any]:
            places = range(0, count * lanes, lanes)
            return [memory.load(self._b, i * (count * lanes) + p, dtype, lanes) for p in places]

        for start in emit.loop(0, sizes.greatest(sides.k, 1), DEPTH):
            steps = sizes.least(start + DEPTH, sides.k) - start
            for i in emit.loop(0, steps):
                for number, value in enumerate(sides.row(start + i)):
                    memory.store(value, self._b, (i * count + number) * lanes, dtype)
            # The sums before the first step are zero, whatever lies on the stack.
            kept = emit.select(emit.compare("greater", start, 0), emit.index(lanes), 0)
            mask = host.first_lanes(kept, lanes)
            for some in self._tiles:
                places = [i * lanes for i in range(some.start * count, some.stop * count)]
                before = [memory.load(self._sums, p, dtype, lanes, mask) for p in places]
                sums = sides.sums(some, steps, b_at, start, before)
                for place, value in zip(places, sums, strict=True):
                    memory.store(value, self._sums, place, dtype)
        total = self._tiles[-1].stop * count
        return [memory.load(self._sums, i * lanes, dtype, lanes) for i in range(total)]


def _vectors(rows: int, registers: int) -> int:
    """Vectors of columns that fit in registers with their sums by so many rows, and one of a."""
    return (registers - 1) // (rows + 1)


def _most_rows(registers: int) -> int:
    """Rows that two vectors of columns are multiplied by at once, at most."""
    return (registers - 1) // 2 - 1


def _divisor(count: int, most: int) -> int:
    """The greatest divisor of `count` up to `most`."""
    return max(each for each in range(1, most + 1) if count % each == 0)


def _columns(spec: Spec) -> int:
    """Columns of a task, in whole lines: about as many in each where all are known."""
    m, n = _extents(spec)[1], spec.result.shape[-1]
    line = LINE // emit.ITEM_SIZE[spec.operands[0].dtype]
    assert isinstance(m, int)
    most = min(WIDE, _vectors(max(m, 1), 32))
    if isinstance(n, int) and n > 0:
        lines = -(-n // line)
        most = -(-lines // -(-lines // most))
    return most * line


def _extents(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """Batch, m and k; a b without leading dims makes all of a's rows one m."""
    *leading, m, k = spec.operands[0].shape
    if len(spec.operands[1].shape) > 2:
        return product(tuple(leading)), m, k
    return 1, product((*leading, m)), k


def launch(spec: Spec) -> Launch:
    """One task for all rows by a block of columns of each batch."""
    (batch, m, k), n = _extents(spec), spec.result.shape[-1]
    tasks = fold("mul", batch, fold("ceildiv", n, _columns(spec)))
    each = fold("add", fold("mul", k, 2), bodies.work(spec.epilogue))
    read = product((*spec.operands[1].shape, emit.ITEM_SIZE[spec.operands[1].dtype]))
    return Launch((tasks, 1, 1), fold("max", product((batch, m, n, each)), read))


def supports(spec: Spec) -> str | None:
    """float32 and float64, both sides alike; few rows."""
    dtypes = {operand.dtype for operand in spec.operands}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return f"wanted float32 or float64 on both sides, got {' and '.join(sorted(dtypes))}"
    m = _extents(spec)[1]
    if not isinstance(m, int) or m > ROWS:
        return f"wanted up to {ROWS} rows, got {m}"
    if spec.prologue or spec.beside or spec.source or spec.gate:
        return "it takes no prologue, and no product beside it"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("matmul", "cpu", emit_matmul, launch, supports, overwrites="epilogue")
