"""Running operations in order and under masks: blocks, branches and loops.

PTX ISA 9.0, "Control Flow Instructions": a branch under a predicate splits a warp; here the mask of
active lanes is narrowed, and the results of both sides are merged.
"""

from collections.abc import Callable

import numpy as np
from emulator_grid import Grid, Mask
from emulator_memory import EmulatorError
from emulator_threads import EFFECTS
from emulator_values import OPS

from heddle.kernels.mlir import ir

Run = Callable[[Grid, Mask], None]


def compile_block(block: ir.Block) -> Run:
    """Prepares the operations of `block` once, so that loops do not walk the IR again."""
    steps: list[tuple[ir.Operation, Run]] = []
    for view in block.operations:
        op = view.operation
        if op.name in CONTROL:
            steps.append((op, CONTROL[op.name](op)))
        elif op.name in EFFECTS:
            steps.append((op, _step(op, EFFECTS[op.name](op), True)))
        elif op.name in OPS:
            steps.append((op, _step(op, OPS[op.name](op), False)))
        else:
            raise EmulatorError(f"the emulator has no row for {op.name}: {op}")

    def run(grid: Grid, mask: Mask) -> None:
        for op, step in steps:
            try:
                step(grid, mask)
            except EmulatorError as error:
                if "\n" in str(error):  # An operation inside of this one is named already.
                    raise
                raise EmulatorError(f"{error}\n    {str(op).splitlines()[0]}") from None

    return run


def _step(op: ir.Operation, function: Callable, effect: bool) -> Run:
    operands, results = list(op.operands), list(op.results)

    def step(grid: Grid, mask: Mask) -> None:
        values = [grid.values[operand] for operand in operands]
        found = function(grid, mask, *values) if effect else function(*values)
        if len(results) == 1:
            grid.values[results[0]] = found
        elif results:
            grid.values.update(zip(results, found, strict=True))

    return step


Values = list[np.ndarray]


def merge(mask: Mask, new: Values, old: Values | None) -> Values:
    """`new` in active lanes, `old` in the others, which hold nothing of worth before a first."""
    if old is None or mask.all():
        return new
    shapes = ([-1, *[1] * (value.ndim - 1)] for value in new)
    return [np.where(mask.reshape(s), n, o) for s, n, o in zip(shapes, new, old, strict=True)]


def if_else(op) -> Run:
    condition, results = op.operands[0], list(op.results)
    branches = [compile_block(r.blocks[0]) if len(r.blocks) else None for r in op.regions]

    def run(grid: Grid, mask: Mask) -> None:
        holds = grid.spread(grid.values[condition])
        found: Values | None = None
        for branch, active in zip(branches, (mask & holds, mask & ~holds), strict=True):
            if branch is None or not active.any():
                continue
            branch(grid, active)
            found = merge(active, grid.yielded, found)
        grid.values.update(zip(results, found or [], strict=bool(results)))

    return run


def for_loop(op) -> Run:
    lower, upper, step, *start = op.operands
    block, results = op.regions[0].blocks[0], list(op.results)
    counter, *carried = block.arguments
    body = compile_block(block)

    def run(grid: Grid, mask: Mask) -> None:
        i, stop, stride = (grid.values[value] for value in (lower, upper, step))
        if (grid.spread(stride)[mask] <= 0).any():
            raise EmulatorError("a loop's step is not positive")
        values = [grid.values[value] for value in start]
        active = mask & (i < stop)
        while active.any():
            grid.values[counter] = i
            grid.values.update(zip(carried, values, strict=True))
            body(grid, active)
            # Lanes that are outside of the loop altogether need no value kept.
            values = merge(active | ~mask, grid.yielded, values)
            i = i + stride
            active = active & (i < stop)
        grid.values.update(zip(results, values, strict=True))

    return run


def while_loop(op) -> Run:
    before, after = (region.blocks[0] for region in op.regions)
    results = list(op.results)
    check, body = compile_block(before), compile_block(after)

    def run(grid: Grid, mask: Mask) -> None:
        values = [grid.values[value] for value in op.operands]
        found: Values | None = None
        active = mask
        while active.any():
            grid.values.update(zip(before.arguments, values, strict=True))
            check(grid, active)
            condition, *passed = grid.yielded
            found = merge(active, passed, found)
            active = active & grid.spread(condition)
            if active.any():
                grid.values.update(zip(after.arguments, passed, strict=True))
                body(grid, active)
                values = grid.yielded
        grid.values.update(zip(results, found or [], strict=True))

    return run


def pass_on(op) -> Run:
    values = list(op.operands)

    def run(grid: Grid, mask: Mask) -> None:
        grid.yielded = [grid.values[value] for value in values]

    return run


CONTROL: dict[str, Callable[[ir.Operation], Run]] = {
    "scf.if": if_else,
    "scf.for": for_loop,
    "scf.while": while_loop,
    "scf.yield": pass_on,
    "scf.condition": pass_on,
    "llvm.return": pass_on,
}
