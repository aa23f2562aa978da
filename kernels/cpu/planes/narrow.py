"""Planes of few long lines, such as the channels of a picture, turned: their lines are interleaved.

The other way round, many short lines become few long ones. Tiles of squares would be empty but for
a few lines; here every vector is whole, and what has short lines is one run in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import crosslane, emit, memory, sizes
from heddle.kernels.permutation import Permutation, offset, result_offset
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr
from heddle.kernels.stream import Stream

MOST = 7
"""Lines of such a plane at most: each vector is made of as many; eight fill tiles."""

LENGTH = 1024
"""Elements of a line that are one task's."""


@dataclass(frozen=True)
class Narrow:
    """A plane of `lines` lines of `length` elements; `interleaves`: the operand has the lines."""

    lines: int
    length: Expr
    interleaves: bool

    @staticmethod
    def of(plan: Permutation) -> Narrow | None:
        """That of `plan`, if its planes are narrow, and all short lines of one lie in one run."""
        if plan.copies:
            return None
        across, last = plan.order[-1], len(plan.order) - 1
        rows, columns = plan.shape[across], plan.shape[last]
        if isinstance(rows, int) and 1 < rows <= MOST and plan.order[-2] == last:
            return Narrow(rows, columns, interleaves=True)
        if isinstance(columns, int) and 1 < columns <= MOST and across == last - 1:
            return Narrow(columns, rows, interleaves=False)
        return None


def turn(
    stream: Stream, plan: Permutation, shape: tuple[Size, ...], task: Any, narrow: Narrow
) -> None:
    """Turns the part of a plane that is `task`."""
    frame, side, lines = stream.frame, stream.lanes, range(narrow.lines)
    dtype = memory.raw(frame.spec.result.dtype)
    across, last = plan.order[-1], len(shape) - 1
    long = shape[last if narrow.interleaves else across]
    extents = (*(shape[axis] for axis in plan.outer), sizes.ceildiv(long, LENGTH))
    *place, part = sizes.split(task, extents)
    where = dict(zip(plan.outer, place, strict=True))
    source = offset(shape, where)
    target, step = result_offset(plan.order, shape, where)
    apart = sizes.product(shape[across + 1 :]) if narrow.interleaves else step
    first, end = part * LENGTH, sizes.least((part + 1) * LENGTH, long)
    whole = end - sizes.mod(end - first, side)
    of_lines, of_run = (source, target) if narrow.interleaves else (target, source)

    def in_lines(n: int, at: Size, lanes: int) -> Size:
        return of_lines + n * apart + at

    def in_run(n: int, at: Size, lanes: int) -> Size:
        return of_run + at * narrow.lines + n * lanes

    before, after = (in_lines, in_run) if narrow.interleaves else (in_run, in_lines)
    turned = crosslane.interleaved if narrow.interleaves else crosslane.deinterleaved

    def read(at: Size, lanes: int) -> list[Any]:
        places = (before(n, at, lanes) for n in lines)
        return [memory.load(frame.inputs[0], place, dtype, lanes) for place in places]

    def write(values: list[Any], at: Size, lanes: int, past: bool = False) -> list[Any]:
        for n, value in zip(lines, values, strict=True):
            memory.store(value, frame.outputs[0], after(n, at, lanes), dtype, past=past)
        return []

    aligned = stream.aligned((target,) if narrow.interleaves else (target, step))
    for at in emit.loop(first, whole, side):
        aligned.either(partial(write, turned(read(at, side)), at, side))

    def last_vectors() -> list[Any]:
        """Those that end with the part: they may write once more what is written."""
        with emit.when(emit.compare("less", whole, end)):
            write(turned(read(end - side, side)), end - side, side)
        return []

    def single() -> list[Any]:
        for at in emit.loop(first, end):
            write(read(at, 1), at, 1)
        return []

    emit.either(emit.compare("greater_equal", end - first, side), [], last_vectors, single)
