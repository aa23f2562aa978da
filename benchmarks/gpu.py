"""Runs on a machine with a GPU what `benchmarks/gpu_kit.py` made on another: checks, then timings.

    python benchmarks/gpu.py KIT.tar.xz [--device cuda] [--out results.json] [--only checks|...]

One call does all that needs a GPU. It builds the runtime from this checkout (Python 3.10, CMake, a
C++ compiler; nanobind comes with the kit) and needs NumPy; CuPy for the step inputs of contexts,
torch for the peers. Checks run each kernel on random operands into outputs filled with a poison,
by plain launches and as a graph, against float64. A timing is one CUDA graph of calls over operands
that rotate over at least twice the L2 cache, replayed in turns with the peer's graph, the fastest
of its forms; times are medians of replays on the device. The runtime itself is asked, too
(`gpu_runtime.py`). Decoding steps of a large model follow (`gpu_decode.py`), and the tools of
compute-sanitizer, where it is installed, watch the checks once more.

Each part runs in a process of its own, which is replaced where a kernel has broken its context or
does not come to an end (`gpu_child.py`): the rest goes on. Results are JSON, written after each
answer; what failed is printed at the end as well, the first failure first.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import gpu_build
import gpu_child
import gpu_decode
import gpu_runtime
import gpu_sanitizer
from gpu_case import Kit, check, time_one

MOST_PRINTED = 40
"""Failures that are printed at the end."""

Rows = list[dict[str, Any]]


def checked(kit: Kit, case: dict[str, Any]) -> Rows:
    """The row of a check."""
    row = {"name": case["name"], "dtype": case["dtype"], "sizes": case["sizes"]}
    try:
        row |= check(kit, case)
    except Exception as error:
        row["failed"] = [f"{type(error).__name__}: {error}"]
    for text in row["failed"]:
        print(f"FAILED {case['path']} {case['dtype']}: {text}", flush=True)
    return [row]


@functools.cache
def peers() -> Any:
    """The peers, where torch is installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import gpu_peers

    return gpu_peers


def clocks() -> str:
    """Clocks, power and what holds them back, right behind work, as nvidia-smi tells them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    asked = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,clocks_event_reasons.active"
    command = [program, f"--query-gpu={asked}", "--format=csv"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout or done.stderr).strip()


def timed(kit: Kit, case: dict[str, Any]) -> Rows:
    """The row of a timing; the first is of the device's own limits."""
    row = {"name": case["name"], "sizes": case["sizes"]}
    try:
        if case is LIMITS:
            row |= (peers().limits() if peers() else {}) | {"clocks": clocks()}
        else:
            row = time_one(kit, case, peers())
    except Exception as error:
        row["failed"] = [f"{type(error).__name__}: {error}"]
    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    return [row]


def steps_of(kit: Kit, case: dict[str, Any]) -> Rows:
    """The step inputs of contexts, where CuPy is installed."""
    if importlib.util.find_spec("cupy") is None:
        print("steps: CuPy is not installed", flush=True)
        return []
    import gpu_steps

    return [gpu_steps.check()]


LIMITS: dict[str, Any] = {"name": "limits", "sizes": {}}


