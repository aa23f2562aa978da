"""What a row says about where it was measured, and how busy that place was with other work."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

CPUS = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
STAT = Path("/proc/stat")

BUSY = 0.05
"""Others' share of the cores from which on what was measured is flagged."""

PER_CACHE = 4
"""How many times the last cache is filled by what comes from memory. It does not drop what was used
longest ago: on a Zen 5 products of one row were 1.2 to 1.35 times as fast over twice as much."""

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Level:
    """A data cache: its name (`"L2"`), its bytes, and how many of our cores share it."""

    name: str
    size: int
    shared: int


def caches(cpus: Path = CPUS) -> list[Level]:
    """The data caches of the first usable core, the smallest first; none where Linux names none."""
    usable = os.sched_getaffinity(0)
    found = []
    for folder in sorted((cpus / f"cpu{min(usable)}" / "cache").glob("index*")):
        if (folder / "type").read_text().strip() == "Instruction":
            continue
        text = (folder / "size").read_text().strip()
        size = int(text[:-1]) * _UNITS[text[-1]]
        sharing = _cores((folder / "shared_cpu_list").read_text()) & usable
        found.append(Level(f"L{(folder / 'level').read_text().strip()}", size, len(sharing)))
    return sorted(found, key=lambda level: level.name)


def last_cache(threads: int) -> int:
    """Bytes that `threads` threads find in the last cache before memory; 0 where it is not known.

    Cores may share it in groups (as on the chiplets of AMD's CPUs): then there are several of them,
    as many as have our cores, of which a thread uses one.
    """
    levels = caches()
    if not levels:
        return 0
    last = max(levels, key=lambda level: level.size)
    groups = -(-len(os.sched_getaffinity(0)) // max(last.shared, 1))
    return last.size * max(1, min(groups, threads))


def _cores(text: str) -> set[int]:
    """`"0-2,8"` as numbers."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores


def memory() -> int:
    """Bytes of the main memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cpu_fields(path: Path = CPUINFO) -> dict[str, str]:
    """What /proc/cpuinfo says about the first core."""
    lines = path.read_text().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def describe() -> dict[str, Any]:
    """The machine and the versions behind a row."""
    from heddle.graph.compiler.cache import fingerprint

    return {
        **_fixed(),
        "load_average": round(os.getloadavg()[0], 2),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "sources": {target: fingerprint(target)[:16] for target in ("cpu", "cuda")},
    }


@cache
def _fixed() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "cpu": cpu_fields().get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "caches": {level.name: level.size for level in caches()},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "heddle": version("heddle"),
        "numpy": version("numpy"),
    }


def host_key() -> str:
    """What limits belong to: the host's name, its CPU with what that can do, caches, usable cores.

    Which cores, not how many: two may be one core's hardware threads, or have a cache each.
    """
    fixed = _fixed()
    parts = [str(fixed[name]) for name in ("host", "cpu", "caches")]
    parts += [cpu_fields().get("flags", ""), str(sorted(os.sched_getaffinity(0)))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class Others:
    """How much of our cores other processes use, from its making on (proc(5), /proc/stat)."""

    def __init__(self, stat: Path = STAT) -> None:
        self.stat = stat
        self.start, self.busy, self.own = time.monotonic(), self._busy(), self._own()

    def share(self) -> float:
        """The share of the cores' time that went to others; stolen time counts as theirs."""
        seconds = (time.monotonic() - self.start) * len(os.sched_getaffinity(0))
        others = (self._busy() - self.busy) - (self._own() - self.own)
        return min(max(others / seconds, 0.0), 1.0)

    def _busy(self) -> float:
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        total = 0
        for line in self.stat.read_text().splitlines():
            name, *ticks = line.split()
            if name in names:
                user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
                total += user + nice + system + irq + softirq + steal
        return total / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _own() -> float:
        times = os.times()
        return times.user + times.system
