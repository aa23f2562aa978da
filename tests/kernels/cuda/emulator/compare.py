"""Comparison and selection: PTX ISA 9.0, "Comparison and Selection Instructions" (setp, selp)."""

from collections.abc import Callable

import numpy as np

from emulator.types import number
from emulator.values import same, unsigned

COMPARE_INTEGER = [
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.less, np.less_equal, np.greater, np.greater_equal,
]  # fmt: skip
COMPARE_FLOAT = ["false", "eq", "gt", "ge", "lt", "le", "ne", "ord"]
COMPARE_FLOAT += ["ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"]
RELATION = {
    "eq": np.equal, "gt": np.greater, "ge": np.greater_equal,
    "lt": np.less, "le": np.less_equal, "ne": np.not_equal,
}  # fmt: skip


def compare_integer(op):
    predicate = number(op, "predicate")
    relation = COMPARE_INTEGER[predicate]
    if predicate >= 6:
        return lambda a, b: relation(unsigned(a), unsigned(b))
    return relation


def compare_float(op):
    return compare_floats(COMPARE_FLOAT[number(op, "predicate")])


def compare_floats(name: str) -> Callable:
    def run(a, b):
        disordered = np.isnan(a) | np.isnan(b)
        if name in ("ord", "uno"):
            return disordered if name == "uno" else ~disordered
        holds = RELATION[name[-2:]](a, b)
        return holds | disordered if name.startswith("u") else holds & ~disordered

    return run


def select(condition, a, b):
    extra = max(a.ndim, b.ndim) - condition.ndim
    return np.where(condition.reshape(condition.shape + (1,) * extra), a, b)


OPS: dict[str, Callable] = {
    "arith.cmpi": compare_integer,
    "arith.cmpf": compare_float,
    "arith.select": same(select),
}
