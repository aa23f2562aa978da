"""How candidates are timed: in turns, ABBA, until their medians are known well enough.

A sample is the mean time of a few consecutive calls, as many as the clock needs; a turn is a few
milliseconds of samples. What disturbs one sample of a turn disturbs its neighbours, so that the
interval is that of the turns' medians, not of all samples.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from heddle.pipelines.bench.machine import Others
from heddle.pipelines.bench.statistics import median_interval, percentile

Call = Callable[[], object]

SAMPLE_S, TURN_S = 100e-6, 5e-3
"""The least time of a sample, some thousand times what the clock resolves; the time of a turn."""

PAUSE_S = 0.03
"""Between candidates: the spinning threads of the one must sleep when the other is timed."""

HALF_WIDTH = 0.005
"""The half-width of the interval, relative to the median, at which measuring stops."""

LEAST_TURNS = 12
STABLE = 0.02


@dataclass
class Timing:
    """What was measured of one candidate; times are in seconds for one call.

    `turns` are the medians of the turns, `calls` how many calls one sample has.
    """

    calls: int = 1
    turns: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    others: float = 0.0

    @property
    def interval(self) -> tuple[float, float, float]:
        """The median and its 95% interval."""
        return median_interval(self.turns)

    @property
    def half_width(self) -> float:
        """Half of the interval's width, relative to the median."""
        middle, low, high = self.interval
        return (high - low) / 2 / middle

    @property
    def settled(self) -> bool:
        """Whether the median is known well enough."""
        return len(self.turns) >= LEAST_TURNS and self.half_width <= HALF_WIDTH

    @property
    def p95(self) -> float:
        """The time that 95% of the samples do not exceed."""
        return percentile(self.samples, 0.95)


def interleaved(candidates: Sequence[Sequence[Call]], max_time: float, pause: bool) -> list[Timing]:
    """Times `candidates`, each given as one call for each set of buffers.

    All candidates step through the sets together, so that a call finds the buffers that were used
    longest ago, whoever used them.

    Args:
        candidates: For each, the same work on each set.
        max_time: Seconds after which the measurement ends, warm-up not among them; each candidate
            has two turns at least.
        pause: Whether to let the threads of the candidate before go to sleep.
    """
    rotation = _Rotation(len(candidates[0]))
    collecting = gc.isenabled()
    gc.disable()
    try:
        timings = [Timing(_warm_up(calls, rotation, max_time)) for calls in candidates]
        order = list(range(len(candidates)))
        end, others = time.monotonic() + max_time, Others()
        while True:
            for number in (*order, *reversed(order)):
                if pause and len(order) > 1:
                    time.sleep(PAUSE_S)
                _turn(candidates[number], rotation, timings[number])
            if time.monotonic() >= end or all(timing.settled for timing in timings):
                break
    finally:
        if collecting:
            gc.enable()
    for timing in timings:
        timing.others = others.share()
    return timings


class _Rotation:
    """Where the next call is among the sets."""

    def __init__(self, sets: int) -> None:
        self.sets, self.place = sets, 0

    def take(self, calls: Sequence[Call], count: int) -> list[Call]:
        chosen = [calls[(self.place + i) % self.sets] for i in range(count)]
        self.place = (self.place + count) % self.sets
        return chosen


def _sample(chosen: Sequence[Call]) -> float:
    begin = time.perf_counter()
    for call in chosen:
        call()
    return (time.perf_counter() - begin) / len(chosen)


def _warm_up(calls: Sequence[Call], rotation: _Rotation, max_time: float) -> int:
    """Calls until the times are stable (or half of `max_time`); how many calls a sample takes."""
    end = time.monotonic() + max_time / 2
    _sample(rotation.take(calls, 1))
    first = _sample(rotation.take(calls, 1))
    count, last = _count(first), math.inf
    while time.monotonic() < end:
        window = median(_sample(rotation.take(calls, count)) for _ in range(5))
        if abs(window - last) <= STABLE * window:
            break
        count, last = _count(window), window
    return count


def _count(seconds: float) -> int:
    return max(1, math.ceil(SAMPLE_S / max(seconds, 1e-9)))


def _turn(calls: Sequence[Call], rotation: _Rotation, timing: Timing) -> None:
    # The first sample wakes the threads and fetches the code; it does not count.
    _sample(rotation.take(calls, timing.calls))
    samples: list[float] = []
    begin = time.perf_counter()
    while not samples or time.perf_counter() - begin < TURN_S:
        samples.append(_sample(rotation.take(calls, timing.calls)))
    timing.samples += samples
    timing.turns.append(median(samples))
