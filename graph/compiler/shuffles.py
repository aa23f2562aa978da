"""Reshapes that split axes or merge them, and what they mean to the permutations around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from heddle.graph.compiler import module as m
from heddle.graph.dim import Dim
from heddle.graph.types import Shape

T = TypeVar("T")

Parts = tuple[tuple[int, ...], ...]
"""For each axis, the numbers of the finer axes that it consists of."""

FEW = 16
"""Elements: a transpose is slow where lines of the operand or of the result have fewer."""


@dataclass(frozen=True)
class Regrouping:
    """A reshape that splits some axes and merges others.

    `sizes` are those of the finer axes, of which those before it and those after it consist.
    """

    sizes: Shape
    before: Parts
    after: Parts

    @classmethod
    def of(cls, before: Shape, after: Shape) -> Regrouping | None:
        """From one shape to the other; None where some axes are neither split nor merged."""
        sizes: list[Dim] = []
        parts: tuple[list[tuple[int, ...]], ...] = ([], [])
        i = j = 0
        while i < len(before) and j < len(after):
            split, merged = _end(after, j, before[i]), _end(before, i, after[j])
            if split is not None:
                fine, ends = after[j:split], (i + 1, split)
            elif merged is not None:
                fine, ends = before[i:merged], (merged, j + 1)
            else:
                return None
            numbers = tuple(range(len(sizes), len(sizes) + len(fine)))
            for own, count in zip(parts, (ends[0] - i, ends[1] - j), strict=True):
                own += [numbers] if count == 1 else [(number,) for number in numbers]
            sizes += fine
            i, j = ends
        whole = (i, j) == (len(before), len(after))
        return cls(Shape(sizes), tuple(parts[0]), tuple(parts[1])) if whole else None


def _end(sizes: Sequence[Dim], start: int, wanted: Dim) -> int | None:
    """Where the fewest axes from `start` on end, one at least, that are `wanted` together."""
    product = Dim(1)
    for number in range(start, len(sizes)):
        product = product * sizes[number]
        if product == wanted:
            return number + 1
    return None


@dataclass(frozen=True)
class Shuffle:
    """Axes of `x` split, the parts permuted, and merged again, as channels are shuffled.

    `sizes` are those of the parts, `split[i]` the numbers of those of axis i of x, and `merged[i]`
    those of axis i of the result.
    """

    x: Any
    sizes: Shape
    split: Parts
    merged: Parts

    @classmethod
    def ending_in(cls, operation: Any) -> Shuffle | None:
        """The one whose last op this reshape is, if nothing else reads what is in between."""
        turned = _alone_before(operation, "reshape", "transpose")
        inner = _alone_before(turned, "transpose", "reshape") if turned else None
        if turned is None or inner is None:
            return None
        x, split, merged = inner.operands[0], _regrouping(inner), _regrouping(operation)
        if split is None or merged is None:
            return None
        finest = m.tensor(inner.results[0]).shape, m.tensor(turned.results[0]).shape
        if finest != (split.sizes, merged.sizes):
            return None
        order = m.attrs(turned)["permutation"]
        after = tuple(tuple(order[part] for part in run) for run in merged.after)
        return cls(x, split.sizes, split.before, after)

    def permuted(self, like: Any, x: Any, order: Sequence[int], result: Sequence[int]) -> Any:
        """The same of an `x` that is that of this before the permutation `order`.

        By ops before `like`, the last of this; what that gives is the value's permutation `result`.
        """
        split, merged = _unmoved(self.split, order), _unmoved(self.merged, result)
        shape = Shape(_unmoved(m.tensor(like.results[0]).shape, result))
        return _shuffled(like, x, split, self.sizes, _flat(merged), shape)


def begun_by(operation: Any) -> Any | None:
    """The last op of the shuffle that begins with this reshape; None where there is none."""
    found = operation
    for name in ("reshape", "transpose"):
        following = m.only_user(found.results[0]) if m.name(found) == name else None
        if following is None:
            return None
        found = following
    return found if Shuffle.ending_in(found) else None


def read_last(reshape: Any) -> bool:
    """Whether axis 1 of what this reshape reads comes last in the transpose that alone reads it."""
    if m.name(reshape) != "reshape":
        return False
    found, turned = _regrouping(reshape), m.only_user(reshape.results[0])
    if found is None or turned is None or m.name(turned) != "transpose":
        return False
    channels = found.before[1]
    return tuple(_moved(found.after, turned)[-len(channels) :]) == channels


def made_last(operation: Any, to_front: Sequence[int]) -> Any | None:
    """What this reshape of a transpose gives before a permutation, which moves its last axis.

    None where that is not the last one of what is transposed, or something else reads that.
    """
    first = _alone_before(operation, "reshape", "transpose")
    found = _regrouping(operation) if first is not None else None
    if first is None or found is None:
        return None
    (x,), order = first.operands, m.attrs(first)["permutation"]
    split, merged = _unmoved(found.before, order), _unmoved(found.after, to_front)
    if tuple(_flat(split)[-len(merged[-1]) :]) != merged[-1]:
        return None
    shape = Shape(_unmoved(m.tensor(operation.results[0]).shape, to_front))
    return _shuffled(operation, x, split, found.sizes, _flat(merged), shape)


def one_transpose(operation: Any) -> Any | None:
    """The result of a transpose of a reshape of a transpose, by one of them or none.

    None where it is not so, where something else reads what is in between and would not be spared,
    or where lines of a few elements would be turned: turning twice is faster.
    """
    reshape = m.owner(operation.operands[0]) if m.name(operation) == "transpose" else None
    if reshape is None or m.name(reshape) != "reshape":
        return None
    first, found = m.owner(reshape.operands[0]), _regrouping(reshape)
    if first is None or m.name(first) != "transpose" or found is None:
        return None
    (x,), order = first.operands, m.attrs(first)["permutation"]
    split, moved = _unmoved(found.before, order), _moved(found.after, operation)
    places = _flat(split)
    alone = all(m.only_user(each.results[0]) is not None for each in (first, reshape))
    few = _is_short(moved, places, found.sizes) or _is_short(places, moved, found.sizes)
    if moved != places and (few or not alone):
        return None
    shape = m.tensor(operation.results[0]).shape
    return _shuffled(operation, x, split, found.sizes, moved, shape)


def _is_short(order: Sequence[int], other: Sequence[int], sizes: Shape) -> bool:
    """Whether the last axes of an order that are neighbours in the other too have few elements."""
    first = len(order) - 1
    while first > 0 and other.index(order[first - 1]) == other.index(order[first]) - 1:
        first -= 1
    count = Shape(sizes[part] for part in order[max(first, 0) :]).elements.static
    return count is not None and count < FEW


def _shuffled(
    like: Any,
    x: Any,
    split: Sequence[Sequence[int]],
    sizes: Shape,
    moved: Sequence[int],
    shape: Shape,
) -> Any:
    """`x` with its axes `split` into parts of some `sizes`, these in another order, as `shape`."""
    places = _flat(split)
    value = m.create(like, "reshape", [x], shape=Shape(sizes[part] for part in places))
    value = m.create(like, "transpose", [value], permutation=tuple(map(places.index, moved)))
    return m.create(like, "reshape", [value], shape=shape)


def _unmoved(axes: Sequence[T], order: Sequence[int]) -> list[T]:
    """What belongs to each axis, before a permutation by `order`."""
    return [axes[order.index(axis)] for axis in range(len(order))]


def _moved(axes: Parts, transpose: Any) -> list[int]:
    """The parts of all axes behind a transpose of these."""
    return _flat([axes[axis] for axis in m.attrs(transpose)["permutation"]])


def _flat(runs: Sequence[Sequence[int]]) -> list[int]:
    return [part for run in runs for part in run]


def _regrouping(reshape: Any) -> Regrouping | None:
    before, after = (m.tensor(value).shape for value in (reshape.operands[0], reshape.results[0]))
    return Regrouping.of(before, after)


def _alone_before(operation: Any, name: str, above: str) -> Any | None:
    """The op called `above` that this one, called `name`, reads, if nothing else reads it."""
    if m.name(operation) != name:
        return None
    (value,) = operation.operands
    alone = m.owner_name(value) == above and m.only_user(value) is not None
    return m.owner(value) if alone else None
