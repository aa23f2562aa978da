"""Stages of shared memory that cp.async fills with lines of a matrix, ready for ldmatrix.

The 16-byte chunk c of a line of 128 bytes lies at chunk c ^ (line % 8), so that neither cp.async
nor ldmatrix meets a bank twice. That is also where TMA's swizzle of 128 bytes puts it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import matrices as products_matrices
from heddle.kernels.cuda.products import mma
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size

llvm, scf, vector = (dialect(name) for name in ("llvm", "scf", "vector"))

THREADS = 256
"""Threads that fill and multiply."""

LINE = 128
"""Bytes of a line, but for narrow tiles of b."""

EARLY = 50
"""Of a hundred stages, for how many is read what a kernel need not wait for.

They are all there with the first stage of what it waits for; the others keep memory busy then.
"""


@dataclass(frozen=True)
class Matrix:
    """A row-major matrix in global memory: `start` is its first element behind `pointer`.

    `chunk`: bytes that one cp.async copies of it: 4, 8 or 16.
    """

    pointer: Any
    dtype: str
    start: Size
    rows: Size
    columns: Size
    chunk: int = field(default=mma.CHUNK, kw_only=True)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return emit.ITEM_SIZE[self.dtype]

    @property
    def each(self) -> int:
        """Elements of a chunk."""
        return self.chunk // self.item

    def whole(self) -> Any:
        """Whether all chunks are aligned, an i1; None where rows cannot divide into chunks."""
        if isinstance(self.columns, int) and self.columns % self.each:
            return None
        loose = llvm.ptrtoint(emit.integer(64), self.pointer) & (self.chunk - 1)
        if not isinstance(self.columns, int):
            loose = loose | self.columns % self.each
        return emit.compare("equal", loose, 0)

    def copy(self, target: Any, row: Size, column: Size, source: Any) -> None:
        """Starts the copy of the chunk that `source` points to; zeros where it lies outside."""
        inside = emit.compare("less", row, self.rows) & emit.compare("less", column, self.columns)
        mma.copy(target, source, inside, self.chunk)

    def elements(self, row: Size, column: Size, position: Size) -> Any:
        """The chunk at `position` read one by one, as stored; zeros where they lie outside."""
        dtype = memory.raw(self.dtype)
        kind = emit.memory_type(dtype)
        line = emit.compare("less", row, self.rows)
        values = []
        for i in range(self.each):
            inside = line & emit.compare("less", column + i, self.columns)
            operation = scf.IfOp(inside, [kind], has_else=True)
            with ir.InsertionPoint(operation.then_block):
                scf.yield_([memory.load(self.pointer, position + i, dtype)])
            with ir.InsertionPoint(operation.else_block):
                scf.yield_([emit.constant(kind, 0)])
            values.append(operation.results[0])
        return vector.from_elements(emit.widen(kind, self.each), values)


def matrices(frame: _frame.Frame, number: Size) -> tuple[Matrix, Matrix]:
    """The sides of the batch's product `number`: a [m, k], b [k, n] or transposed [n, k]."""
    spec = frame.spec
    problem = products_matrices.problem(spec)
    m, n, k = (frame.size(x) for x in (problem.m, problem.n, problem.k))
    shapes = (m, k), (n, k) if spec.attr("transposed") else (k, n)

    def matrix(i: int) -> Matrix:
        operand, (rows, columns) = spec.operands[i], shapes[i]
        start = products_matrices.start(frame, problem.batch, operand, number, rows * columns)
        return Matrix(frame.inputs[i], operand.dtype, start, rows, columns)

    return matrix(0), matrix(1)


def sides(frame: _frame.Frame, number: Size) -> list[Matrix]:
    """The left side of the batch's product `number`, its right side, and that of its gate."""
    (left, right), *gate = (matrices(product, number) for product in frame.products())
    return [left, right, *(other for _, other in gate)]


