"""How candidates are timed: turns, rotation, when it stops. The clock is the test's own."""

import gc
from dataclasses import replace

import pytest

from heddle.pipelines.bench import machine, measure


class Clock:
    """Time that only passes where a call or a pause says so."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(measure.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(measure.time, "sleep", clock.sleep)
    monkeypatch.setattr(measure, "Others", lambda: type("Idle", (), {"share": lambda self: 0.25})())
    return clock


def candidate(clock, log, name, times, sets=1):
    """Calls that take the next of `times` (the last one from then on) and write to `log`."""
    rest = list(times)

    def call(number):
        clock.now += rest.pop(0) if len(rest) > 1 else rest[0]
        log.append((name, number))

    return [lambda number=number: call(number) for number in range(sets)]


def test_times_and_when_it_stops(clock):
    (timing,) = measure.interleaved([candidate(clock, [], "a", [0.002])], 10, False)
    assert timing.interval == pytest.approx((0.002, 0.002, 0.002))
    assert timing.settled
    assert len(timing.turns) == measure.LEAST_TURNS
    assert timing.calls == 1
    assert timing.p95 == pytest.approx(0.002)
    assert timing.others == 0.25
    assert clock.pauses == []


def test_short_calls_are_timed_together(clock):
    (timing,) = measure.interleaved([candidate(clock, [], "a", [1e-6])], 10, False)
    assert timing.calls * 1e-6 == pytest.approx(measure.SAMPLE_S, rel=0.02)
    assert timing.interval[0] == pytest.approx(1e-6)


def test_the_first_call_of_each_set_does_not_count(clock):
    fresh = set(range(400))

    def call(number):
        clock.now += 0.05 if number in fresh else 0.001
        fresh.discard(number)

    calls = [lambda number=number: call(number) for number in range(400)]
    (timing,) = measure.interleaved([calls], 100, False)
    assert timing.samples == pytest.approx([0.001] * len(timing.samples))


def test_slow_first_calls_take_half_of_the_time_at_most(clock):
    log = []
    (timing,) = measure.interleaved([candidate(clock, log, "a", [0.1], sets=400)], 1, False)
    assert len(timing.turns) >= 2
    assert clock.now < 3


def test_a_sample_may_have_to_go_through_all_sets(clock):
    log, sizes = [], []

    def timer(chosen):
        sizes.append(len(chosen))
        return measure.host_clock(chosen)

    calls = candidate(clock, log, "a", [0.002], sets=5)
    (timing,) = measure.interleaved([calls], 1, False, timer, least=5)
    assert timing.calls == 5
    assert sizes[:2] == [5, 1]  # all sets; how long a call takes
    assert set(sizes[2:]) == {5}


def test_the_time_limit_ends_it_unsettled(clock):
    times = [0.01 * (1 + number % 7) for number in range(10000)]
    (timing,) = measure.interleaved([candidate(clock, [], "a", times)], 1.0, False)
    assert not timing.settled
    assert timing.turns
    assert clock.now < 3


def test_there_are_two_turns_however_slow_it_is(clock):
    (timing,) = measure.interleaved([candidate(clock, [], "a", [9.0])], 0.1, False)
    assert timing.turns == pytest.approx([9.0, 9.0])
    assert not timing.settled


def test_candidates_take_turns_abba_with_pauses(clock, monkeypatch):
    log, pauses = [], []

    def sleep(seconds):
        pauses.append((seconds, len(log)))

    monkeypatch.setattr(measure.time, "sleep", sleep)
    pair = [candidate(clock, log, name, [0.004]) for name in "ab"]
    timings = measure.interleaved(pair, 10, True)
    assert [len(timing.turns) for timing in timings] == [measure.LEAST_TURNS] * 2
    starts = [start for _, start in pauses]
    turns = [
        {name for name, _ in log[a:b]} for a, b in zip(starts, [*starts[1:], None], strict=True)
    ]
    assert turns == [{"a"}, {"b"}, {"b"}, {"a"}] * (measure.LEAST_TURNS // 2)
    assert {seconds for seconds, _ in pauses} == {measure.PAUSE_S}


def test_warm_up_goes_on_until_times_are_stable(clock):
    times = [0.1 * 0.9**number for number in range(60)]
    (timing,) = measure.interleaved([candidate(clock, [], "a", [*times, 1e-3])], 10, False)
    assert timing.interval == pytest.approx((1e-3, 1e-3, 1e-3), rel=0.01)


def test_all_candidates_step_through_the_sets_together(clock):
    log = []
    pair = [candidate(clock, log, name, [0.001], sets=5) for name in "ab"]
    measure.interleaved(pair, 10, False)
    assert [number for _, number in log] == [number % 5 for number in range(len(log))]


def test_garbage_is_not_collected_meanwhile(clock):
    seen = []
    calls = [lambda: (seen.append(gc.isenabled()), clock.sleep(0.001))]
    measure.interleaved([calls], 10, False)
    assert set(seen) == {False}
    assert gc.isenabled()


def test_settled_needs_turns_and_a_narrow_interval():
    wide = measure.Timing(turns=[1.0, 1.1] * 20)
    assert wide.half_width > measure.HALF_WIDTH
    assert not wide.settled
    assert not replace(wide, turns=[1.0] * (measure.LEAST_TURNS - 1)).settled
    assert replace(wide, turns=[1.0] * measure.LEAST_TURNS).settled


def test_others_can_be_asked_for_here():
    assert 0 <= machine.Others().share() <= 1
