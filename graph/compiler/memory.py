"""Static memory planning over symbolic sizes.

Values that are never alive together share a slot, and several small ones lie in a slot side by side
while its large one is not alive. A slot is as large as what reaches furthest in it, which for
symbolic sizes is a `max` expression, and slots follow one another. Values are placed largest first,
each into the slot that grows least: after "greedy by size" of Pisarchyk and Lee, Efficient Memory
Management for Deep Neural Net Inference (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.graph.compiler.sizes import Ranges, align, evaluate, maximum, plus, samples
from heddle.kernels.spec import Expr


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
    ends: dict[int, Expr] = field(default_factory=dict)  # by member: where in the slot it ends
    starts: dict[int, Expr] = field(default_factory=dict)
    weights: tuple[int, ...] = ()


def plan(values: Sequence[Lifetime], ranges: Ranges) -> Layout:
    """Places `values`: those alive at one step never overlap, for any sizes in `ranges`."""
    points = samples(ranges)

    def weigh(size: Expr) -> tuple[int, ...]:
        return tuple(evaluate(size, point) for point in points)

    def start_in(slot: _Slot, number: int) -> Expr:
        """Behind all that is alive together with the value."""
        ends = [end for m, end in slot.ends.items() if _meet(values[number], values[m])]
        return maximum(ends, ranges) if ends else 0

    sizes = [align(value.size) for value in values]
    weights = [weigh(size) for size in sizes]
    slots: list[_Slot] = []
    for number in sorted(range(len(values)), key=lambda i: (weights[i], -i), reverse=True):
        starts = [start_in(slot, number) for slot in slots]
        ends = [plus(start, sizes[number]) for start in starts]
        misfits = [_misfit(slot.weights, weigh(end)) for slot, end in zip(slots, ends, strict=True)]
        best = min(range(len(slots)), key=misfits.__getitem__, default=None)
        if best is None or misfits[best][0] >= sum(weights[number]) > 0:
            slots.append(_Slot())
            starts, ends, best = [*starts, 0], [*ends, sizes[number]], len(slots) - 1
        slot = slots[best]
        slot.starts[number], slot.ends[number] = starts[best], ends[best]
        slot.weights = tuple(map(max, slot.weights or weights[number], weigh(ends[best])))
    offsets: list[Expr] = [0] * len(values)
    total: Expr = 0
    for slot in slots:
        for member, start in slot.starts.items():
            offsets[member] = plus(total, start)
        total = plus(total, maximum([slot.ends[member] for member in sorted(slot.ends)], ranges))
    return Layout(tuple(offsets), total)


def _meet(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


def _misfit(slot: tuple[int, ...], end: tuple[int, ...]) -> tuple[int, int]:
    """Bytes that the slot would grow, then bytes that would lie idle, over the sampled sizes."""
    growth = sum(max(0, e - s) for s, e in zip(slot, end, strict=True))
    return growth, sum(max(0, s - e) for s, e in zip(slot, end, strict=True))
