"""The planner on random programs: nothing alive overlaps, and little is wasted."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph.compiler.memory import Lifetime, plan
from heddle.graph.compiler.sizes import align, covers, evaluate, maximum, samples
from heddle.graph.dim import Dim

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
    total, *offsets = dims(layout.total, *layout.offsets)
    assert total == dims(large)[0]
    assert offsets == [0, *dims(small), *dims(("mul", rows, 4 * 768)), 0]


def test_a_value_lies_between_those_that_stay():
    """As in attention: products, each of them turned, while the others wait and are read later."""
    size = ("mul", ("mul", "batch", "sequence"), 1536)
    waiting = [Lifetime(size, 0, step) for step in (1, 2, 3)]
    turned = [Lifetime(size, step, 4) for step in (1, 2, 3)]
    large = Lifetime(("mul", size, 4), 6, 7)
    layout = plan([*waiting, *turned, large, Lifetime(size, 0, 5)], RANGES)
    assert Dim.from_expr(layout.total) == Dim.from_expr(("mul", size, 5))


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


def dims(*sizes):
    return [Dim.from_expr(size) for size in sizes]


def test_maximum_drops_what_is_covered():
    rows = ("mul", "batch", "sequence")
    small, large, batch, rounded = dims(
        ("mul", rows, 4), ("mul", 8, rows), ("mul", "batch", 128), align(("mul", "batch", 4))
    )
    assert maximum([small, large], RANGES) == large
    assert maximum([large, Dim("8*batch")], RANGES) == large
    assert maximum([large, small, rounded], RANGES) == Dim(f"max({large}, {rounded})")
    assert maximum([rounded, batch], RANGES) == batch
    assert maximum([rounded, Dim(64)], RANGES) == rounded
    assert not covers(large, Dim("16*batch"), {"batch": (1, 9), "sequence": (0, 9)})


def test_sums_cover_sums():
    """One term for each, or one for several of them."""
    large = Dim("4*batch*sequence + 8*batch + 64")
    assert covers(large, Dim("4*batch*sequence + 64"), RANGES)
    assert covers(large, Dim("12*batch"), RANGES)
    assert covers(large, Dim("2*sequence + 2*batch + 64"), RANGES)
    assert not covers(large, Dim("4*sequence + 12*batch"), {**RANGES, "sequence": (1, 2)})
    assert not covers(large, Dim("13*batch + 64"), RANGES)
    assert not covers(large, Dim("5*batch*sequence"), RANGES)
    assert not covers(*dims("batch", ("sub", "sequence", "batch")), RANGES)


def test_what_one_term_has_too_much_is_no_other_term():
    large, small = Dim("a*p + a*q"), Dim("5*a + 2*q")
    point = {"a": 1, "p": 8, "q": 100}
    assert large.evaluate(point) < small.evaluate(point)
    assert not covers(large, small, {"a": (1, 100), "p": (8, 100), "q": (2, 100)})


@given(st.lists(sizes, min_size=1, max_size=3), st.lists(sizes, min_size=1, max_size=3), points)
def test_what_covers_is_as_large(more, fewer, point):
    large, small = (sum(dims(*map(align, some)), Dim(0)) for some in (more, fewer))
    assert not covers(large, small, RANGES) or large.evaluate(point) >= small.evaluate(point)


@pytest.mark.parametrize("most", [10, 400])
def test_sizes_stay_short(most):
    """Of many values that nobody can tell the larger one of, all alive, and of their sums."""
    names = ["batch", "sequence", ("mul", "batch", "sequence"), ("add", "sequence", 1)]
    lives = [Lifetime(("mul", names[i % 4], 4), i, most + i % 9) for i in range(most)]
    lives += [Lifetime(4 * i, most + i, most + i + 5) for i in range(most)]
    layout = plan(lives, RANGES)
    assert len(str(Dim.from_expr(layout.total))) < 2000
    for point in samples(RANGES):
        live = max(
            sum(evaluate(align(v.size), point) for v in lives if v.first <= step <= v.last)
            for step in range(2 * most)
        )
        assert live <= evaluate(layout.total, point) <= 1.4 * live
