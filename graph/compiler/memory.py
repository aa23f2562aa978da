"""Static memory planning over symbolic sizes.

Values that are never alive together share a slot. A slot is as large as the largest of its values,
which for symbolic sizes is a `max` expression, and slots follow one another. Values are placed
largest first, each into the slot where it wastes least: "greedy by size for shared objects" of
Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.graph.compiler.sizes import Ranges, align, evaluate, maximum, samples
from heddle.kernels.spec import Expr, fold


@dataclass(frozen=True)
class Lifetime:
    """A value of `size` bytes that must be kept from step `first` to step `last`, both included."""

    size: Expr
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """Where each value starts, in bytes, and how many bytes there are in all."""

    offsets: tuple[Expr, ...]
    total: Expr


@dataclass
class _Slot:
    members: list[int] = field(default_factory=list)
    weights: tuple[int, ...] = ()


def plan(values: Sequence[Lifetime], ranges: Ranges) -> Layout:
    """Places `values`: those alive at one step never overlap, for any sizes in `ranges`."""
    points = samples(ranges)
    weights = [tuple(evaluate(align(v.size), point) for point in points) for v in values]
    slots: list[_Slot] = []
    for number in sorted(range(len(values)), key=lambda i: (weights[i], -i), reverse=True):
        free = [s for s in slots if not any(_meet(values[number], values[m]) for m in s.members)]
        if free:
            slot = min(free, key=lambda s: _misfit(s.weights, weights[number]))
        else:
            slots.append(slot := _Slot())
        slot.members.append(number)
        slot.weights = tuple(map(max, slot.weights or weights[number], weights[number]))
    offsets: list[Expr] = [0] * len(values)
    total: Expr = 0
    for slot in slots:
        for member in slot.members:
            offsets[member] = total
        size = maximum([align(values[member].size) for member in sorted(slot.members)], ranges)
        total = fold("add", total, size)
    return Layout(tuple(offsets), total)


def _meet(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


def _misfit(slot: tuple[int, ...], value: tuple[int, ...]) -> tuple[int, int]:
    """Bytes that the slot would grow, then bytes that would lie idle, over the sampled sizes."""
    growth = sum(max(0, v - s) for s, v in zip(slot, value, strict=True))
    return growth, sum(max(0, s - v) for s, v in zip(slot, value, strict=True))
