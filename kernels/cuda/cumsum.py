"""The sums of each element of a row and all before it: a warp for a row known to be short.

Its sums grow in steps of 1, 2, 4, ... lanes; the last one goes on. Of a longer row each thread of a
block has a vector at a time, and sums of threads, then of warps, are added up in the same way.
float16 and bfloat16 are added in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cuda import _block, _frame, _rows
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product

vector = dialect("vector")

_WARPS = _frame.THREADS // _block.WARP


def emit_cumsum(spec: Spec, machine: Machine) -> None:
    """Emits the loop over the columns of a row."""
    frame = _frame.frame(spec, machine)
    if _rows.group_size(spec.result.shape[-1]) == _block.WARP:
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
    zero = emit.constant(emit.register_type(x.dtype), 0)

    def further(start: Any, total: Any) -> list[Any]:
        column = start + lane
        inside = compare("less", column, length)
        # Every lane has to take part in the shuffles, so that some read the last column again.
        there = row * length + select(inside, column, emit.as_index(length) - 1)
        value = _over_lanes(select(inside, x(there, 1), zero), zero) + total
        with emit.when(inside):
            write(value, row * length + column)
        return [_block.shuffle_from(value, _block.WARP - 1)]

    with emit.when(compare("less", row, count)):
        emit.carry(0, length, _block.WARP, [zero], further)


def _emit_block(frame: _frame.Frame) -> None:
    """The row of this block, a vector of each thread at a time."""
    x, write = frame.reader(0), frame.writer()
    length = frame.size(frame.spec.result.shape[-1])
    element = emit.register_type(x.dtype)
    zero, sums = emit.constant(element, 0), _block.SharedArray("sums", element, _WARPS)
    lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
    row = _block.block() * length

    def body(lanes: int) -> None:
        def further(start: Any, total: Any) -> Sequence[Any]:
            column = start + _block.thread() * lanes
            inside = compare("less", column, length)
            values = _block.lanes(x(row + select(inside, column, 0), lanes))
            running = [select(inside, values[0], zero)]
            for value in values[1:]:
                running.append(running[-1] + select(inside, value, zero))
            upto = _over_lanes(running[-1], zero)
            _block.barrier()  # Nobody may still read the sums of the step before.
            with emit.when(compare("equal", lane, _block.WARP - 1)):
                sums.store(upto, warp)
            _block.barrier()
            before = _block.shuffle_from(upto, select(compare("greater", lane, 0), lane - 1, 0))
            before = select(compare("greater", lane, 0), before, zero)
            earlier = total
            for number in range(_WARPS):
                part = sums.load(number)
                earlier = earlier + select(compare("greater", warp, number), part, zero)
                total = total + part
            found = [earlier + before + value for value in running]
            with emit.when(inside):
                together = emit.widen(element, lanes)
                value = found[0] if lanes == 1 else vector.from_elements(together, found)
                write(value, row + column)
            return [total]

        emit.carry(0, length, _frame.THREADS * lanes, [zero], further)

    with frame.unless_empty():
        _frame.in_vectors(frame, [x.inputs, write.inputs], [length], body)


def _over_lanes(value: Any, zero: Any) -> Any:
    """The sum over the lanes up to this one."""
    lane, distance = _block.thread() % _block.WARP, 1
    while distance < _block.WARP:
        reaches = compare("greater_equal", lane, distance)
        before = _block.shuffle_from(value, select(reaches, lane - distance, 0))
        value = value + select(reaches, before, zero)
        distance *= 2
    return value


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row."""
    shape = spec.result.shape
    return Launch(_rows.grid(shape), fold("mul", product(shape), 16), (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Numbers, with any body."""
    if spec.operands[0].dtype == "bool":
        return "no sum of bool"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("cumsum", "cuda", emit_cumsum, launch, supports)
