"""What the scripts in `benchmarks/` measure; none of them is run."""

import os
import sys
from pathlib import Path

import pytest

from heddle.graph import DType
from heddle.pipelines.bench.machine import PER_CACHE, last_cache
from heddle.runtime import InferenceSession

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """Their modules are found, and are gone afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.fixture
def turns(scripts, monkeypatch):
    """The calls that take turns, in the order in which they are asked for."""
    import measure

    found = []

    def taking(calls):
        found.append(calls)
        return calls[0]

    monkeypatch.setattr(measure, "Turns", taking)
    monkeypatch.setattr(measure, "STREAMED", 100_000)
    return found


def test_calls_take_turns(scripts):
    import measure

    log = []
    call = measure.Turns([lambda: log.append("a"), lambda: log.append("b")])
    for _ in range(3):
        call()
    assert log == ["a", "b", "a"]
    assert PER_CACHE * last_cache(len(os.sched_getaffinity(0))) <= measure.STREAMED
    assert measure.sets(measure.STREAMED) == 1
    assert measure.sets(measure.STREAMED - 1) == 2


def test_all_buffers_are_read_before_a_turn(scripts, monkeypatch):
    import measure

    monkeypatch.setattr(measure, "rest", lambda: None)
    log = []
    call = measure.Turns([lambda name=name: log.append(name) for name in "abc"])
    times = measure.interleaved({"some": call, "one": lambda: log.append("-")}, 1, 2)
    assert "".join(log) == "abcab---"
    assert [len(seconds) for seconds in times.values()] == [2, 2]


def test_what_memory_bounds_comes_from_memory(turns):
    import bandwidth

    session = InferenceSession(threads=1)
    operation = bandwidth.OPERATIONS["add"]._replace(shape=(64, 32))
    calls, moved = bandwidth.prepared(session, operation, DType.float32, None, 1)
    assert (list(calls), moved) == (["heddle"], 3 * 64 * 32 * 4)
    (own,) = turns
    assert len(own) * moved >= 100_000
    assert len({id(array) for call in own for array in call.args}) == 2 * len(own)
    assert len({id(call.keywords["out"][0]) for call in own}) == len(own)


def test_copies_come_from_memory(turns, monkeypatch):
    import bandwidth

    monkeypatch.setattr(bandwidth, "ROWS", 16)
    monkeypatch.setattr(bandwidth, "COLUMNS", 192)
    _, moved = bandwidth.copies(InferenceSession(threads=1), 1)
    assert [len(calls) * moved >= 100_000 for calls in turns] == [True, True]


def test_what_is_read_for_comparison_fills_twice_the_last_cache(turns):
    import measure
    import skinny

    measure.STREAMED = 2 * skinny.READ + 1
    skinny.reading(InferenceSession(threads=1))
    assert [len(calls) for calls in turns] == [3]
