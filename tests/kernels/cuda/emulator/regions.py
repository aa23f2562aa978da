"""Running operations in order and under masks: blocks, branches and loops.

PTX ISA 9.0, "Control Flow Instructions": a branch under a predicate splits a warp; here the mask of
active lanes is narrowed, and the results of both sides are merged.

Blocks are coroutines: they yield what an operation waits for (`cluster.Wait`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from emulator.cluster import Wait
from emulator.grid import Grid
from emulator.masks import Mask, every, some
from emulator.memory import EmulatorError
from emulator.rows import BLOCKING, EFFECTS, OPS
from emulator.structs import Struct
from heddle.kernels.mlir import ir

Coroutine = Generator[Wait, None, None]
Run = Callable[[Grid, Mask], Coroutine]


class Slots:
    """Numbers of the values of a kernel: to find one by its `ir.Value` in each step is slow.

    `effects` are the rows for what its operations do, beside those that compute.
    """

    def __init__(self, effects: Mapping[str, Callable] = EFFECTS) -> None:
        self.effects = effects
        self._numbers: dict[ir.Value, int] = {}

    def of(self, values: Iterable[ir.Value]) -> list[int]:
        return [self._numbers.setdefault(value, len(self._numbers)) for value in values]


def compile_block(block: ir.Block, slots: Slots) -> Run:
    """Prepares the operations of `block` once, so that loops do not walk the IR again.

    When they first run: of a kernel's versions for vectors and for elements only one does.
    """
    steps: list[tuple[ir.Operation, Callable, bool]] = []
    constants: dict[int, np.ndarray] = {}

    def run(grid: Grid, mask: Mask) -> Coroutine:
        if not steps:
            steps.extend([*_steps(block, slots, constants)])
        grid.values.update(constants)
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


def _steps(
    block: ir.Block, slots: Slots, constants: dict[int, np.ndarray]
) -> Iterator[tuple[ir.Operation, Callable, bool]]:
    """An operation, what it does, and whether it may wait; what are `constants` is put there."""
    for view in block.operations:
        op = view.operation
        name = op.name
        if name in OPS:
            if len(op.operands):
                yield op, _value_step(op, OPS[name](op), slots), False
            else:
                constants[slots.of(op.results)[0]] = OPS[name](op)()
        elif name in slots.effects:
            yield op, _effect_step(op, slots.effects[name](op), slots), False
        elif name in CONTROL:
            yield op, CONTROL[name](op, slots), True
        elif name in BLOCKING:
            yield op, _blocking_step(op, BLOCKING[name](op), slots), True
        else:
            raise EmulatorError(f"the emulator has no row for {name}: {op}")


def _value_step(op, function: Callable, slots: Slots) -> Callable[[Grid, Mask], None]:
    """One result; for each usual number of operands a function without a loop over them."""
    operands, (result,) = slots.of(op.operands), slots.of(op.results)

    def one(grid: Grid, mask: Mask) -> None:
        values = grid.values
        values[result] = function(values[first])

    def two(grid: Grid, mask: Mask) -> None:
        values = grid.values
        values[result] = function(values[first], values[second])

    def several(grid: Grid, mask: Mask) -> None:
        values = grid.values
        values[result] = function(*[values[operand] for operand in operands])

    first, second = operands[0], operands[-1]
    return {1: one, 2: two}.get(len(operands), several)


def _effect_step(op, function: Callable, slots: Slots) -> Callable[[Grid, Mask], None]:
    operands, results = slots.of(op.operands), slots.of(op.results)

    def step(grid: Grid, mask: Mask) -> None:
        values = grid.values
        found = function(grid, mask, *[values[operand] for operand in operands])
        if len(results) == 1:
            values[results[0]] = found
        elif results:
            put(values, results, found)

    return step


def _blocking_step(op: ir.Operation, function: Callable, slots: Slots) -> Run:
    operands = slots.of(op.operands)

    def step(grid: Grid, mask: Mask) -> Coroutine:
        yield from function(grid, mask, *(grid.values[operand] for operand in operands))

    return step


def put(values: dict[int, Any], places: list[int], found: Iterable) -> None:
    for place, value in zip(places, found, strict=True):
        values[place] = value


Values = list[np.ndarray]


def merge(mask: Mask, new: Values, old: Values | None) -> Values:
    """`new` in active lanes, `old` in the others, which hold nothing of worth before a first."""
    if old is None or every(mask):
        return new
    return [_choose(mask, n, o) for n, o in zip(new, old, strict=True)]


def _choose(mask: Mask, new, old):
    if isinstance(new, Struct):
        return new.merge(lambda n, o: _choose(mask, n, o), old)
    return np.where(mask.reshape([-1, *[1] * (new.ndim - 1)]), new, old)


def if_else(op, slots: Slots) -> Run:
    (condition,), results = slots.of(op.operands), slots.of(op.results)
    branches = [compile_block(r.blocks[0], slots) if len(r.blocks) else None for r in op.regions]

    def run(grid: Grid, mask: Mask) -> Coroutine:
        holds = grid.spread(grid.values[condition])
        found: Values | None = None
        for branch, active in zip(branches, (mask & holds, mask & ~holds), strict=True):
            if branch is None or not some(active):
                continue
            yield from branch(grid, active)
            found = merge(active, grid.yielded, found)
        if results:
            put(grid.values, results, found or [])

    return run


def for_loop(op, slots: Slots) -> Run:
    lower, upper, step, *start = slots.of(op.operands)
    block, results = op.regions[0].blocks[0], slots.of(op.results)
    counter, *carried = slots.of(block.arguments)
    body = compile_block(block, slots)

    def run(grid: Grid, mask: Mask) -> Coroutine:
        i, stop, stride = (grid.values[value] for value in (lower, upper, step))
        if (grid.spread(stride)[mask] <= 0).any():
            raise EmulatorError("a loop's step is not positive")
        values = [grid.values[value] for value in start]
        active = mask & (i < stop)
        while some(active):
            grid.values[counter] = i
            put(grid.values, carried, values)
            yield from body(grid, active)
            # Lanes that are outside of the loop altogether need no value kept.
            values = merge(active | ~mask, grid.yielded, values)
            i = i + stride
            active = active & (i < stop)
        put(grid.values, results, values)

    return run


def while_loop(op, slots: Slots) -> Run:
    before, after = (region.blocks[0] for region in op.regions)
    start, results = slots.of(op.operands), slots.of(op.results)
    checked, repeated = slots.of(before.arguments), slots.of(after.arguments)
    check, body = compile_block(before, slots), compile_block(after, slots)

    def run(grid: Grid, mask: Mask) -> Coroutine:
        values = [grid.values[value] for value in start]
        found: Values | None = None
        active = mask
        while some(active):
            put(grid.values, checked, values)
            yield from check(grid, active)
            condition, *passed = grid.yielded
            found = merge(active, passed, found)
            active = active & grid.spread(condition)
            if some(active):
                put(grid.values, repeated, passed)
                yield from body(grid, active)
                values = grid.yielded
        put(grid.values, results, found or [])

    return run


def pass_on(op, slots: Slots) -> Run:
    values = slots.of(op.operands)

    def run(grid: Grid, mask: Mask) -> Coroutine:
        grid.yielded = [grid.values[value] for value in values]
        yield from ()

    return run


CONTROL: dict[str, Callable[[ir.Operation, Slots], Run]] = {
    "scf.if": if_else,
    "scf.for": for_loop,
    "scf.while": while_loop,
    "scf.yield": pass_on,
    "scf.condition": pass_on,
    "llvm.return": pass_on,
}
