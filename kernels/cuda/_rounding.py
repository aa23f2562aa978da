"""Rounding to 16 bits, of two numbers in an instruction (PTX ISA 9.0, "cvt", from sm_80 on)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from heddle.kernels import convert, crosslane, emit
from heddle.kernels.cuda import _float8
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Machine

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

_TYPES = {"float16": ir.F16Type, "bfloat16": ir.BF16Type}


@contextmanager
def conversions(machine: Machine) -> Iterator[None]:
    """What is emitted in it converts as well as the machine can."""
    with _float8.conversions(machine), convert.bfloat16_by(_rounded):
        yield


def packed(pair: Sequence[Any], dtype: str) -> Any:
    """Two numbers of float32, rounded to float16 or bfloat16, in a word of 32 bits."""
    return _word(vector.from_elements(emit.widen(ir.F32Type.get(), 2), list(pair)), dtype)


def _word(pair: Any, dtype: str) -> Any:
    narrow = arith.truncf(emit.widen(_TYPES[dtype].get(), 2), pair)
    return llvm.bitcast(emit.integer(32), narrow)


def _rounded(value: Any) -> Any:
    """The bits of float32 rounded to bfloat16."""
    lanes = emit.lanes_of(value)
    if lanes <= 2:
        narrow = arith.truncf(emit.widen(ir.BF16Type.get(), lanes), value)
        return emit.bitcast(narrow, emit.integer(16))
    words = [_word(pair, "bfloat16") for pair in crosslane.parts(value, lanes // 2)]
    whole = vector.from_elements(emit.widen(emit.integer(32), lanes // 2), words)
    return vector.bitcast(emit.widen(emit.integer(16), lanes), whole)
