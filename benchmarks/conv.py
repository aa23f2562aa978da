"""Convolutions and pooling with channels last, float32 and bfloat16: Heddle beside oneDNN.

    python benchmarks/conv.py [--threads 2] [--dtype float32 ...] [--rounds 7] [--save]

The shapes are those of ResNet-50, MobileNetV2 (depthwise) and ResNeXt-50 (32 groups). oneDNN is
called through torch with a weight that it has packed (`pip install torch`); pooling is torch's own.
Both take turns in one process, a child for each number of threads. The ratio is the peer's median
over Heddle's: above 1, Heddle is faster. `of peak` is the share of what the same instructions reach
in registers (`heddle bench env`); `bound` is the time in which they do the work, or in which x, the
weights and the result are moved once, whichever is longer: by the third cache, as the same buffers
are used all the time, or from memory where they are larger than it holds. Taps in the padding count
as work; both leave them out, so that they may be faster than the bound.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from statistics import geometric_mean
from typing import Any

import measure
import ml_dtypes
import numpy as np
from gemm import TURN_S, Call

from heddle.graph import DType, Graph, TensorType, Weight, compile, ops
from heddle.pipelines.bench import limits
from heddle.pipelines.bench.machine import last_cache
from heddle.runtime import Buffer, InferenceSession

DTYPES = ("float32", "bfloat16")
BATCHES = (1, 8)


@dataclass(frozen=True)
class Case:
    """A square convolution: its picture's side, channels, results, taps, stride, groups.

    With `pool` (`max` or `mean`) windows of as many taps without weights.
    """

    side: int
    channels: int
    results: int
    taps: int
    stride: int = 1
    groups: int = 1
    pool: str = ""

    @property
    def padding(self) -> int:
        """Zeros on each side."""
        return 0 if self.pool == "mean" else self.taps // 2

    @property
    def out(self) -> int:
        """The side of the result."""
        return (self.side + 2 * self.padding - self.taps) // self.stride + 1

    def operations(self, batch: int) -> float:
        """Additions and multiplications, or one operation for each tap of pooling."""
        each = 1 if self.pool else 2 * self.channels // self.groups
        return float(batch * self.out**2 * self.results * self.taps**2 * each)

    def elements(self, batch: int) -> int:
        """What is read and written at the least."""
        weights = self.results * self.taps**2 * self.channels // self.groups
        x, result = self.side**2 * self.channels, self.out**2 * self.results
        return batch * (x + result) + (0 if self.pool else weights)

    @property
    def network(self) -> str:
        """Where such shapes are found."""
        if self.pool:
            return "pooling"
        depthwise = "MobileNetV2" if self.groups == self.channels else "ResNeXt-50"
        return "ResNet-50" if self.groups == 1 else depthwise

    def __str__(self) -> str:
        kinds = {1: "", self.channels: " depthwise"}
        kind = f" {self.pool}" if self.pool else kinds.get(self.groups, f" {self.groups} groups")
        stride = f" / {self.stride}" if self.stride > 1 else ""
        return f"{self.taps}x{self.taps}{stride}{kind}, {self.channels} to {self.results}"


CASES = (
    Case(224, 3, 64, 7, 2),
    Case(56, 64, 64, 1),
    Case(56, 64, 64, 3),
    Case(56, 128, 128, 3, 2),
    Case(28, 128, 128, 3),
    Case(14, 256, 256, 3),
    Case(14, 1024, 256, 1),
    Case(28, 512, 1024, 1, 2),
    Case(7, 512, 512, 3),
    Case(112, 32, 32, 3, 1, 32),
    Case(112, 96, 96, 3, 2, 96),
    Case(56, 128, 128, 3, 1, 128),
    Case(14, 384, 384, 3, 1, 384),
    Case(7, 960, 960, 3, 1, 960),
    Case(56, 128, 128, 3, 1, 32),
    Case(28, 256, 256, 3, 1, 32),
    Case(14, 512, 512, 3, 1, 32),
    Case(7, 1024, 1024, 3, 1, 32),
    Case(112, 64, 64, 3, 2, 1, "max"),
    Case(56, 256, 256, 2, 2, 1, "mean"),
    Case(7, 2048, 2048, 7, 1, 1, "mean"),
)


def operands(case: Case, batch: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """A picture [batch, side, side, channels] and weights [results, channels, taps, taps]."""
    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    shapes = (
        (batch, case.side, case.side, case.channels),
        (case.results, case.channels // case.groups, case.taps, case.taps),
    )
    return tuple(rng.standard_normal(shape, np.float32).astype(kind) for shape in shapes)


def heddle_candidate(
    session: InferenceSession, case: Case, dtype: str, x: np.ndarray, w: np.ndarray
) -> Call:
    """A call of the case, with the result's buffer given."""
    moves = {"strides": (case.stride,) * 2, "padding": (case.padding,) * 4}
    weights = {}
    with Graph("conv", [TensorType(DType[dtype], x.shape)]) as graph:
        if case.pool:
            pool = ops.max_pool if case.pool == "max" else ops.avg_pool
            graph.output(pool(graph.inputs[0], window=(case.taps,) * 2, **moves))
        else:
            weight = graph.add_weight(Weight("w", DType[dtype], w.shape))
            weights["w"] = w
            graph.output(ops.conv(graph.inputs[0], weight, groups=case.groups, **moves))
    model = session.load(compile(graph, "cpu:native"), weights)
    given = Buffer.from_numpy(x)
    out = Buffer(dtype, (len(x), case.out, case.out, case.results))
    return lambda: model.execute(given, out=[out])


