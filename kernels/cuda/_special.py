"""Powers of two and reciprocals, each by one instruction of the units for special functions.

Their errors are 2^-22 and 2^-23 of the result, and what is no normal number is 0 (PTX ISA 9.0,
"ex2" and "rcp"): enough for what is rounded to 16 bits, where polynomials take longer than memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.functions import powers_of_two
from heddle.kernels.mlir import dialect

nvvm, vector = dialect("nvvm"), dialect("vector")


def exp2(x: Any) -> Any:
    """2^x of float32, in each lane."""
    return _each(lambda lane: nvvm.ex2(lane, ftz=True), x)


def reciprocal(x: Any) -> Any:
    """1 / x of float32, in each lane."""
    return _each(nvvm.rcp_approx_ftz_f, x)


def functions() -> AbstractContextManager[None]:
    """What is emitted in it has exponentials that are rounded to 16 bits by these instructions."""
    return powers_of_two.by(powers_of_two.Unit(exp2, reciprocal))


def _each(function: Callable[[Any], Any], x: Any) -> Any:
    if emit.lanes_of(x) == 1:
        return function(x)
    return vector.from_elements(x.type, [function(lane) for lane in _block.lanes(x)])
