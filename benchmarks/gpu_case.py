"""A case of a kit on a device: how it is checked, and how it is timed beside its peer."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gpu_operands
import numpy as np
from gpu_operands import floats

GRAPH_S, TURNS, REPLAYS = 2e-3, 5, 10

POISONS = 0xFF, 0xFE
"""Bytes of outputs without results: NaN in every float, -1 or the largest in integers, true; and,
because a bool may have to be true, something else with false."""

MOST_COMPARED = 1 << 22
"""Elements of a timing's result that are compared: all of a large one would take seconds."""


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

    def poisoned(self, case: dict[str, Any], poison: int = POISONS[0]) -> tuple[Any, ...]:
        """Outputs of a case that hold no results, but the byte `poison` again and again."""
        return tuple(self._poisoned(result, poison) for result in case["results"])

    def _poisoned(self, result: dict[str, Any], poison: int) -> Any:
        from heddle.runtime import Buffer

        made = Buffer(result["dtype"], tuple(result["shape"]))
        bits = made.to_numpy().view(np.uint8) if made.nbytes else np.zeros(0, np.uint8)
        bits[...] = poison & 1 if result["dtype"] == "bool" else poison
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
    outputs = kit.poisoned(case, POISONS[1])
    for _ in range(2):
        model.execute(*inputs, out=outputs)
    # Other results, or the right ones from before would hide a graph that does nothing.
    pairs = zip(gpu_operands.drawn(case, 1, held), case["operands"], strict=True)
    others = [kit.buffer(a, o["dtype"]) for a, o in pairs if not o["weight"]]
    model.execute(*others, out=outputs)
    model.execute(*inputs, out=outputs)
    compare("again", outputs)
    if kit.device.kind == "cuda":
        outputs = kit.poisoned(case)
        replay([(model, inputs, outputs)])
        compare("as a graph", outputs)
    return {"error": worst, "failed": failed}


def some(array: Any) -> Any:
    """At most about `MOST_COMPARED` elements; their distance is odd, so they are of all columns."""
    flat = array.reshape(-1)
    return flat[:: flat.size // MOST_COMPARED | 1]


def computed(case: dict[str, Any], outputs: Sequence[Any]) -> Any:
    """What of a timed call's result is compared."""
    return floats(some(outputs[0].to_numpy()), case["results"][0]["dtype"])


def unfit(kit: Kit, case: dict[str, Any], call: tuple[Any, Any, Any]) -> list[str]:
    """What shows, without a reference, that a timed call has not computed all of its result."""
    from heddle.pipelines.bench.accuracy import error_of

    model, inputs, outputs = call
    others = kit.poisoned(case, POISONS[1])
    model.execute(*inputs, out=others)
    mine, other = (computed(case, made) for made in (outputs, others))
    if wrong := np.count_nonzero(~np.isfinite(mine)):
        return [f"{wrong} of {mine.size} elements are not finite"]
    error = error_of(other, mine)
    if error > case["tolerances"][0]:
        return [f"into other memory the result is another, by {error:.1e}"]
    return []


def time_one(kit: Kit, case: dict[str, Any], peers: Any) -> dict[str, Any]:
    """Times a case beside its variants and its peer, and looks at the result.

    Of a variant the row says how many times as fast it is. A peer that refuses the case costs its
    own figures alone.
    """
    from heddle.pipelines.bench.accuracy import error_of
    from heddle.runtime import replay
    from heddle.runtime._core import cuda_info

    l2_bytes = cuda_info()["devices"][0]["l2_bytes"]
    sets = max(2, -(-2 * l2_bytes // case["bytes"]))
    paths = {"": case["path"], **case["variants"]}  # What ships has no name.
    calls: dict[str, list[Any]] = {name: [] for name in paths}
    kept = []
    for number in range(sets):
        arrays = gpu_operands.drawn(case, number, kit.held(case))
        for name, path in paths.items():
            model, inputs, pairs = kit.prepared({**case, "path": path}, arrays)
            calls[name].append((model, inputs, kit.poisoned(case)))
        mine = iter(inputs)  # The model's own weights are not to be had.
        kept.append([kit.buffer(a, o["dtype"]) if o["weight"] else next(mine) for a, o in pairs])
    once = statistics.median(replay(calls[""], count=3))
    repeats = max(1, round(GRAPH_S / max(once, 1e-7)))
    peer, failed = None, []
    try:
        peer = peers.graph_of(case, kept, repeats) if peers else None
    except Exception as error:
        failed.append(f"peer: {type(error).__name__}: {error}")
    order = [(name, partial(replay, own, repeats, REPLAYS)) for name, own in calls.items()]
    order += [("peer", partial(peer.replay, REPLAYS))] if peer else []
    times: dict[str, list[float]] = {name: [] for name, _ in order}
    for turn in range(TURNS):
        for name, run in order if turn % 2 == 0 else order[::-1]:
            times[name] += [seconds / (repeats * sets) for seconds in run()]
    medians = {name: statistics.median(found) for name, found in times.items()}
    median = medians[""]
    row = {
        "name": case["name"],
        "dtype": case["dtype"],
        "sizes": case["sizes"],
        "sets": sets,
        "us": round(1e6 * median, 3),
        "gb_s": round(case["bytes"] / median / 1e9, 1),
        "tflop_s": round(case["operations"] / median / 1e12, 2),
    }
    failed += unfit(kit, case, calls[""][0])
    others = {name: computed(case, calls[name][0][2]) for name in case["variants"]}
    if others:
        row["variants"] = {name: round(median / medians[name], 3) for name in others}
    if peer:
        row |= {"peer": peer.name, "peer_refused": peer.refused}
        row["peer_us"] = round(1e6 * medians["peer"], 3)
        row["ratio"] = round(row["peer_us"] / row["us"], 3)
        others["the peer"] = some(peer.result())
    mine = computed(case, calls[""][0][2])
    allowed = 2 * case["tolerances"][0]  # each is allowed its own
    for name, other in others.items():
        error = error_of(mine, other)
        row["difference"] = max(error, row.get("difference", 0.0))
        if error > allowed:
            failed.append(f"differs from {name} by {error:.1e}, allowed {allowed:.1e}")
    return row | ({"failed": failed} if failed else {})
