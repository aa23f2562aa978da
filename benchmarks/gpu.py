"""Runs on a machine with a GPU what `benchmarks/gpu_kit.py` made on another: checks, then timings.

    python benchmarks/gpu.py KIT.tar.xz [--device cuda] [--out results.json] [--only checks|...]

One call does all that needs a GPU. It builds the runtime from this checkout (Python 3.10, CMake, a
C++ compiler; nanobind comes with the kit) and needs NumPy; CuPy for the step inputs of contexts,
torch for the peers. Checks run each kernel on random operands into outputs filled with a poison,
against float64. A timing is one CUDA graph of calls over operands that rotate over at least twice
the L2 cache, replayed in turns with the peer's graph; times are medians of replays on the device.
Decoding steps of a large model follow (`gpu_decode.py`), and the tools of compute-sanitizer, where
it is installed, watch the checks once more. Results are JSON, written after each part; what failed
is printed at the end as well, the first failure first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import gpu_build
import gpu_operands
import gpu_sanitizer
import numpy as np
from gpu_operands import floats

GRAPH_S, TURNS, REPLAYS = 2e-3, 5, 10

POISON = 0xFF
"""NaN in every float, -1 or the largest in integers."""


MOST_PRINTED = 40
"""Failures that are printed at the end."""


class Kit:
    """The artifacts of a kit on one device."""

    def __init__(self, folder: Path, device: str) -> None:
        from heddle.runtime import CPU, Accelerator, InferenceSession

        self.folder = folder
        self.device = CPU() if device == "cpu" else Accelerator()
        self.session = InferenceSession([self.device])
        self.content = json.loads((folder / "kit.json").read_text())

    def load(self, case: dict[str, Any], weights: dict[str, Any]) -> Any:
        """The model of a case."""
        return self.session.load(str(self.folder / f"{case['path']}.heddle"), weights)

    def held(self, case: dict[str, Any]) -> dict[str, Any]:
        """The arrays of a case that came with the kit."""
        file = self.folder / f"{case['path']}.npz"
        return dict(np.load(file)) if file.exists() else {}

    def buffer(self, array: Any, dtype: str) -> Any:
        """`array` on the device; what NumPy lacks as its bits."""
        return gpu_operands.buffer(array, dtype).to(self.device)

    def poisoned(self, result: dict[str, Any]) -> Any:
        """An output that holds no result."""
        from heddle.runtime import Buffer

        made = Buffer(result["dtype"], tuple(result["shape"]))
        bits = made.to_numpy().view(np.uint8) if made.nbytes else np.zeros(0, np.uint8)
        bits[...] = 1 if result["dtype"] == "bool" else POISON
        return made.to(self.device)


def check(kit: Kit, case: dict[str, Any]) -> dict[str, Any]:
    """Runs a check three times: from the second on through what the runtime keeps of the first."""
    from heddle.pipelines.bench.accuracy import error_of

    held, operands = kit.held(case), case["operands"]
    arrays = gpu_operands.drawn(case, 0, held)
    if gpu_operands.fingerprint(arrays) != case["fingerprint"]:
        raise ValueError(
            f"operands: wanted those that NumPy {kit.content['numpy']} draws, "
            f"NumPy {np.__version__} draws others"
        )
    pairs = list(zip(arrays, operands, strict=True))
    fixed = [gpu_operands.buffer(a, o["dtype"]) for a, o in pairs if o["weight"]]
    model = kit.load(case, {f"w{i}": weight for i, weight in enumerate(fixed)})
    inputs = [kit.buffer(a, o["dtype"]) for a, o in pairs if not o["weight"]]
    worst, failed = 0.0, []
    outputs = [kit.poisoned(result) for result in case["results"]]
    for _ in range(3):
        model.execute(*inputs, out=outputs)
    if case["name"] in gpu_operands.REFERENCES:
        reference = gpu_operands.REFERENCES[case["name"]]
        held["out0"] = reference(*(gpu_operands.wide(a, o["dtype"]) for a, o in pairs))
    for i, result in enumerate(case["results"]):
        error = error_of(floats(outputs[i].to_numpy(), result["dtype"]), held[f"out{i}"])
        worst = max(worst, error)
        if error > case["tolerances"][i]:
            name = case["name"].split(" ")[i] if len(case["results"]) > 1 else case["name"]
            failed.append(f"{name}: error {error:.1e}, allowed {case['tolerances'][i]:.1e}")
    return {"error": worst, "failed": failed}


def check_all(kit: Kit) -> list[dict[str, Any]]:
    """Every check; what went wrong is printed as it happens, and nothing stops the rest."""
    rows = []
    for case in kit.content["checks"]:
        row = {"name": case["name"], "dtype": case["dtype"], "sizes": case["sizes"]}
        try:
            row |= check(kit, case)
        except Exception as error:
            row["failed"] = [f"{type(error).__name__}: {error}"]
        rows.append(row)
        for text in row["failed"]:
            print(f"FAILED {case['path']} {case['dtype']}: {text}", flush=True)
            if "session is lost" in text:
                return rows
    wrong = sum(bool(row["failed"]) for row in rows)
    print(f"checks: {len(rows)}, of which {wrong} failed", flush=True)
    return rows


def time_one(kit: Kit, case: dict[str, Any], peers: Any) -> dict[str, Any]:
    """Times a case beside its peer."""
    from heddle.pipelines.bench.accuracy import error_of
    from heddle.runtime import replay
    from heddle.runtime._core import cuda_info

    l2_bytes = cuda_info()["devices"][0]["l2_bytes"]
    sets = max(2, -(-2 * l2_bytes // case["bytes"]))
    calls, kept = [], []
    for number in range(sets):
        arrays = gpu_operands.drawn(case, number, kit.held(case))
        pairs = list(zip(arrays, case["operands"], strict=True))
        weights = [gpu_operands.buffer(a, o["dtype"]) for a, o in pairs if o["weight"]]
        model = kit.load(case, {f"w{i}": weight for i, weight in enumerate(weights)})
        inputs = [kit.buffer(a, o["dtype"]) for a, o in pairs if not o["weight"]]
        outputs = [kit.poisoned(result) for result in case["results"]]
        calls.append((model, tuple(inputs), tuple(outputs)))
        kept.append([kit.buffer(a, o["dtype"]) for a, o in pairs])
    once = statistics.median(replay(calls, count=3))
    repeats = max(1, round(GRAPH_S / max(once, 1e-7)))
    peer = peers.graph(case, kept, repeats) if peers else None
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(TURNS):
        order = [(ours, lambda: replay(calls, repeats, REPLAYS))]
        if peer:
            order.append((theirs, lambda: peer.replay(REPLAYS)))
        for times, run in order if turn % 2 == 0 else order[::-1]:
            times += [seconds / (repeats * sets) for seconds in run()]
    median = statistics.median(ours)
    row = {
        "name": case["name"],
        "dtype": case["dtype"],
        "sizes": case["sizes"],
        "sets": sets,
        "us": round(1e6 * median, 3),
        "gb_s": round(case["bytes"] / median / 1e9, 1),
        "tflop_s": round(case["operations"] / median / 1e12, 2),
    }
    if peer:
        row["peer"] = peer.name
        row["peer_us"] = round(1e6 * statistics.median(theirs), 3)
        row["ratio"] = round(row["peer_us"] / row["us"], 3)
        dtype = case["results"][0]["dtype"]
        mine = floats(calls[0][2][0].to_numpy(), dtype).astype(np.float64)
        row["difference"] = error_of(mine, peer.result())
    return row


def time_all(kit: Kit, limit_s: float) -> list[dict[str, Any]]:
    """Every timing, as long as there is time."""
    peers = None
    if importlib.util.find_spec("torch"):
        import gpu_peers

        peers = gpu_peers.Torch()
        print(gpu_peers.limits(), flush=True)
    rows, start = [], time.monotonic()
    for case in kit.content["timings"]:
        if time.monotonic() - start > limit_s:
            print(f"timings: {limit_s:.0f} s are over", flush=True)
            break
        try:
            row = time_one(kit, case, peers)
        except Exception as error:
            row = {"name": case["name"], "sizes": case["sizes"], "failed": [str(error)]}
        rows.append(row)
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    return rows


def check_steps() -> list[dict[str, Any]]:
    """The step inputs of contexts, where CuPy is installed."""
    if importlib.util.find_spec("cupy") is None:
        print("steps: CuPy is not installed", flush=True)
        return []
    import gpu_steps

    return [gpu_steps.check()]


def decode_all(kit: Kit) -> list[dict[str, Any]]:
    """The decoding steps of the kit's models."""
    import gpu_decode

    every = (gpu_decode.time_held(kit, held) for held in gpu_decode.HELD)
    return [row for rows in every for row in rows]


