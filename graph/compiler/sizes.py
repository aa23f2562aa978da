"""Arithmetic on symbolic sizes: the nested tuples of `heddle.kernels.spec.Expr`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod

from heddle.graph.bounds import atom_bounds, bounds
from heddle.graph.dim import Dim
from heddle.kernels.spec import Expr, fold

ALIGNMENT = 64
"""Bytes: where each value in an arena starts."""

Ranges = Mapping[str, tuple[int, int]]
"""Each symbolic dim with its inclusive range."""


def substitute(size: Expr, rename: Callable[[str], Expr]) -> Expr:
    """`size` with `rename(name)` in place of each name."""
    if isinstance(size, str):
        return rename(size)
    if isinstance(size, tuple):
        return fold(size[0], substitute(size[1], rename), substitute(size[2], rename))
    return size


def evaluate(size: Expr, values: Mapping[str, int]) -> int:
    """The number that `size` is when its names have `values`."""
    result = substitute(size, lambda name: values[name])
    assert isinstance(result, int), result
    return result


def align(size: Expr) -> Expr:
    """`size` in bytes, rounded up to `ALIGNMENT`."""
    if factor(size) % ALIGNMENT == 0:
        return size
    return fold("mul", fold("ceildiv", size, ALIGNMENT), ALIGNMENT)


def factor(size: Expr) -> int:
    """A number that divides `size` whatever its names are; 0 for a size that is zero."""
    if isinstance(size, int):
        return size
    if isinstance(size, tuple) and size[0] == "mul":
        return factor(size[1]) * factor(size[2])
    return 1


def maximum(sizes: Iterable[Dim], ranges: Ranges) -> Dim:
    """The largest of `sizes`; those that another one covers for all `ranges` are left out."""
    kept: list[Dim] = []
    for size in dict.fromkeys(sizes):
        if any(covers(other, size, ranges) for other in kept):
            continue
        kept = [other for other in kept if not covers(size, other, ranges)] + [size]
    result = kept[0].expr
    for size in kept[1:]:
        result = fold("max", result, size.expr)
    return Dim.from_expr(result)


def furthest(ends: Iterable[Dim], ranges: Ranges) -> Dim | None:
    """The one that covers all others, or 0 where there are none; None where no one does."""
    best, others = Dim(0), list(dict.fromkeys(ends))
    for end in others:
        if covers(end, best, ranges):
            best = end
    return best if all(covers(best, end, ranges) for end in others) else None


def covers(large: Dim, small: Dim, ranges: Ranges) -> bool:
    """Whether `large >= small` is certain.

    It is where each term of `small` is made up for by one of `large`, a product of what it is and
    of more.
    """
    rest = large - small
    if bounds(rest, ranges)[0] >= 0:
        return True
    left = dict(_unaligned(rest).terms)
    least = {atom: atom_bounds(atom, ranges)[0] for key in left for atom in key}
    if any(number < 0 for number in least.values()):
        return False
    for key in [key for key, factor in left.items() if factor < 0]:
        missing = -left.pop(key)
        for other, factor in left.items():
            more = Counter(other)
            more.subtract(key)
            if factor <= 0 or any(count < 0 for count in more.values()):
                continue
            times = prod(least[atom] ** count for atom, count in more.items())
            used = min(factor, -(-missing // times)) if times else 0
            left[other], missing = factor - used, missing - used * times
            if missing <= 0:  # what is too much of one term is not another one's
                break
        else:
            return False
    return True


def _unaligned(size: Dim) -> Dim:
    """At most `size`, without what `align` has rounded up: that adds less than an alignment."""
    for key, factor in size.terms:
        match key:
            case (("floordiv", inner, by),) if by == ALIGNMENT and factor % ALIGNMENT == 0:
                parts = factor // ALIGNMENT
                least = inner - (ALIGNMENT - 1) if parts > 0 else inner
                size = size - (inner // by) * factor + least * parts
    return size


def samples(ranges: Ranges) -> list[dict[str, int]]:
    """A few points of `ranges` for weighing sizes: the corners on the diagonal, and each axis."""
    low = {name: pair[0] for name, pair in ranges.items()}
    high = {name: pair[1] for name, pair in ranges.items()}
    middle = {name: (pair[0] + pair[1] + 1) // 2 for name, pair in ranges.items()}
    return [high, middle, low, *({**low, name: high[name]} for name in ranges)]


def weigh(size: Dim, ranges: Ranges) -> int:
    """The bytes of `size` at all `samples`."""
    return sum(size.evaluate(point) for point in samples(ranges))
