"""Running operations in order and under masks: blocks, branches and loops.

PTX ISA 9.0, "Control Flow Instructions": a branch under a predicate splits a warp; here the mask of
active lanes is narrowed, and the results of both sides are merged.

Blocks are coroutines: they yield what an operation waits for (`emulator_cluster.Wait`).
"""

from collections.abc import Callable, Generator

import numpy as np
from emulator_cluster import Wait
from emulator_grid import Grid, Mask
from emulator_memory import EmulatorError
from emulator_rows import BLOCKING, EFFECTS, OPS
from emulator_structs import Struct

from heddle.kernels.mlir import ir

Coroutine = Generator[Wait, None, None]
Run = Callable[[Grid, Mask], Coroutine]


def compile_block(block: ir.Block) -> Run:
    """Prepares the operations of `block` once, so that loops do not walk the IR again."""
    steps: list[tuple[ir.Operation, Callable, bool]] = []
    for view in block.operations:
        op = view.operation
        if op.name in CONTROL:
            steps.append((op, CONTROL[op.name](op), True))
        elif op.name in BLOCKING:
            steps.append((op, _blocking_step(op, BLOCKING[op.name](op)), True))
        elif op.name in EFFECTS:
            steps.append((op, _step(op, EFFECTS[op.name](op), True), False))
        elif op.name in OPS:
            steps.append((op, _step(op, OPS[op.name](op), False), False))
        else:
            raise EmulatorError(f"the emulator has no row for {op.name}: {op}")

    def run(grid: Grid, mask: Mask) -> Coroutine:
        for op, step, waits in steps:
            try:
                if waits:
                    yield from step(grid, mask)
                else:
                    step(grid, mask)
            except EmulatorError as error:
                if "\n" in str(error):  # An operation inside of this one is named already.
                    raise
                raise EmulatorError(f"{error}\n    {str(op).splitlines()[0][:160]}") from None

    return run


def _step(op: ir.Operation, function: Callable, effect: bool) -> Callable[[Grid, Mask], None]:
    operands, results = list(op.operands), list(op.results)

    def step(grid: Grid, mask: Mask) -> None:
        values = [grid.values[operand] for operand in operands]
        found = function(grid, mask, *values) if effect else function(*values)
        if len(results) == 1:
            grid.values[results[0]] = found
        elif results:
            grid.values.update(zip(results, found, strict=True))

    return step


def _blocking_step(op: ir.Operation, function: Callable) -> Run:
    operands = list(op.operands)

    def step(grid: Grid, mask: Mask) -> Coroutine:
        yield from function(grid, mask, *(grid.values[operand] for operand in operands))

    return step


Values = list[np.ndarray]


def merge(mask: Mask, new: Values, old: Values | None) -> Values:
    """`new` in active lanes, `old` in the others, which hold nothing of worth before a first."""
    if old is None or mask.all():
        return new
    return [_choose(mask, n, o) for n, o in zip(new, old, strict=True)]


def _choose(mask: Mask, new, old):
    if isinstance(new, Struct):
        return new.merge(lambda n, o: _choose(mask, n, o), old)
    return np.where(mask.reshape([-1, *[1] * (new.ndim - 1)]), new, old)


def if_else(op) -> Run:
    condition, results = op.operands[0], list(op.results)
    branches = [compile_block(r.blocks[0]) if len(r.blocks) else None for r in op.regions]

    def run(grid: Grid, mask: Mask) -> Coroutine:
        holds = grid.spread(grid.values[condition])
        found: Values | None = None
        for branch, active in zip(branches, (mask & holds, mask & ~holds), strict=True):
            if branch is None or not active.any():
                continue
            yield from branch(grid, active)
            found = merge(active, grid.yielded, found)
        grid.values.update(zip(results, found or [], strict=bool(results)))

    return run


def for_loop(op) -> Run:
    lower, upper, step, *start = op.operands
    block, results = op.regions[0].blocks[0], list(op.results)
    counter, *carried = block.arguments
    body = compile_block(block)

    def run(grid: Grid, mask: Mask) -> Coroutine:
        i, stop, stride = (grid.values[value] for value in (lower, upper, step))
        if (grid.spread(stride)[mask] <= 0).any():
            raise EmulatorError("a loop's step is not positive")
        values = [grid.values[value] for value in start]
        active = mask & (i < stop)
        while active.any():
            grid.values[counter] = i
            grid.values.update(zip(carried, values, strict=True))
            yield from body(grid, active)
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

    def run(grid: Grid, mask: Mask) -> Coroutine:
        values = [grid.values[value] for value in op.operands]
        found: Values | None = None
        active = mask
        while active.any():
            grid.values.update(zip(before.arguments, values, strict=True))
            yield from check(grid, active)
            condition, *passed = grid.yielded
            found = merge(active, passed, found)
            active = active & grid.spread(condition)
            if active.any():
                grid.values.update(zip(after.arguments, passed, strict=True))
                yield from body(grid, active)
                values = grid.yielded
        grid.values.update(zip(results, found or [], strict=True))

    return run


def pass_on(op) -> Run:
    values = list(op.operands)

    def run(grid: Grid, mask: Mask) -> Coroutine:
        grid.yielded = [grid.values[value] for value in values]
        yield from ()

    return run


CONTROL: dict[str, Callable[[ir.Operation], Run]] = {
    "scf.if": if_else,
    "scf.for": for_loop,
    "scf.while": while_loop,
    "scf.yield": pass_on,
    "scf.condition": pass_on,
    "llvm.return": pass_on,
}
