"""Axes in another order.

Axes that stay neighbours are one. Where the last axis stays last, rows are copied, a few for each
task; else the result's last axis and the operand's span a plane, of which a task turns one square
in tiles held in registers. Where those have no whole lines of cache, large results are turned
in blocks on the stack, from which long pieces of lines go past the cache; where lines of the result
share sets of the cache, small ones are (`planes.staged`). Planes of a few long lines are not turned
in squares, see `planes.narrow`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.planes import blocks, narrow, squares, staged
from heddle.kernels.cpu.planes.plane import Planes, side_of, tile_of
from heddle.kernels.permutation import Permutation, offset
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product
from heddle.kernels.stream import Stream
from heddle.kernels.tuning import Parameter, Space

ROWS = 16
"""Rows of a task that copies."""

SPACE = Space((Parameter("ahead", (0, 32, 64, 128, 256), 64),), lambda spec: _sides(spec))
"""`ahead`: how many elements ahead in a line memory is asked for, 0: not at all."""


def launch(spec: Spec) -> Launch:
    """One task for a few rows, or for each square of each plane."""
    plan = Permutation.of(spec)
    tasks = product(tuple(plan.shape[axis] for axis in plan.outer))
    few = narrow.Narrow.of(plan)
    if plan.copies:
        tasks = fold("ceildiv", tasks, ROWS)
    elif few:
        tasks = fold("mul", tasks, fold("ceildiv", few.length, narrow.LENGTH))
    else:
        for axis in (plan.order[-1], -1):
            tasks = fold("mul", tasks, fold("ceildiv", plan.shape[axis], side_of(spec)))
    work = product((*spec.result.shape, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((tasks, 1, 1), work)


def emit_transpose(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the forms."""
    frame = host.frame(spec, machine)
    plan = Permutation.of(spec)
    shape = frame.shape(plan.shape)
    lanes = host.lanes_for(machine, [memory.raw(spec.result.dtype)])
    few = narrow.Narrow.of(plan)
    if plan.copies or few:
        stream = Stream(frame, lanes)
        for task in stream.tasks():
            if few:
                narrow.turn(stream, plan, shape, task, few)
            else:
                _copy(stream, plan, shape, task)
        return

    stream = Stream(frame, tile_of(frame, lanes), apart=True)
    planes = Planes(stream, plan, shape)
    ahead = SPACE.value("ahead", spec, machine.arch)

    def turn() -> list[Any]:
        apart = staged.fit(planes)
        if isinstance(apart, bool):
            return staged.turn(planes) if apart else squares.turn(planes, ahead)
        ways = partial(staged.turn, planes), partial(squares.turn, planes, ahead)
        return emit.either(apart, [], *ways)

    if stream.past is None:
        turn()
        return
    # Half a line that goes past the cache costs as much as several whole ones.
    way = squares if stream.lanes == planes.line else blocks
    emit.either(
        way.fit(planes),
        [],
        lambda: way.turn_past(planes, ahead),
        turn,
    )
    stream.fence()


def _copy(stream: Stream, plan: Permutation, shape: tuple[Size, ...], task: Any) -> None:
    """Copies a few rows of the result."""
    frame, lanes = stream.frame, stream.lanes
    dtype = memory.raw(frame.spec.result.dtype)
    extents = tuple(shape[axis] for axis in plan.outer)
    last = sizes.least((task + 1) * ROWS, sizes.product(extents))
    for row in emit.loop(task * ROWS, last):
        start = offset(shape, dict(zip(plan.outer, sizes.split(row, extents), strict=True)))
        for column, mask in stream.vectors(0, shape[-1], row * shape[-1]):
            value = memory.load(frame.inputs[0], start + column, dtype, lanes, mask)
            place = row * shape[-1] + column
            stream.store(value, frame.outputs[0], place, dtype, mask)


def _sides(spec: Spec) -> dict[str, Expr]:
    """The sides of the plane that is turned: its axis in the result, and the operand's last."""
    plan = Permutation.of(spec)
    return {"rows": plan.shape[plan.order[-1]], "columns": plan.shape[-1]}


KERNEL = Kernel(
    "transpose", "cpu", emit_transpose, launch, memory.moves_only, moves=True, space=SPACE
)
