"""Intervals of a median, and tests of whether two sets of times differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import chain, groupby
from statistics import median

CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median of `values` and its 95% confidence interval, from order statistics.

    It assumes no distribution (David and Nagaraja, Order Statistics, section 7.1). Fewer than six
    values have no such interval; theirs is from the least to the greatest.
    """
    ordered = sorted(values)
    rank = max(_rank(len(ordered)), 1)
    return median(ordered), ordered[rank - 1], ordered[-rank]


@cache
def _rank(count: int) -> int:
    """The greatest k with P(fewer than k of `count` values are below the median) <= 2.5%."""
    tail, rank = 0.0, 0
    for below in range(count // 2):
        ways = math.lgamma(count + 1) - math.lgamma(below + 1) - math.lgamma(count - below + 1)
        tail += math.exp(ways - count * math.log(2))
        if tail > (1 - CONFIDENCE) / 2:
            break
        rank = below + 1
    return rank


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not exceed (the nearest rank)."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """The two-sided p of the hypothesis that neither of `a` and `b` tends to be larger.

    By the normal approximation with corrections for ties and continuity (Mann and Whitney, 1947),
    which wants about eight values on each side.
    """
    pooled = sorted(chain(((value, 0) for value in a), ((value, 1) for value in b)))
    rank_sum, ties, place = 0.0, 0, 0
    for _, group in groupby(pooled, key=lambda pair: pair[0]):
        sides = [side for _, side in group]
        rank_sum += sides.count(0) * (place + (len(sides) + 1) / 2)
        ties += len(sides) ** 3 - len(sides)
        place += len(sides)
    n, m = len(a), len(b)
    total = n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance == 0:
        return 1.0
    away = abs(rank_sum - n * (n + 1) / 2 - n * m / 2)
    return math.erfc(max(away - 0.5, 0) / math.sqrt(2 * variance))


def holm(ps: Sequence[float]) -> list[float]:
    """`ps` adjusted for their number (Holm, 1979): compare each with the level of all together."""
    adjusted, greatest = [0.0] * len(ps), 0.0
    for order, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        greatest = max(greatest, min(1.0, (len(ps) - order) * ps[index]))
        adjusted[index] = greatest
    return adjusted
