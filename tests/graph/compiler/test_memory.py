"""The planner on random programs: nothing alive overlaps, and little is wasted."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph.compiler.memory import Lifetime, plan
from heddle.graph.compiler.sizes import align, covers, evaluate, maximum, plus, samples

RANGES = {"batch": (1, 64), "sequence": (1, 512)}

factors = st.sampled_from([4, 8, 64, 384 * 4, 1536 * 4])
sizes = st.one_of(
    st.integers(1, 5000),
    st.builds(lambda n: ("mul", "batch", n), factors),
    st.builds(lambda n: ("mul", ("mul", "batch", "sequence"), n), factors),
    st.builds(lambda n: ("mul", ("add", "sequence", 1), n), factors),
)


@st.composite
def programs(draw):
    lives = []
    for first in range(draw(st.integers(1, 14))):
        lives.append(Lifetime(draw(sizes), first, first + draw(st.integers(1, 4))))
    return lives


points = st.fixed_dictionaries({n: st.integers(*pair) for n, pair in RANGES.items()})


@settings(max_examples=150, deadline=None)
@given(programs(), points)
def test_values_alive_at_one_step_never_overlap(lives, point):
    layout = plan(lives, RANGES)
    total = evaluate(layout.total, point)
    spans = []
    for life, offset in zip(lives, layout.offsets, strict=True):
        start = evaluate(offset, point)
        end = start + evaluate(life.size, point)
        assert start % 64 == 0
        assert end <= total
        spans.append((life, start, end))
    for (a, a0, a1), (b, b0, b1) in itertools.combinations(spans, 2):
        together = a.first <= b.last and b.first <= a.last
        assert not together or a1 <= b0 or b1 <= a0
    assert total <= sum(evaluate(align(life.size), point) for life in lives)


def test_a_deep_chain_needs_the_two_largest_neighbours_only():
    """A transformer's chain: values of three widths, each read by the next step alone."""
    widths = [384, 1152, 384, 1536, 384] * 6
    lives = [
        Lifetime(("mul", ("mul", "batch", "sequence"), 4 * width), step, step + 1)
        for step, width in enumerate(widths)
    ]
    layout = plan(lives, RANGES)
    for point in samples(RANGES):
        live = max(
            sum(evaluate(v.size, point) for v in lives if v.first <= step <= v.last)
            for step in range(len(lives))
        )
        everything = sum(evaluate(v.size, point) for v in lives)
        planned = evaluate(layout.total, point)
        assert live <= planned <= 1.25 * live
        assert planned < 0.2 * everything


def test_small_values_lie_side_by_side_where_a_large_one_was():
    rows = ("mul", "batch", "sequence")
    small, large = ("mul", rows, 4 * 384), ("mul", rows, 4 * 1536)
    lives = [Lifetime(small, 0, 2), Lifetime(small, 1, 2), Lifetime(small, 2, 3)]
    layout = plan([*lives, Lifetime(large, 4, 5)], RANGES)
    assert layout.total == large
    assert layout.offsets == (0, small, ("mul", rows, 4 * 768), 0)


def test_sums_of_alike_sizes_are_one_product():
    rows = ("mul", "batch", "sequence")
    assert plus(("mul", rows, 4), ("mul", 8, rows)) == ("mul", rows, 12)
    assert plus(rows, "batch") == ("add", rows, "batch")
    assert plus(0, rows) == rows
    assert plus(64, 128) == 192


def test_no_values_need_no_memory():
    assert plan([], RANGES).total == 0


@pytest.mark.parametrize(
    ("size", "aligned"),
    [(1, 64), (64, 64), ("batch", ("mul", ("ceildiv", "batch", 64), 64))],
)
def test_align(size, aligned):
    assert align(size) == aligned


def test_align_leaves_multiples_alone():
    size = ("mul", ("mul", "batch", 384), 4)
    assert align(size) is size


def test_maximum_drops_what_is_covered():
    rows = ("mul", "batch", "sequence")
    small, large = ("mul", rows, 4), ("mul", 8, rows)
    assert maximum([small, large], RANGES) == large
    assert maximum([large, ("mul", "batch", 8)], RANGES) == large
    assert maximum([large, small, align(("mul", "batch", 4))], RANGES) == (
        "max",
        large,
        align(("mul", "batch", 4)),
    )
    assert maximum([align(("mul", "batch", 4)), ("mul", "batch", 128)], RANGES) == (
        "mul",
        "batch",
        128,
    )
    assert not covers(large, ("mul", "batch", 16), {"batch": (1, 9), "sequence": (0, 9)})
