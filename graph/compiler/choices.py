"""Rules for `where`: what exporters write to draw a mask is one comparison in the end.

Each is exact: a number is computed by the op's own reference, as `fold_constants` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from heddle.graph.bounds import bounds
from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import source
from heddle.graph.dtype import DType
from heddle.graph.ops.row import ROWS
from heddle.graph.types import Shape


def of_numbers(operation: Any) -> Any:
    """An op of a choice of two numbers, and of other numbers: a choice of what it makes of them."""
    choices = [value for value in operation.operands if _is_choice(value)]
    if len(choices) != 1 or _is_float8(operation):
        return None
    (choice,) = choices
    result = m.tensor(operation.results[0])
    place = list(operation.operands).index(choice)
    numbers = [_number(value) for value in operation.operands]
    if any(n is None for i, n in enumerate(numbers) if i != place):
        return None
    condition, *sides = m.owner(source(choice)).operands  # type: ignore[union-attr]
    made = []
    for side in sides:
        arrays = [_number(side) if i == place else n for i, n in enumerate(numbers)]
        with np.errstate(all="ignore"):
            value = ROWS[m.name(operation)].reference(*arrays, **m.attrs(operation))
        made.append(m.number(operation, np.asarray(value).item(), result.dtype))
    return _spread(operation, m.create(operation, "where", [condition, *made]), result.shape)


def of_bools(operation: Any) -> Any:
    """A choice of true and false is its condition, or the opposite."""
    condition, first, second = operation.operands
    result = m.tensor(operation.results[0])
    if result.dtype is not DType.bool:
        return None
    match (m.splat(source(first)), m.splat(source(second))):
        case (1, 0):
            return _spread(operation, condition, result.shape)
        case (0, 1):
            negated = m.create(operation, "logical_not", [condition])
            return _spread(operation, negated, result.shape)
    return None


def of_opposite(operation: Any) -> Any:
    """A choice by the opposite of a condition has its sides exchanged."""
    condition, first, second = operation.operands
    above = m.owner(condition)
    if above is None or m.name(above) != "logical_not":
        return None
    return m.create(operation, "where", [above.operands[0], second, first])


def of_known(operation: Any) -> Any:
    """A choice by a condition that is the same everywhere."""
    condition, first, second = operation.operands
    known = m.splat(source(condition))
    if known is None:
        return None
    return _spread(operation, first if known else second, m.tensor(operation.results[0]).shape)


def never_less(operation: Any) -> Any:
    """Positions that count up from 0 or more are less than no number of 0 or less."""
    counted, number = operation.operands
    limit, above = m.splat(source(number)), m.owner(counted)
    while above is not None and m.name(above) in ("reshape", "broadcast_to"):
        above = m.owner(above.operands[0])
    if limit is None or limit > 0 or above is None or m.name(above) != "iota":
        return None
    start, step = map(m.splat, above.operands)
    attrs, ranges = m.attrs(above), m.ranges(counted)
    if start is None or step is None or step < 0 or m.tensor(counted).dtype is not DType.int64:
        return None
    first, end = attrs["first"], attrs["first"] + attrs["size"]
    if start + bounds(first, ranges)[0] < 0 or start + step * bounds(end, ranges)[1] > 2**63:
        return None  # The second one may wrap.
    false = m.number(operation, False, DType.bool)
    return _spread(operation, false, m.tensor(operation.results[0]).shape)


def _is_choice(value: Any) -> bool:
    """Whether `value` is one of two numbers everywhere."""
    above = m.owner(source(value))
    if above is None or m.name(above) != "where":
        return False
    return all(_number(side) is not None for side in above.operands[1:])


def _number(value: Any) -> Any:
    """The number that `value` is everywhere, as NumPy holds its dtype; None where it is none."""
    found, dtype = m.splat(source(value)), m.tensor(value).dtype
    return None if found is None else np.asarray(found, dtype.to_numpy())


def _is_float8(operation: Any) -> bool:
    """Whether bits of 8-bit floats take part, which NumPy does not compute with."""
    return any(m.tensor(v).dtype.is_float8 for v in (*operation.operands, *operation.results))


def _spread(operation: Any, value: Any, shape: Shape) -> Any:
    if m.tensor(value).shape == shape:
        return value
    return m.create(operation, "broadcast_to", [value], shape=shape)
