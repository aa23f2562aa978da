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
from typing import Any

from heddle.pipelines.bench.machine import Others
from heddle.pipelines.bench.statistics import median_interval, percentile

Call = Callable[[], object]
Clock = Callable[[Sequence[Call]], float]
"""Makes the calls that it is given, in order, and returns the mean of their seconds."""

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


def host_clock(chosen: Sequence[Any]) -> float:
    """Seconds on the host."""
    begin = time.perf_counter()
    for call in chosen:
        call()
    return (time.perf_counter() - begin) / len(chosen)


def interleaved(
    candidates: Sequence[Sequence[Call]],
    max_time: float,
    pause: bool,
    clock: Clock = host_clock,
    least: int = 1,
) -> list[Timing]:
    """Times `candidates`, each given as one call for each set of buffers.

    All candidates step through the sets together, so that a call finds the buffers that were used
    longest ago, whoever used them.

    Args:
        candidates: For each, the same work on each set.
        max_time: Seconds after which the measurement ends, warm-up not among them; each candidate
            has two turns at least.
        pause: Whether to let the threads of the candidate before go to sleep.
        clock: What takes a sample.
        least: How many calls a sample has at the least.
    """
    rotation = _Rotation(len(candidates[0]), clock, least)
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

    def __init__(self, sets: int, clock: Clock, least: int) -> None:
        self.sets, self.clock, self.least, self.place = sets, clock, least, 0

    def count(self, seconds: float) -> int:
        """How many calls a sample takes where one takes so many seconds."""
        return max(self.least, math.ceil(SAMPLE_S / max(seconds, 1e-9)))

    def sample(self, calls: Sequence[Call], count: int) -> float:
        chosen = [calls[(self.place + i) % self.sets] for i in range(count)]
        self.place = (self.place + count) % self.sets
        return self.clock(chosen)


def _warm_up(calls: Sequence[Call], rotation: _Rotation, max_time: float) -> int:
    """Calls until the times are stable (or half of `max_time`); how many calls a sample takes.

    Each set comes first, once: pages that nobody has written and models that nobody has run take
    longer then.
    """
    end = time.monotonic() + max_time / 2
    for _ in range(-(-rotation.sets // rotation.least)):
        rotation.sample(calls, rotation.least)
        if time.monotonic() >= end:
            break
    first = rotation.sample(calls, 1)
    count, last = rotation.count(first), math.inf
    while time.monotonic() < end:
        window = median(rotation.sample(calls, count) for _ in range(5))
        if abs(window - last) <= STABLE * window:
            break
        count, last = rotation.count(window), window
    return count


def _turn(calls: Sequence[Call], rotation: _Rotation, timing: Timing) -> None:
    # The first sample wakes the threads and fetches the code; it does not count.
    rotation.sample(calls, timing.calls)
    samples: list[float] = []
    begin = time.perf_counter()
    while not samples or time.perf_counter() - begin < TURN_S:
        samples.append(rotation.sample(calls, timing.calls))
    timing.samples += samples
    timing.turns.append(median(samples))
