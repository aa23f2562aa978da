"""Rows sorted by group, each by its own weights in 8 or 4 bits: the strips of `quantized_matmul`.

A piece is within one group, whose weights and scales begin where those before it end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from heddle.kernels import emit
from heddle.kernels.cuda import _frame, quantized_matmul
from heddle.kernels.cuda.products import (
    by_rows,
    grouped,
    matrices,
    minimums,
    mma,
    scaled,
    tensor_cores,
)
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.scaled_strip import FEW, LEAST, Strip
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import product as warpgroup_product
from heddle.kernels.registry import Kernel, Machine, Portion
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec

MANY = 64
"""Rows of large strips."""


def emit_grouped(spec: Spec, machine: Machine) -> None:
    """Emits the piece of this block."""
    frame = _frame.frame(spec, machine)
    plan = warpgroup_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            warpgroup_product.emit_product(frame, plan)
        elif scaled.fits(spec):
            by_rows.emit_ways(frame, _ways(spec))
        else:
            sides = frame.reader(0), quantized_matmul.Scaled(frame)
            grouped.emit_multiply_adds(frame, sides, turns=True)


def _ways(spec: Spec) -> list[by_rows.Way]:
    """Strips of 8, 16 and 64 rows, by how many a group has in the mean."""
    problem, groups = matrices.problem(spec), spec.operands[1].shape[0]
    x, weights = (operand.dtype for operand in spec.operands[:2])
    kind, narrow = mma.KINDS[x, x], tensor_cores.narrow(problem)
    cuts: list[tuple[int, int, int | None]] = [(MANY, 64, None)]
    if isinstance(groups, int):
        # Groups differ: with half as many rows in the mean most of them are one piece.
        cuts = [(LEAST, narrow, LEAST // 2 * groups), (FEW, narrow, FEW * groups), *cuts]
    found = []
    for rows, columns, limit in cuts:
        held = spec.attr("bits"), spec.attr("group"), weights
        strip = Strip(kind, rows, columns, *held, minimums=minimums.number(spec) is not None)
        body = partial(_emit_strip, strip)
        found.append(grouped.way(limit, spec, rows, columns, strip.shared, body))
    return list(by_rows.possible(spec, found))


def _emit_strip(
    strip: Strip, frame: _frame.Frame, shared: mma.DynamicShared, where: Place, group: Size
) -> None:
    """Emits a piece of a group as a strip of its rows, by its part of all that is of weights."""
    inputs, least = list(frame.inputs), minimums.number(frame.spec)
    for number in (1, 2) if least is None else (1, 2, least):
        operand = frame.spec.operands[number]
        each, length = frame.shape(operand.shape[1:])
        size = emit.as_index(each) * length * emit.ITEM_SIZE[operand.dtype]
        inputs[number] = mma.byte_at(inputs[number], group * size)
    scaled.emit_strip_at(strip, replace(frame, inputs=inputs), shared, where)


def launch(spec: Spec) -> Launch:
    """A block for each piece that there may be."""
    if scaled.fits(spec):
        return by_rows.launch(spec, _ways(spec))
    return grouped.launch_multiply_adds(spec)


def split(spec: Spec) -> tuple[Portion, ...]:
    """Few rows for each group in the mean, two blocks of which share a multiprocessor, and more."""
    groups = spec.operands[1].shape[0]
    if not scaled.fits(spec) or not isinstance(groups, int):
        return (Portion(spec),)
    return by_rows.split_at(spec, FEW * groups)


def supports(spec: Spec) -> str | None:
    """As `quantized_matmul`, without a prologue, by integer offsets."""
    return grouped.supports(spec, quantized_matmul.supports)


KERNEL = Kernel(
    "quantized_grouped_matmul",
    "cuda",
    emit_grouped,
    launch,
    supports,
    checks=True,
    space=matrices.SPACE,
    own_launch=warpgroup_plan.own_launch,
    split=split,
)
