"""Products by weights, float32, bfloat16 and int8: Heddle beside oneDNN and OpenBLAS.

    python benchmarks/gemm.py [--threads 1 2] [--dtype float32 ...] [--rounds 15] [--odd] [--save]

oneDNN is called through torch with a weight that it has packed (`pip install torch`), OpenBLAS
through NumPy, float32 alone. All candidates take turns in one process, a child for each number of
threads. int8 is uint8 by int8 weights, summed exactly, with a scale for each column, to float32.
Rates are those of the median call. The ratio is the least one of any peer's time over Heddle's,
round by round (`measure.ratio`): above 1, Heddle is faster. As many multiplications in registers
alone take turns with the others: `of peak` is their time over Heddle's, and `at most` the ratio of
a Heddle that took no longer than they do. Where float32 is multiplied in tiles, these are its
registers, and `of multiply-adds` is the time of multiply-adds of float32 over Heddle's. The other
dtypes have `of second cache`, the time of as many products of tiles that come from there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from math import prod
from statistics import geometric_mean, median
from typing import Any

import measure
import ml_dtypes
import numpy as np
import registers

from heddle.graph import DType, Graph, TensorType, Weight, compile, ops
from heddle.runtime import Buffer, InferenceSession

DTYPES = ("float32", "bfloat16", "int8")
SHAPES = (
    *((size, size, size) for size in (512, 1024, 2048)),
    *((rows, k, n) for rows in (64, 512) for n, k in ((8192, 2048), (2048, 8192))),
)
"""m, k and n."""

ODD = (
    *((rows, 512, 512) for rows in (1, 3, 5, 13, 33, 65, 129)),
    *((64, 512, columns) for columns in (1, 16, 33, 65, 129, 1000, 1025)),
    *((64, k, 512) for k in (1, 3, 17, 65, 1023)),
    *((size, size, size) for size in (127, 257, 1025)),
)
"""Sizes that fill no tile, no panel and no word."""

TURN_S = 0.01
"""About how long a candidate's turn takes."""

BOUNDS = {
    "registers": "of peak",
    "multiply-adds": "of multiply-adds",
    "second cache": "of second cache",
}
"""What takes turns and is no peer, and what the share of Heddle's time is called that it takes."""

Call = Callable[[], object]
Shapes = tuple[tuple[int, int, int], ...]


def operands(dtype: str, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [m, k] and a weight [n, k]."""
    rng = np.random.default_rng(0)
    if dtype == "int8":
        weight = rng.integers(-127, 128, (n, k), np.int8)
        return rng.integers(0, 256, (m, k), np.uint8), weight
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    return tuple(rng.standard_normal(shape).astype(kind) for shape in ((m, k), (n, k)))


def heddle_candidate(session: InferenceSession, dtype: str, a: np.ndarray, w: np.ndarray) -> Call:
    """A call of the product, with the result's buffer given."""
    left, right = (DType.uint8, DType.int8) if dtype == "int8" else (DType[dtype],) * 2
    with Graph("product", [TensorType(left, a.shape)]) as graph:
        weight = graph.add_weight(Weight("w", right, w.shape))
        x = graph.inputs[0].tensor
        if dtype == "int8":
            scales = np.full(len(w), 0.01, np.float32)
            graph.output(ops.cast(ops.integer_matmul(x, weight.T), DType.float32) * scales)
        else:
            graph.output(x @ weight.T)
    model = session.load(compile(graph, "cpu:native"), {"w": w})
    given = Buffer.from_numpy(a)
    out = Buffer("float32" if dtype == "int8" else dtype, (len(a), len(w)))
    return lambda: model.execute(given, out=[out])


def onednn_candidate(dtype: str, a: np.ndarray, w: np.ndarray) -> Call:
    """A call of torch's oneDNN, with the weight packed for as many rows."""
    import torch

    x, weight = (torch.from_dlpack(Buffer.from_numpy(array)) for array in (a, w))
    if dtype == "int8":
        packed = torch.ops.onednn.qlinear_prepack(weight, list(a.shape))
        scales, zeros = torch.full((len(w),), 0.01), torch.zeros(len(w), dtype=torch.int64)
        into = (None, 1.0, 0, torch.float32, "none", [], "")
        return lambda: torch.ops.onednn.qlinear_pointwise(x, 1.0, 0, packed, scales, zeros, *into)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, len(a))
    return lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def candidates(
    session: InferenceSession, dtype: str, shape: tuple[int, int, int]
) -> dict[str, Call]:
    """What takes turns, by name."""
    a, w = operands(dtype, *shape)
    calls = {"heddle": heddle_candidate(session, dtype, a, w)}
    if find_spec("torch"):
        with suppress(RuntimeError):  # it has no product of bfloat16 for a CPU with AVX2 alone
            calls["onednn"] = onednn_candidate(dtype, a, w)
    if dtype == "float32":
        right = np.ascontiguousarray(w.T)
        out = np.empty((len(a), len(w)), np.float32)
        calls["openblas"] = lambda: np.matmul(a, right, out=out)
    return calls


