"""Rounding to bfloat16 by the instructions of AVX512-BF16.

To them a denormal number is zero (Intel SDM, volume 2, VCVTNEPS2BF16): a vector that has one is
rounded by integer operations, unless what computes it loses denormal numbers anyway.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any

from heddle.kernels import convert, crosslane, emit
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Machine

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

PART = 16
"""float32 in a register of AVX-512."""

_loses: ContextVar[bool] = ContextVar("loses", default=False)


def conversions(machine: Machine) -> AbstractContextManager[None]:
    """What is emitted in it rounds as well as the machine can."""
    return convert.bfloat16_by(_rounded if machine.dots else None)


@contextmanager
def losing_denormals(wanted: bool) -> Iterator[None]:
    """What is emitted in it makes denormal results zero, if `wanted`, as dot products do."""
    token = _loses.set(wanted)
    try:
        yield
    finally:
        _loses.reset(token)


def narrowed(low: Any, high: Any | None = None) -> Any:
    """The bits of one or two registers of float32 as bfloat16, one behind the other."""
    if high is None:
        narrow = arith.truncf(ir.VectorType.get([PART], ir.BF16Type.get()), low)
    else:
        kind = ir.VectorType.get([2 * PART], ir.BF16Type.get())
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        narrow = llvm.call_intrinsic(kind, name, [high, low], [], [])
    return arith.bitcast(emit.widen(emit.integer(16), emit.lanes_of(narrow)), narrow)


def _rounded(value: Any) -> Any:
    """The bits of float32 rounded to bfloat16, to nearest even."""
    lanes = emit.lanes_of(value)
    if lanes % PART:
        return convert.bfloat16_bits(value)
    parts = crosslane.parts(value, lanes // PART)
    bits = crosslane.joined([narrowed(*parts[at : at + 2]) for at in range(0, len(parts), 2)])
    if _loses.get():
        return bits
    some = vector.reduction(
        emit.integer(1), vector.CombiningKind.OR, reduce(operator.or_, map(_denormal, parts))
    )
    some = llvm.intr_expect(some, emit.constant(emit.integer(1), 0))
    return emit.either(some, [bits.type], lambda: [convert.bfloat16_bits(value)], lambda: [bits])[0]


def _denormal(part: Any) -> Any:
    """Which lanes of a register hold denormal numbers."""
    kind = emit.widen(emit.integer(1), PART)
    which = emit.constant(emit.integer(32), 0x20)
    return llvm.call_intrinsic(kind, "llvm.x86.avx512.fpclass.ps.512", [part, which], [], [])
