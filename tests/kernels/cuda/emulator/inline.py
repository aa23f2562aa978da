"""The inline PTX that kernels use: wgmma with A in registers, which nvvm has no operation for.

And no PTX at all, of which each result is an operand: it keeps what uses accumulators behind the
wait for them, and looks at them as any instruction does.

PTX ISA 9.0, "wgmma.mma_async": the form with four registers of A; where the predicate is false, D
is A B alone, whatever was there. Kernels write it as `text` does,
in an `llvm.inline_asm` with side effects; operands: four i32 of A, the i64 descriptor of B, then
the accumulators, tied to the results; where it does not add there may be none of them.
"""

import re

import numpy as np

from emulator.grid import Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.structs import Struct
from emulator.types import count_of
from emulator.wgmma import Shape, in_step, multiply
from heddle.kernels.mlir import ir

FORM = re.compile(
    r"p, ([01]), 0; .*\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+) .*?, p, 1, 1(?:, ([01]))?;"
)


def text(n: int, k: int, d: str, a: str, b: str, transposed: int | None, adds: int = 1) -> str:
    """The PTX of D += A B; `transposed` (0 K-major, 1 N-major) is there for types of 16 bits.

    Where it does not add, D = A B.
    """
    count = n // 2
    sums = ", ".join(f"${i}" for i in range(count))
    registers = ", ".join(f"${i}" for i in range(count, count + 4))
    end = "" if transposed is None else f", {transposed}"
    return (
        f"{{ .reg .pred p; setp.ne.b32 p, {adds}, 0;"
        f" wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {{{sums}}}, {{{registers}}},"
        f" ${count + 4}, p, 1, 1{end}; }}"
    )


def constraints(n: int, d: str, tied: bool = True) -> str:
    """The constraints of `text`: results, A, the descriptor, accumulators as the results."""
    register = "f" if d == "f32" else "r"
    results = [f"={register}"] * (n // 2)
    return ",".join([*results, *"rrrr", "l", *(str(i) for i in range(n // 2) if tied)])


def inline(op):
    written = ir.StringAttr(op.attributes["asm_string"]).value
    if not written:
        return settled(op)
    form = FORM.search(written)
    if form is None:
        raise EmulatorError(f"the emulator does not know the PTX {written!r}")
    adds, n, k = (int(form[i]) for i in range(1, 4))
    d, a, b = form[4], form[5], form[6]
    major = None if form[7] is None else int(form[7])
    right = (
        text(n, k, d, a, b, major, adds),
        constraints(n, d, bool(adds) or len(op.operands) > 5),
        n // 2,
    )
    found = (
        written,
        ir.StringAttr(op.attributes["constraints"]).value,
        count_of(op.results[0].type),
    )
    if found != right or "has_side_effects" not in op.attributes:
        raise EmulatorError(f"wanted the PTX {right} with side effects, got {found}")
    shape = Shape(n, a, b, d, (1, 1), (True, not major))
    shape.check(k)

    def run(grid: Grid, mask: Mask, *values):
        registers, descriptor = list(values[:4]), values[4]
        sums = list(values[5:]) if adds else None
        units = in_step(grid, mask, (op, int(np.ravel(descriptor)[0])))
        return Struct(multiply(grid, shape, units, registers, descriptor, sums))

    return run


def settled(op):
    count = len(op.operands)
    register = "f" if str(op.operands[0].type) == "f32" else "r"
    wanted = ",".join([f"={register}"] * count + [str(i) for i in range(count)])
    found = ir.StringAttr(op.attributes["constraints"]).value
    if found != wanted or "has_side_effects" not in op.attributes:
        raise EmulatorError(f"wanted as many tied results as operands, got {found}")

    def run(grid: Grid, mask: Mask, *values):
        found = [grid.spread(value) for value in values]  # Which looks at them.
        return Struct(found) if count > 1 else found[0]

    return run


EFFECTS = {"llvm.inline_asm": inline}
