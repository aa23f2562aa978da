"""How forms are read: what makes a value, which numbers are in it, what it is a product of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import source
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.types import Shape

TOLERANCE = {
    DType.bfloat16: 2**-8,
    DType.float16: 2**-11,
    DType.float32: 1e-6,
    DType.float64: 1e-12,
}
"""How far a number may be off, relative to it: rounding, and the digits that people write."""

MOST_PRODUCTS = 8
"""How deep factors of factors are looked for."""


@dataclass(frozen=True)
class Found:
    """An op that a form stands for: what it reads, and how to make its result."""

    leaves: tuple[Any, ...]
    make: Callable[[], Any]


Form = Callable[[Any, str], "Found | None"]
"""Looks at what an op computes, for a kind of target."""


def made(value: Any, *names: str) -> Any | None:
    """The op that makes `value`, broadcasts seen through, if it is one of `names`."""
    operation = m.owner(source(value))
    return operation if operation is not None and m.name(operation) in names else None


def bare(value: Any) -> Any:
    """`value` before broadcasts, and before it got axes of one element in front."""
    value = source(value)
    while m.owner_name(value) == "reshape":
        inner = m.owner(value).operands[0]  # type: ignore[union-attr]
        shape, before = m.tensor(value).shape, m.tensor(inner).shape
        more = len(shape) - len(before)
        if more <= 0 or shape != (*[1] * more, *before):
            break
        value = source(inner)
    return value


def unwidened(value: Any, dtype: DType) -> Any:
    """`value` before it was cast from `dtype`."""
    widened = made(value, "cast")
    if widened is not None and m.tensor(widened.operands[0]).dtype is dtype:
        return widened.operands[0]
    return value


def number(value: Any) -> float | None:
    """The number that all elements of `value` are, None where they are not known to be one.

    Of float32 it is the shortest that is rounded to it, as a person has written it.
    """
    found = m.splat(source(value))
    if found is None:
        return None
    is_single = m.tensor(value).dtype is DType.float32
    return float(str(np.float32(found))) if is_single else float(found)


def close(found: float | None, wanted: float, dtype: DType) -> bool:
    """Whether `found` is `wanted` as `dtype` has it."""
    return found is not None and abs(found - wanted) <= TOLERANCE.get(dtype, 0.0) * abs(wanted)


def orders(operation: Any) -> Iterator[tuple[Any, Any]]:
    """Both orders of the operands of an op that has two and does not mind."""
    first, second = operation.operands
    yield first, second
    yield second, first


def last_axis(operation: Any) -> bool:
    """Whether an op with an axis runs along the last one."""
    return bool(m.attrs(operation)["axis"] == m.tensor(operation.operands[0]).rank - 1)


@dataclass(frozen=True)
class Product:
    """`number * above[0] * above[1] ... / below[0] / below[1] ...`."""

    number: float = 1.0
    above: tuple[Any, ...] = ()
    below: tuple[Any, ...] = ()

    def __mul__(self, other: Product) -> Product:
        above, below = self.above + other.above, self.below + other.below
        return Product(self.number * other.number, above, below)

    def __truediv__(self, other: Product) -> Product:
        above, below = self.above + other.below, self.below + other.above
        return Product(self.number / other.number, above, below)


def product(value: Any, most: int = MOST_PRODUCTS) -> Product:
    """What `value` is a product of: factors that only it reads are taken apart in turn."""
    operation = m.owner(value)
    name = m.name(operation) if operation is not None else ""
    known = number(value)
    if known is not None:
        return Product(known)
    if name not in ("mul", "div", "neg", "pow") or most <= 1:
        return Product(above=(value,))
    factors = [_factor(operand, most - 1) for operand in operation.operands]  # type: ignore[union-attr]
    if name == "mul":
        return factors[0] * factors[1]
    if name == "neg":
        return factors[0] * Product(-1.0)
    if name == "div":
        return factors[0] / factors[1] if factors[1].number else Product(above=(value,))
    power = number(operation.operands[1])  # type: ignore[union-attr]
    if power not in (2, 3):
        return Product(above=(value,))
    square = factors[0] * factors[0]
    return square if power == 2 else square * factors[0]


def _factor(value: Any, most: int) -> Product:
    if number(value) is None and m.only_user(value) is None:
        return Product(above=(value,))
    return product(value, most)


def scaled(value: Any) -> tuple[Any, float]:
    """`value`, if one op alone reads it, as another one of its shape, times a number."""
    found = product(value, 2)
    if (
        m.only_user(value) is None
        or len(found.above) != 1
        or found.below
        or found.above[0].type != value.type
    ):
        return value, 1.0
    return found.above[0], found.number


def without(values: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
    """`values` without the first that is `value`; None where none is."""
    if value not in values:
        return None
    place = values.index(value)
    return values[:place] + values[place + 1 :]


def filled(like: Any, value: float, dtype: DType, size: Dim) -> Any:
    """A new tensor before `like` of `size` elements that are `value`."""
    number = m.number(like, value, dtype)
    return m.create(like, "broadcast_to", [number], shape=Shape((size,)))


def vector(value: Any, size: Dim) -> Any | None:
    """The tensor behind `value`, if it has `size` elements along the last axis and no others."""
    value = source(value)
    shape = m.tensor(value).shape
    alone = len(shape) > 0 and shape[-1] == size and all(dim == 1 for dim in shape[:-1])
    return value if alone else None


def flat(like: Any, value: Any) -> Any:
    """A `vector` with one axis, before `like`."""
    shape = m.tensor(value).shape
    return value if len(shape) == 1 else m.create(like, "reshape", [value], shape=Shape(shape[-1:]))


def closed(operation: Any, leaves: tuple[Any, ...]) -> bool:
    """Whether nobody else reads what lies between `leaves` and the result of `operation`."""
    inside: dict[Any, Any] = {}
    waiting = list(operation.operands)
    while waiting:
        value = waiting.pop()
        above = m.owner(value)
        if value in leaves or value in inside or above is None or number(value) is not None:
            continue
        if m.name(above) != "broadcast_to":
            inside[value] = above
        waiting += above.operands
    results = {*inside, m.result(operation)}
    return all(_readers(value) <= results for value in inside)


def _readers(value: Any) -> set[Any]:
    """The results of those who read `value`, itself or broadcast."""
    found: set[Any] = set()
    for user in m.users(value):
        result = m.result(user)
        found |= _readers(result) if m.name(user) == "broadcast_to" else {result}
    return found