class Lines:
    """Part of a stage: lines of `length` bytes of a matrix, from byte `place` of the stage on.

    A step of k covers `depth` elements. With `k_last` the matrix has k as its last axis, and lines
    are its rows from `first` on. Else lines are steps of k, of as many columns from `first` on as
    fit their length; further columns are in further panels of `depth` lines. `width`: as `swizzled`
    has it. `repeats`: how many steps one after another have the same lines.
    """

    def __init__(
        self,
        matrix: Matrix,
        place: int,
        count: int,
        length: int,
        depth: int,
        first: Size,
        k_last: bool,
        width: int = mma.CHUNK,
        repeats: int = 1,
    ) -> None:
        self._matrix, self.whole = matrix, matrix.whole()
        self._length, self._depth, self._k_last = length, depth, k_last
        self._repeats = repeats
        chunks = length // matrix.chunk
        self._together = THREADS // chunks
        self._passes = max(1, count // self._together)
        line, chunk = _block.thread() // chunks, _block.thread() % chunks
        along = chunk * matrix.each
        self._idle = self._together > count
        self._filling = emit.compare("less", line, count)
        self._row, self._column = (first + line, along) if k_last else (line, first + along)
        self._origin = matrix.start + self._row * matrix.columns + self._column
        self._first = mma.byte_at(matrix.pointer, self._origin * matrix.item)
        self._target = place + line * length + swizzled(line, chunk, length, width) * matrix.chunk

    def fill(self, shared: mma.DynamicShared, stage: Size, step: Size) -> None:
        """Starts to fill the stage at byte `stage` with the elements of `step`.

        What lies beyond the matrix is zero.
        """
        fill([self], shared, stage, step)

    def copy(self, shared: mma.DynamicShared, stage: Size, step: Size) -> None:
        """As `fill`, where chunks are aligned."""
        with self._at_work():
            for i in range(self._passes):
                row, column, behind = self._source(i, step)
                source = mma.byte_at(self._first, behind * self._matrix.item)
                self._matrix.copy(shared.at(self._at(stage, i)), row, column, source)

    def by_elements(self, shared: mma.DynamicShared, stage: Size, step: Size) -> None:
        """As `fill`, wherever chunks lie."""
        with self._at_work():
            for i in emit.loop(0, self._passes):
                row, column, behind = self._source(i, step)
                value = self._matrix.elements(row, column, self._origin + behind)
                shared.store(value, self._at(stage, i))

    def _at_work(self) -> AbstractContextManager[Any]:
        """For the threads that have a line."""
        return emit.when(self._filling) if self._idle else nullcontext()

    def _at(self, stage: Size, i: Size) -> Size:
        return stage + self._target + i * (self._together * self._length)

    def _source(self, i: Size, step: Size) -> tuple[Size, Size, Size]:
        """Row and column of the thread's chunk of pass `i`; how far behind its first one it is."""
        step = step if self._repeats == 1 else step // self._repeats
        if self._k_last:
            down, right = i * self._together, step * self._depth
        else:
            passes = self._depth // self._together  # Of a panel.
            down = step * self._depth + i % passes * self._together
            right = i // passes * (self._length // self._matrix.item)
        return self._row + down, self._column + right, down * self._matrix.columns + right


def fill(parts: Sequence[Lines], shared: mma.DynamicShared, stage: Size, step: Size) -> None:
    """Starts to fill all parts of a stage: by copies in one piece of code where all are aligned.

    One branch for all of them is not only shorter: ptxas puts three loads that load nothing in
    front of the copies of each piece.
    """
    aligned = [part for part in parts if part.whole is not None]
    for part in parts:
        if part.whole is None:
            part.by_elements(shared, stage, step)
    if not aligned:
        return
    operation = scf.IfOp(reduce(operator.and_, [part.whole for part in aligned]), has_else=True)
    with ir.InsertionPoint(operation.then_block):
        for part in aligned:
            part.copy(shared, stage, step)
        scf.yield_([])
    with ir.InsertionPoint(operation.else_block):
        for part in aligned:
            part.by_elements(shared, stage, step)
        scf.yield_([])


def swizzled(line: Size, chunk: Size, length: int, width: int = mma.CHUNK) -> Size:
    """The place of a chunk in its line of `length` bytes.

    Lines are read `width` bytes at a time, of as many lines as fill all banks (128 bytes) at once:
    those parts are in different banks then.
    """
    together = LINE // max(length, width)  # Lines that are in different banks as they are.
    if together > 1:
        return (line // together % (LINE // width // together)) * (width // mma.CHUNK) ^ chunk
    return (line % (LINE // width)) * (width // mma.CHUNK) ^ chunk


@dataclass(frozen=True)
class Ring:
    """Stages of `size` bytes that go round: while one is multiplied, the others are filled."""

    shared: mma.DynamicShared
    stages: int
    size: int

    def stream(
        self,
        frame: _frame.Frame,
        parts: Sequence[Lines],
        given: Sequence[Lines],
        steps: tuple[Size, Size],
        sums: Sequence[Any],
        multiply: Callable[[Size, Size, Sequence[Any]], Sequence[Any]],
    ) -> Sequence[Any]:
        """Takes `sums` through the steps from the first of `steps` to that before the second.

        `multiply(step, stage, sums)` gives the next ones; the stage begins at that byte. Stages are
        filled with `parts` and with what is `given`: where the frame has yet to wait, some of it
        comes before. Once nothing more is asked for, the next kernel may start. Afterwards shared
        memory is free for other use.
        """
        ahead, (first, last) = self.stages - 1, steps
        early = ahead * EARLY // 100 if frame.ahead else 0

        def start(step: Size, stage: Size, lines: Sequence[Lines]) -> None:
            with emit.when(emit.compare("less", emit.as_index(step), last)):
                fill(lines, self.shared, stage, step)

        def body(step: Any, full: Any, empty: Any, *sums: Any) -> Sequence[Any]:
            mma.wait(ahead - 1)
            _block.barrier()  # The stage is there, and nobody reads the one before it any more.
            start(step + ahead, empty, [*parts, *given])
            mma.commit()
            if frame.late:
                with emit.when(emit.compare("greater_equal", step + (ahead + 1), last)):
                    frame.let_next_start()
            return [self._next(full), full, *multiply(step, full, sums)]

        for number in range(early):
            start(first + number, emit.index(number * self.size), given)
        frame.wait()
        for number in range(ahead):
            lines = parts if number < early else [*parts, *given]
            start(first + number, emit.index(number * self.size), lines)
            mma.commit()
        ends = [emit.index(0), emit.index(ahead * self.size)]
        _, _, *found = emit.carry(first, last, 1, [*ends, *sums], body)
        mma.wait(0)
        _block.barrier()
        return found

    def _next(self, stage: Any) -> Any:
        last = emit.compare("equal", stage, (self.stages - 1) * self.size)
        return emit.select(last, 0, stage + self.size)
