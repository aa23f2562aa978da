"""Structures of values: what instructions with several results return, and accumulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emulator.memory import EmulatorError
from emulator.types import count_of, numbers


class Pending:
    """A register that the matrix units are writing: nothing but they may look at it.

    `group` of `units` writes it; `value` is what it will hold.
    """

    def __init__(self, value: np.ndarray, units: Any, group: int) -> None:
        self.value, self.units, self.group = value, units, group

    def ready(self) -> bool:
        return self.units.waited >= self.group

    def __getattr__(self, name: str):
        raise EmulatorError("looks at an accumulator before wgmma.wait_group for its group")

    def __array_ufunc__(self, *_, **__):
        return self.dtype  # Which it does not have either.


class Struct:
    """Values side by side; `parts` are None where nothing was inserted yet."""

    def __init__(self, parts: list) -> None:
        self.parts = parts

    def merge(self, choose: Callable, other: Struct) -> Struct:
        return Struct([choose(a, b) for a, b in zip(self.parts, other.parts, strict=True)])


def undefined(op):
    count = count_of(op.results[0].type)
    return lambda: Struct([None] * count)


def insert_value(op):
    position = numbers(op, "position")[0]

    def run(struct, value):
        parts = list(struct.parts)
        parts[position] = value
        return Struct(parts)

    return run


def extract_value(op):
    position = numbers(op, "position")[0]

    def run(struct):
        part = struct.parts[position]
        if part is None:
            raise EmulatorError(f"extracts element {position}, which nobody inserted")
        return part.value if isinstance(part, Pending) and part.ready() else part

    return run


OPS = {
    "llvm.mlir.undef": undefined,
    "llvm.mlir.poison": undefined,
    "llvm.insertvalue": insert_value,
    "llvm.extractvalue": extract_value,
}
