"""A case of a kit on a device: how it is checked, and how it is timed beside its peer."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_operands
import numpy as np
from gpu_operands import floats

GRAPH_S, TURNS, REPLAYS = 2e-3, 5, 10

POISON = 0xFF
"""NaN in every float, -1 or the largest in integers."""


class Kit:
    """The artifacts of a kit on one device."""

    def __init__(self, folder: Path, device: str) -> None:
        from heddle.runtime import CPU, Accelerator, InferenceSession

        self.folder = folder
        self.device = CPU() if device == "cpu" else Accelerator()
        self.session = InferenceSession([self.device])
        self.content = json.loads((folder / "kit.json").read_text())

    def prepared(
        self, case: dict[str, Any], arrays: Sequence[Any]
    ) -> tuple[Any, tuple[Any, ...], list[tuple[Any, dict[str, Any]]]]:
        """The model of a case, its inputs on the device, and each operand with what it is."""
        pairs = list(zip(arrays, case["operands"], strict=True))
        weights = [gpu_operands.buffer(a, o["dtype"]) for a, o in pairs if o["weight"]]
        path = str(self.folder / f"{case['path']}.heddle")
        model = self.session.load(path, {f"w{i}": weight for i, weight in enumerate(weights)})
        inputs = tuple(self.buffer(a, o["dtype"]) for a, o in pairs if not o["weight"])
        return model, inputs, pairs

    def held(self, case: dict[str, Any]) -> dict[str, Any]:
        """The arrays of a case that came with the kit."""
        file = self.folder / f"{case['path']}.npz"
        return dict(np.load(file)) if file.exists() else {}

    def buffer(self, array: Any, dtype: str) -> Any:
        """`array` on the device; what NumPy lacks as its bits."""
        return gpu_operands.buffer(array, dtype).to(self.device)

    def poisoned(self, case: dict[str, Any]) -> tuple[Any, ...]:
        """Outputs of a case that hold no results."""
        return tuple(map(self._poisoned, case["results"]))

    def _poisoned(self, result: dict[str, Any]) -> Any:
        from heddle.runtime import Buffer

        made = Buffer(result["dtype"], tuple(result["shape"]))
        bits = made.to_numpy().view(np.uint8) if made.nbytes else np.zeros(0, np.uint8)
        bits[...] = 1 if result["dtype"] == "bool" else POISON
        return made.to(self.device)


def check(kit: Kit, case: dict[str, Any]) -> dict[str, Any]:
    """Runs a check by plain launches, as a graph, and as the runtime makes one of what it knows."""
    from heddle.pipelines.bench.accuracy import error_of
    from heddle.runtime import replay

    held = kit.held(case)
    arrays = gpu_operands.drawn(case, 0, held)
    if gpu_operands.fingerprint(arrays) != case["fingerprint"]:
        raise ValueError(
            f"operands: wanted those that NumPy {kit.content['numpy']} draws, "
            f"NumPy {np.__version__} draws others"
        )
    model, inputs, pairs = kit.prepared(case, arrays)
    if case["name"] in gpu_operands.REFERENCES:
        reference = gpu_operands.REFERENCES[case["name"]]
        held["out0"] = reference(*(gpu_operands.wide(a, o["dtype"]) for a, o in pairs))
    worst, failed = 0.0, []

    def compare(way: str, outputs: Sequence[Any]) -> None:
        nonlocal worst
        for i, result in enumerate(case["results"]):
            error = error_of(floats(outputs[i].to_numpy(), result["dtype"]), held[f"out{i}"])
            worst = max(worst, error)
            if error > case["tolerances"][i]:
                name = case["name"].split(" ")[i] if len(case["results"]) > 1 else case["name"]
                allowed = f"allowed {case['tolerances'][i]:.1e}"
                failed.append(f"{name}, {way}: error {error:.1e}, {allowed}")

    outputs = kit.poisoned(case)
    model.execute(*inputs, out=outputs)
    compare("launched", outputs)
    for _ in range(2):
        model.execute(*inputs, out=outputs)
    compare("again", outputs)
    if kit.device.kind == "cuda":
        outputs = kit.poisoned(case)
        replay([(model, inputs, outputs)])
        compare("as a graph", outputs)
    return {"error": worst, "failed": failed}


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
        model, inputs, pairs = kit.prepared(case, arrays)
        calls.append((model, inputs, kit.poisoned(case)))
        mine = iter(inputs)  # The model's own weights are not to be had.
        kept.append([kit.buffer(a, o["dtype"]) if o["weight"] else next(mine) for a, o in pairs])
    once = statistics.median(replay(calls, count=3))
    repeats = max(1, round(GRAPH_S / max(once, 1e-7)))
    peer = peers.graph_of(case, kept, repeats) if peers else None
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
