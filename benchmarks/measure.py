"""What all benchmarks share: the machine in words, interleaved timing, and the results' files."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any

from heddle.graph.targets import native_cpu, native_level
from heddle.pipelines.bench.machine import PER_CACHE, last_cache
from heddle.pipelines.bench.measure import host_clock

RESULTS = Path(__file__).parent / "results"

LEVELS = {"x86-64-v3": "_avx2", "x86-64-v4": "_avx512", "sapphirerapids": "_amx"}
"""What the names of results end with where they are of other code than that for `cooperlake`."""

CPUS = {"znver4": "_zen4"}
"""And those of that level where it is another CPU than the Zen 5 that came first."""

STREAMED = max(128 << 20, PER_CACHE * last_cache(len(os.sched_getaffinity(0))))
"""Bytes that take turns so that each comes from memory."""

PAUSE_S, PAUSES = 0.02, 25
"""Of a rest between turns: as many pauses at most."""


def machine() -> dict[str, Any]:
    """CPU, usable cores, how busy they were lately, system and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "heddle": version("heddle"),
        "numpy": version("numpy"),
    }


MACHINE = machine()
"""As it was before the benchmark began."""


def interleaved(
    candidates: dict[str, Callable[[], object]], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds of each call, candidates in turns.

    A turn is calls that are not counted, one for each set of buffers, and `calls` that are: a host
    may let memory that nobody reads for a second become slow, half as fast in one of ours. From
    round to round the order of the candidates is reversed. `heddle bench` ends when it knows each
    median; here all have as many turns, because `ratio` compares those of a round.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 == 0 else -1]:
            call = candidates[name]
            rest()
            for _ in range(call.count if isinstance(call, Turns) else 1):
                call()
            times[name] += [once(call) for _ in range(calls)]
    return times


class Turns:
    """A call that makes the next of `calls`, the same work on other buffers; how many there are."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self.count = len(calls)
        self._turns = cycle(calls)

    def __call__(self) -> object:
        """Makes the next one."""
        return next(self._turns)()


def sets(nbytes: int) -> int:
    """How many buffers of `nbytes` take turns, so that each comes from memory."""
    return -(-STREAMED // nbytes)


def once(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    return host_clock((call,))


def rest() -> None:
    """Waits until the other candidates' workers sleep: OpenBLAS's spin for 0.1 s after a call."""
    for _ in range(PAUSES):
        before = time.process_time()
        time.sleep(PAUSE_S)
        if time.process_time() - before < 0.1 * PAUSE_S:
            return


def ratio(peer: list[float], own: list[float], calls: int) -> float:
    """How many times as long as ours the peer's calls took: the median over the rounds.

    Turns of one round are compared, by their medians: a host may slow a core down for milliseconds
    to seconds, so that the medians of a whole run can be of different times of that core. Both
    have `calls` in a turn.
    """
    turns = [
        [statistics.median(times[at : at + calls]) for at in range(0, len(times), calls)]
        for times in (peer, own)
    ]
    return statistics.median(a / b for a, b in zip(*turns, strict=True))


def of_child(script: str, threads: int, *arguments: str) -> list[dict[str, Any]]:
    """The rows that `script` prints as a child, with so many threads; prints them as well."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, script, "--child", "--threads", str(threads), *arguments]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        for line in run.stdout or ():
            print(line, end="", flush=True)
            rows.append(json.loads(line))
    if run.returncode:
        raise SystemExit(run.returncode)
    return rows


def median_ms(seconds: list[float]) -> float:
    """The median in milliseconds, to a microsecond."""
    return round(1e3 * statistics.median(seconds), 3)


def save(name: str, figures: dict[str, Any]) -> Path:
    """Writes `figures` with the machine and the date to a file of `benchmarks/results`.

    Its name is `name` and what tells the machine's level, or its CPU.
    """
    RESULTS.mkdir(exist_ok=True)
    end = LEVELS.get(native_level()) or CPUS.get(native_cpu(), "")
    path = RESULTS / f"{name}{end}.json"
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    content = {"machine": MACHINE, "date": date, **figures}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