def run_parts(
    parts: dict[str, Callable[[], list[dict[str, Any]]]], found: dict[str, Any], out: Path
) -> list[str]:
    """Runs all parts, writes what was found after each, and returns what failed."""
    failures = []
    for name, part in parts.items():
        try:
            found[name] = part()
        except Exception as error:
            found[name] = [{"name": name, "failed": [f"{type(error).__name__}: {error}"]}]
        out.write_text(json.dumps(found, indent=1))
        failures += [
            f"{name}: {row['name']}: {text}"
            for row in found[name]
            for text in row.get("failed", ())
        ]
    return failures


def main() -> None:
    names = ("checks", "steps", "timings", "decode", "sanitizer")
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--build", type=Path, default=Path("build/gpu"))
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument(
        "--seconds", type=float, default=200, help="most seconds of timings, and of a sanitizer"
    )
    options = parser.parse_args()
    where = options.build.resolve()
    folder = gpu_build.unpacked(options.kit, where / "kit")
    gpu_build.build(where, folder)
    from heddle.runtime import _core

    kit = Kit(folder, options.device)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "checks": lambda: check_all(kit),
        "steps": check_steps,
        "timings": lambda: time_all(kit, options.seconds),
        "decode": lambda: decode_all(kit),
        "sanitizer": lambda: gpu_sanitizer.watch(folder, where, options.device, options.seconds),
    }
    wanted: Iterable[str] = options.only or names
    if options.device == "cpu":
        wanted = [name for name in wanted if name not in ("steps", "timings")]
    found = {"date": datetime.now(timezone.utc).strftime("%Y-%m-%d"), "cuda": _core.cuda_info()}
    failures = run_parts({name: parts[name] for name in wanted}, found, options.out)
    if failures:
        shown = "\n".join(failures[:MOST_PRINTED])
        raise SystemExit(f"{len(failures)} failures, the first one first:\n{shown}")


if __name__ == "__main__":
    main()