def in_turns(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first case of each name, then the second of each: where time ends, all have some."""
    places: Counter[str] = Counter()
    turns: list[tuple[int, dict[str, Any]]] = []
    for case in cases:
        turns.append((places[case["name"]], case))
        places[case["name"]] += 1
    return [case for _, case in sorted(turns, key=lambda turn: turn[0])]


@dataclass(frozen=True)
class Part:
    """What is answered item by item: `items` of a kit's content, by `answer`, with such limits."""

    items: Callable[[dict[str, Any]], Sequence[dict[str, Any]]]
    answer: Callable[[Kit, dict[str, Any]], Rows]
    silent_s: float

    def chosen(self, content: dict[str, Any], wanted: str) -> list[dict[str, Any]]:
        """The items in whose name, dtype and sizes the pattern `wanted` is found."""
        return [
            case
            for case in self.items(content)
            if re.search(wanted, f"{case['name']} {case.get('dtype', '')} {case.get('sizes', '')}")
        ]


PARTS = {
    "checks": Part(lambda content: content["checks"], checked, 15),
    "runtime": Part(
        lambda content: [{"name": name} for name in gpu_runtime.NAMES],
        lambda kit, case: [gpu_runtime.answer(kit, case["name"])],
        60,
    ),
    "steps": Part(lambda content: [{"name": "steps"}], steps_of, 60),
    "timings": Part(lambda content: [LIMITS, *in_turns(content["timings"])], timed, 60),
    "decode": Part(
        lambda content: [{"name": held} for held in gpu_decode.HELD],
        lambda kit, case: gpu_decode.time_held(kit, case["name"]),
        150,
    ),
}

SANITIZED_S = 120
"""The longest that a check may take where a sanitizer watches it."""

LOST = ("session is lost", "CUDA error", "CUDA_ERROR")
"""What an error says behind which a process should not go on."""


def work(kit: Kit, part: Part, wanted: str, first: int) -> None:
    """What a child does: answers items from `first` on, until the device is lost."""
    gpu_child.ready()
    for case in part.chosen(kit.content, wanted)[first:]:
        try:
            rows = part.answer(kit, case)
        except Exception as error:
            rows = [{"name": case["name"], "failed": [f"{type(error).__name__}: {error}"]}]
        gpu_child.answer(rows)
        texts = [text for row in rows for text in row.get("failed", ())]
        if any(lost in text for text in texts for lost in LOST):
            sys.stdout.flush()
            os._exit(1)  # What would tidy up may wait for the device.


def run_parts(parts: dict[str, Iterable[Rows]], found: dict[str, Any], out: Path) -> list[str]:
    """Takes the answers of all parts, writes all after each, and returns what failed."""
    failures = []
    for name, answers in parts.items():
        found[name] = []
        for rows in answers:
            found[name] += rows
            out.write_text(json.dumps(found, indent=1))
            failures += [
                f"{name}: {row['name']}: {text}" for row in rows for text in row.get("failed", ())
            ]
        wrong = sum(bool(row.get("failed")) for row in found[name])
        print(f"{name}: {len(found[name])}, of which {wrong} failed", flush=True)
    return failures


def main() -> None:
    names = (*PARTS, "sanitizer")
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--build", type=Path, default=Path("build/gpu"))
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument("--match", default="", help="only what has this pattern in name and sizes")
    parser.add_argument("--seconds", type=float, default=200, help="most seconds of a part")
    parser.add_argument("--total", type=float, default=560, help="most seconds of the whole call")
    parser.add_argument("--first", type=int, help="answer as a child does, from this item on")
    options = parser.parse_args()
    end, where = time.monotonic() + options.total, options.build.resolve()
    folder = gpu_build.unpacked(options.kit, where / "kit")
    if options.first is not None:
        gpu_build.use(where)
        work(Kit(folder, options.device), PARTS[options.only[0]], options.match, options.first)
        return
    gpu_build.build(where, folder)
    gpu_build.use(where)
    from heddle.runtime import _core

    content = json.loads((folder / "kit.json").read_text())
    child = [sys.executable, Path(__file__).resolve(), folder, "--device", options.device]
    child += ["--build", where, "--match", options.match, "--only"]

    def answers(name: str) -> Iterator[Rows]:
        part = PARTS["checks" if name == "sanitizer" else name]
        items = [case["name"] for case in part.chosen(content, options.match)]
        if name == "sanitizer":
            limits = gpu_child.Limits(SANITIZED_S, end)
            yield gpu_sanitizer.watch([*child, "checks"], items, limits)
        else:
            limits = gpu_child.Limits(part.silent_s, min(end, time.monotonic() + options.seconds))
            yield from gpu_child.answers([*child, name], items, limits)

    wanted: Iterable[str] = options.only or names
    if options.device == "cpu":
        wanted = [name for name in wanted if name not in ("runtime", "steps", "timings")]
    found = {"date": datetime.now(timezone.utc).strftime("%Y-%m-%d"), "cuda": _core.cuda_info()}
    failures = run_parts({name: answers(name) for name in wanted}, found, options.out)
    if failures:
        shown = "\n".join(failures[:MOST_PRINTED])
        raise SystemExit(f"{len(failures)} failures, the first one first:\n{shown}")


if __name__ == "__main__":
    main()
