"""The sums of each element along an axis and all before it: a warp for a row known to be short.

Its sums grow in steps of 1, 2, 4, ... lanes; the last one goes on. Of a longer row each thread of a
block has a vector at a time, and sums of threads, then of warps, are added up in the same way.
Along another axis than the last a block has up to 32 neighbouring columns, of which each thread has
a few elements at a time. float16 and bfloat16 are added in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from heddle.kernels import bodies, emit, sizes
from heddle.kernels.cuda import _block, _frame, _rows
from heddle.kernels.cuda._scan import in_warp
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.running_sums import NOTHING, along_rows
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

vector = dialect("vector")

_WARPS = _frame.THREADS // _block.WARP
_ELEMENTS = 4  # of a column that a thread has at a time: so many loads are under way


def emit_cumsum(spec: Spec, machine: Machine) -> None:
    """Emits the loop along the axis."""
    frame = _frame.frame(spec, machine)
    if not along_rows(spec):
        _emit_columns(frame)
    elif _rows.group_size(spec.result.shape[-1]) == _block.WARP:
        _emit_warp(frame)
    else:
        _emit_block(frame)


def _emit_warp(frame: _frame.Frame) -> None:
    """A row of this warp, 32 columns at a time."""
    shape = frame.spec.result.shape
    x, write = frame.reader(0), frame.writer()
    length, count = frame.size(shape[-1]), frame.size(product(shape[:-1]))
    lane = _block.thread() % _block.WARP
    row = _block.block() * _WARPS + _block.thread() // _block.WARP
    nothing = emit.constant(emit.register_type(x.dtype), NOTHING)

    def further(start: Any, total: Any) -> list[Any]:
        column = start + lane
        inside = compare("less", column, length)
        # Every lane has to take part in the shuffles, so that some read the last column again.
        there = row * length + select(inside, column, emit.as_index(length) - 1)
        value = in_warp(select(inside, x(there, 1), nothing), nothing) + total
        with emit.when(inside):
            write(value, row * length + column)
        return [_block.shuffle_from(value, _block.WARP - 1)]

    with emit.when(compare("less", row, count)):
        emit.carry(0, length, _block.WARP, [nothing], further)


def _emit_block(frame: _frame.Frame) -> None:
    """The row of this block, a vector of each thread at a time."""
    x, write = frame.reader(0), frame.writer()
    length = frame.size(frame.spec.result.shape[-1])
    sums = _Sums(emit.register_type(x.dtype), 1)
    row = _block.block() * length

    def body(lanes: int) -> None:
        def further(start: Any, total: Any) -> Sequence[Any]:
            column = start + _block.thread() * lanes
            inside = compare("less", column, length)
            values = _block.lanes(x(row + select(inside, column, 0), lanes))
            found, total = sums.further([select(inside, v, sums.nothing) for v in values], total)
            with emit.when(inside):
                together = emit.widen(sums.element, lanes)
                value = found[0] if lanes == 1 else vector.from_elements(together, found)
                write(value, row + column)
            return [total]

        emit.carry(0, length, _frame.THREADS * lanes, [sums.nothing], further)

    with frame.unless_empty():
        _frame.in_vectors(frame, [x.inputs, write.inputs], [length], body)


def _emit_columns(frame: _frame.Frame) -> None:
    """Neighbouring columns of this block, a few elements of each thread at a time."""
    _block.share_multiprocessor(4)
    x, write = frame.reader(0), frame.writer()
    _, count, inner = (frame.size(size) for size in _around(frame.spec))
    width = _width(frame.spec)
    sums, strips = _Sums(emit.register_type(x.dtype), width), sizes.ceildiv(inner, width)

    def further(first: Any, total: Any) -> Sequence[Any]:
        strip = sizes.mod(_block.block(), strips)
        column = strip * width + _block.thread() % width
        there = compare("less", column, inner)
        # Every thread takes part in the sums, so that some read the last element again.
        start = sizes.floordiv(_block.block(), strips) * count * inner
        start = start + select(there, column, emit.as_index(inner) - 1)
        begin = first + _block.thread() // width * _ELEMENTS
        places = [begin + number for number in range(_ELEMENTS)]
        insides = [compare("less", place, count) for place in places]
        last = emit.as_index(count) - 1
        values = [
            x(start + select(inside, place, last) * inner, 1)
            for place, inside in zip(places, insides, strict=True)
        ]
        values = [select(i, value, sums.nothing) for i, value in zip(insides, values, strict=True)]
        found, total = sums.further(values, total)
        for place, inside, value in zip(places, insides, found, strict=True):
            with emit.when(inside & there):
                write(value, start + place * inner)
        return [total]

    with frame.unless_empty():
        step = _frame.THREADS // width * _ELEMENTS
        emit.carry(0, count, step, [sums.nothing], further)


class _Sums:
    """Sums over the threads of a block that have elements of one column, one behind the other.

    Args:
        element: The type that is added.
        width: The columns of the block: so many neighbouring threads have one element each.
    """

    def __init__(self, element: Any, width: int) -> None:
        self.element, self.width = element, width
        self.nothing = emit.constant(element, NOTHING)
        self._shared = _block.SharedArray("sums", element, _WARPS * width)

    def further(self, values: Sequence[Any], total: Any) -> tuple[list[Any], Any]:
        """The sums up to each of this thread's `values`, and up to the last of all threads.

        `total` is the sum of what came before. Every thread of the block calls.
        """
        lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
        column = lane % self.width
        running = [values[0]]
        for value in values[1:]:
            running.append(running[-1] + value)
        upto = in_warp(running[-1], self.nothing, self.width)
        _block.barrier()  # Nobody may still read the sums of the step before.
        with emit.when(compare("greater_equal", lane, _block.WARP - self.width)):
            self._shared.store(upto, warp * self.width + column)
        _block.barrier()
        reaches = compare("greater_equal", lane, self.width)
        before = _block.shuffle_from(upto, select(reaches, lane - self.width, 0))
        before = select(reaches, before, self.nothing)
        earlier = total
        for number in range(_WARPS):
            part = self._shared.load(column + number * self.width)
            earlier = earlier + select(compare("greater", warp, number), part, self.nothing)
            total = total + part
        return [earlier + before + value for value in running], total


def _around(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """The sizes before, of and after the axis."""
    return _rows.around(spec.result.shape, spec.attr("axis"))


def _width(spec: Spec) -> int:
    """The columns of a block: a power of 2, less than a warp only where there are few."""
    inner = _around(spec)[2]
    least = sizes.power_of_two(inner) if isinstance(inner, int) else _block.WARP
    return min(least, _block.WARP)


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row, or a block for each strip of columns."""
    shape = spec.result.shape
    grid = _rows.grid(shape)
    if not along_rows(spec):
        outer, _, inner = _around(spec)
        strips = fold("mul", outer, fold("ceildiv", inner, _width(spec)))
        grid = (fold("max", 1, strips), 1, 1)
    return Launch(grid, fold("mul", product(shape), 16), (_frame.THREADS, 1, 1))


KERNEL = Kernel("cumsum", "cuda", emit_cumsum, launch, partial(bodies.of_numbers, what="sum"))
