"""Structures of values: what instructions with several results return, and accumulators."""

from collections.abc import Callable

from emulator_memory import EmulatorError
from emulator_types import count_of, numbers


class Struct:
    """Values side by side; `parts` are None where nothing was inserted yet."""

    def __init__(self, parts: list) -> None:
        self.parts = parts

    def merge(self, choose: Callable, other: "Struct") -> "Struct":
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
        if struct.parts[position] is None:
            raise EmulatorError(f"extracts element {position}, which nobody inserted")
        return struct.parts[position]

    return run


OPS = {
    "llvm.mlir.undef": undefined,
    "llvm.mlir.poison": undefined,
    "llvm.insertvalue": insert_value,
    "llvm.extractvalue": extract_value,
}
