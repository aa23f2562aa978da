"""Arithmetic on symbolic sizes: the nested tuples of `heddle.kernels.spec.Expr`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from heddle.kernels.spec import Expr, fold, product

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


def monomial(size: Expr) -> tuple[int, Counter[Expr]]:
    """`size` as a number times a bag of factors that are not numbers."""
    if isinstance(size, int):
        return size, Counter()
    if isinstance(size, tuple) and size[0] == "mul":
        (a, left), (b, right) = monomial(size[1]), monomial(size[2])
        return a * b, left + right
    return 1, Counter([size])


def plus(a: Expr, b: Expr) -> Expr:
    """`a + b`, as one product where both are numbers times the same."""
    (m, factors), (n, others) = monomial(a), monomial(b)
    if factors != others or not factors:
        return fold("add", a, b)
    return fold("mul", product(tuple(factors.elements())), m + n)


def maximum(sizes: Iterable[Expr], ranges: Ranges) -> Expr:
    """The largest of `sizes`; those that another one covers for all `ranges` are left out."""
    kept: list[Expr] = []
    for size in sizes:
        if any(covers(other, size, ranges) for other in kept):
            continue
        kept = [other for other in kept if not covers(size, other, ranges)] + [size]
    result = kept[0]
    for size in kept[1:]:
        result = fold("max", result, size)
    return result


def covers(large: Expr, small: Expr, ranges: Ranges) -> bool:
    """Whether `large >= small` is certain: `large` is a product of what `small` is, and more."""
    (a, factors), (b, fewer) = monomial(large), monomial(_unaligned(small))
    if fewer - factors:
        return False
    for item, count in (factors - fewer).items():
        a *= _least(item, ranges) ** count
    if small == _unaligned(small):
        return a >= b
    # Rounding up adds less than one alignment, and a factor that is 1 or more can only widen b.
    return a >= b + ALIGNMENT - 1 and all(_least(item, ranges) >= 1 for item in fewer)


def _least(item: Expr, ranges: Ranges) -> int:
    return ranges[item][0] if isinstance(item, str) else 0


def _unaligned(size: Expr) -> Expr:
    """What `align` has rounded up; else `size` itself."""
    match size:
        case ("mul", ("ceildiv", inner, 64), 64):
            return inner  # type: ignore[no-any-return]
    return size


def samples(ranges: Ranges) -> list[dict[str, int]]:
    """A few points of `ranges` for weighing sizes: the corners on the diagonal, and each axis."""
    low = {name: pair[0] for name, pair in ranges.items()}
    high = {name: pair[1] for name, pair in ranges.items()}
    middle = {name: (pair[0] + pair[1] + 1) // 2 for name, pair in ranges.items()}
    return [high, middle, low, *({**low, name: high[name]} for name in ranges)]