def row(
    dtype: str,
    shape: tuple[int, int, int],
    threads: int,
    times: dict[str, list[float]],
    calls: int,
) -> dict[str, Any]:
    """The figures of a case."""
    m, k, n = shape
    own, least = times["heddle"], times.get("registers")
    peers = [times[name] for name in times if name not in ("heddle", *BOUNDS)]
    rates = {name: 2e-12 * m * k * n / median(times[name]) for name in times}
    found: dict[str, Any] = {"dtype": dtype, "m": m, "k": k, "n": n, "threads": threads}
    found |= {f"{name} TFLOP/s": round(rate, 3) for name, rate in rates.items()}
    for name, of in ("ratio", own), ("at most", least):
        if peers and of:
            found[name] = round(min(measure.ratio(peer, of, calls) for peer in peers), 3)
    for name, share in BOUNDS.items():
        if name in times:
            found[share] = round(measure.ratio(times[name], own, calls), 3)
    return found


def child(dtypes: list[str], shapes: Shapes, threads: int, rounds: int) -> None:
    """Measures with so many threads and prints a row for each case."""
    session = InferenceSession(threads=threads)
    if find_spec("torch"):
        import torch

        torch.set_num_threads(threads)
    for dtype in dtypes:
        for shape in shapes:
            least = registers.call(dtype, 2 * prod(shape), threads)
            taking_turns = candidates(session, dtype, shape)
            if registers.multiplies(dtype):
                taking_turns["registers"] = least
            if registers.in_tiles(dtype):
                if dtype == "float32":
                    name, bound = "multiply-adds", {"tiles": False}
                else:
                    name, bound = "second cache", {"resident": True}
                taking_turns[name] = registers.call(dtype, 2 * prod(shape), threads, **bound)
            calls = max(1, int(TURN_S / min(measure.once(least) for _ in range(3))))
            times = measure.interleaved(taking_turns, rounds, calls)
            print(json.dumps(row(dtype, shape, threads, times, calls)), flush=True)


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--odd", action="store_true", help="sizes that fill no tile")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.dtype, ODD if options.odd else SHAPES, options.threads[0], options.rounds)
        return
    given = ["--rounds", str(options.rounds), "--dtype", *options.dtype, *["--odd"] * options.odd]
    rows = [row for n in options.threads for row in measure.of_child(__file__, n, *given)]
    figures: dict[str, Any] = {}
    if find_spec("torch"):
        figures["torch"] = version("torch")
    for dtype in options.dtype:
        ratios = [row["ratio"] for row in rows if row["dtype"] == dtype and "ratio" in row]
        if ratios:
            figures[f"geometric mean of {dtype}"] = round(geometric_mean(ratios), 3)
    print(figures)
    if options.save:
        print(measure.save("gemm_odd" if options.odd else "gemm", {**figures, "rows": rows}))


if __name__ == "__main__":
    main()
