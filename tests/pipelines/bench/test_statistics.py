"""Intervals and tests of the bench, against values from tables and against simulation."""

import math

import numpy as np
import pytest

from heddle.pipelines.bench.statistics import holm, mann_whitney, median_interval, percentile


@pytest.mark.parametrize(
    ("count", "rank"),
    # The ranks of the sign test's 95% interval, from tables of the binomial distribution.
    [(6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10), (50, 18), (100, 40)],
)
def test_ranks_of_the_interval(count, rank):
    values = list(range(1, count + 1))
    assert median_interval(values) == ((count + 1) / 2, rank, count + 1 - rank)


def test_few_values_have_no_interval_but_their_range():
    assert median_interval([3, 1, 2]) == (2, 1, 3)
    assert median_interval([7.0]) == (7, 7, 7)


def test_the_interval_covers_the_median_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        _, low, high = median_interval(rng.exponential(size=31).tolist())
        hits += low <= math.log(2) <= high
    assert 0.935 <= hits / 1000 <= 0.995


def test_percentile():
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([4, 2], 0.95) == 4
    assert percentile([4], 0.05) == 4


def test_mann_whitney_agrees_with_a_worked_example():
    # Siegel and Castellan's form of the normal approximation: U = 1, mean 12.5, deviation 4.787.
    a, b = [1, 2, 3, 4, 6], [5, 7, 8, 9, 10]
    assert mann_whitney(a, b) == pytest.approx(math.erfc((11.5 - 0.5) / 4.787136 / math.sqrt(2)))


def test_mann_whitney_with_ties():
    assert mann_whitney([1, 1, 1], [1, 1, 1]) == 1
    # Ranks 2, 2, 2, 4 | 5.5, 5.5, 7, 8 with ties of 3 and 2.
    a, b = [1, 1, 1, 2], [3, 3, 4, 5]
    variance = 16 / 12 * (9 - (24 + 6) / 56)
    assert mann_whitney(a, b) == pytest.approx(math.erfc(7.5 / math.sqrt(2 * variance)))


def test_mann_whitney_is_symmetric_and_uniform_under_the_null():
    rng = np.random.default_rng(2)
    ps = []
    for _ in range(500):
        a, b = rng.standard_normal(20).tolist(), rng.standard_normal(25).tolist()
        ps.append(mann_whitney(a, b))
        assert ps[-1] == pytest.approx(mann_whitney(b, a))
    assert 0.02 <= np.mean(np.array(ps) < 0.05) <= 0.08


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []
