"""What the function of a kernel is given, on every target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import sizes
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec


@dataclass(frozen=True)
class Arguments:
    """What is computed, for which machine, and where its operands are.

    Attributes:
        spec, machine: What the function is emitted for.
        dims: The sizes that are known at run time alone, by name.
        inputs, outputs: Pointers to those of `Spec.inputs` and `Spec.written`.
        workspace, counters, status: Pointers, each None where the kernel takes none.
    """

    spec: Spec
    machine: Machine
    dims: dict[str, Any]
    inputs: list[Any]
    outputs: list[Any]
    workspace: Any
    counters: Any
    status: Any

    def size(self, expr: Expr) -> Size:
        """The value of a size: an int where it is static."""
        return sizes.evaluate(expr, self.dims)

    def shape(self, shape: Sequence[Expr]) -> tuple[Size, ...]:
        """The values of a shape."""
        return tuple(self.size(expr) for expr in shape)