def peer_candidate(case: Case, x: np.ndarray, w: np.ndarray) -> Call:
    """A call of torch with channels last: its pooling, or oneDNN with packed weights."""
    import torch

    picture = torch.from_dlpack(Buffer.from_numpy(x)).permute(0, 3, 1, 2)
    if case.pool:
        functions = torch.nn.functional
        pool = functions.max_pool2d if case.pool == "max" else functions.avg_pool2d
        if case.out == 1:
            return lambda: functions.adaptive_avg_pool2d(picture, 1)
        return lambda: pool(picture, case.taps, case.stride, case.padding)
    weight = torch.from_dlpack(Buffer.from_numpy(w))
    weight = weight.contiguous(memory_format=torch.channels_last)
    moves = [case.padding] * 2, [case.stride] * 2, [1, 1], case.groups
    packed = torch.ops.mkldnn._reorder_convolution_weight(weight, *moves, list(picture.shape))
    into = ("none", [], "")
    return lambda: torch.ops.mkldnn._convolution_pointwise(picture, packed, None, *moves, *into)


def bound(case: Case, batch: int, dtype: str, limit: dict[str, float]) -> float:
    """Seconds that it takes at the least.

    `limit` has operations and bytes in a second, and as `cache` what the last one holds.
    """
    moved = case.elements(batch) * (2 if dtype == "bfloat16" else 4)
    level = "L3" if "L3" in limit and moved < limit["cache"] else "memory"
    work = 0 if case.pool else case.operations(batch)
    return max(work / limit["peak"], moved / limit[level])


def row(
    case: Case,
    batch: int,
    dtype: str,
    limit: dict[str, float],
    times: dict[str, list[float]],
) -> dict[str, Any]:
    """The figures of a case; `limit` has operations and bytes in a second."""
    medians = {name: 1e3 * float(np.median(values)) for name, values in times.items()}
    found: dict[str, Any] = {"network": case.network, "dtype": dtype, "batch": batch}
    found |= {"side": case.side, "kernel": str(case)}
    found |= {f"{name}_ms": round(median, 4) for name, median in medians.items()}
    found["bound_ms"] = round(1e3 * bound(case, batch, dtype, limit), 4)
    if "peer" in medians:
        found["ratio"] = round(medians["peer"] / medians["heddle"], 3)
    if not case.pool:
        rate = 1e3 * case.operations(batch) / medians["heddle"]
        found["of peak"] = round(rate / limit["peak"], 3)
    return found


def child(dtypes: list[str], threads: int, rounds: int) -> None:
    """Measures with so many threads and prints a row for each case."""
    session, known = InferenceSession(threads=threads), limits.of(threads)
    if find_spec("torch"):
        import torch

        torch.set_num_threads(threads)
    for dtype in dtypes:
        peaks = known["tflop_s"]
        # With AVX2 all is multiplied in float32.
        sets = (f"AMX {dtype}", f"AVX-512 {dtype}", "AVX2 float32")
        peak = 1e12 * next(peaks[name] for name in sets if name in peaks)
        for batch in BATCHES:
            for case in CASES:
                x, w = operands(case, batch, dtype)
                calls = {"heddle": heddle_candidate(session, case, dtype, x, w)}
                if find_spec("torch"):
                    calls["peer"] = peer_candidate(case, x, w)
                limit = {level: 1e9 * rate for level, rate in known["copy_gb_s"].items()}
                limit |= {"peak": peak, "cache": last_cache(threads)}
                count = int(TURN_S / 2 / bound(case, batch, dtype, limit))
                times = measure.interleaved(calls, rounds, min(max(count, 1), 200))
                print(json.dumps(row(case, batch, dtype, limit, times)), flush=True)


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.dtype, options.threads, options.rounds)
        return
    given = ["--rounds", str(options.rounds), "--dtype", *options.dtype]
    rows = measure.of_child(__file__, options.threads, *given)
    figures: dict[str, Any] = {"threads": options.threads}
    if find_spec("torch"):
        figures["torch"] = version("torch")
        for dtype in options.dtype:
            for network in dict.fromkeys(case.network for case in CASES):
                found = [r for r in rows if (r["dtype"], r["network"]) == (dtype, network)]
                mean = geometric_mean([r["ratio"] for r in found])
                figures[f"{dtype}, {network}"] = round(mean, 3)
    print(figures)
    if options.save:
        print(measure.save("conv", {**figures, "rows": rows}))


if __name__ == "__main__":
    main()
