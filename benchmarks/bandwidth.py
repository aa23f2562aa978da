"""Kernels that memory bounds, beside a copy: how much of its bandwidth they reach.

    python benchmarks/bandwidth.py [--threads 2] [--save]

Each operation runs on 64 MiB and more of float32, in turns with two copies of `heddle bench`'s
limits: one with ordinary stores and one past the cache. `share` is the operation's bytes a second,
inputs read and outputs written once, over those of the faster copy: medians of the same turns.
Outputs are the caller's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import measure
import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, compile, ops
from heddle.graph.targets import native_level
from heddle.pipelines.bench import probes
from heddle.runtime import InferenceSession, Model

ROWS, COLUMNS = 4096, 4096
ROUNDS, CALLS = 9, 3

Compute = Callable[..., Any]


def ones(columns: int) -> Any:
    return ops.constant(np.ones(columns, np.float32), DType.float32, DeviceRef.CPU())


OPERATIONS: dict[str, tuple[Compute, int, tuple[int, int]]] = {
    "add": (lambda x, y: x + y, 2, (ROWS, COLUMNS)),
    "cast to bfloat16": (lambda x: ops.cast(x, DType.bfloat16), 1, (ROWS, COLUMNS)),
    "gelu": (ops.gelu, 1, (ROWS, COLUMNS)),
    "silu(x) * y": (lambda x, y: ops.silu(x) * y, 2, (ROWS, COLUMNS)),
    "rms_norm": (lambda x: ops.rms_norm(x, ones(COLUMNS), 1e-5), 1, (ROWS, COLUMNS)),
    "rms_norm, 384 columns": (lambda x: ops.rms_norm(x, ones(384), 1e-5), 1, (43_690, 384)),
    "layer_norm": (
        lambda x: ops.layer_norm(x, ones(COLUMNS), ones(COLUMNS), 1e-5),
        1,
        (ROWS, COLUMNS),
    ),
    "softmax": (ops.softmax, 1, (ROWS, COLUMNS)),
    "softmax, 1024 columns": (ops.softmax, 1, (4 * ROWS, COLUMNS // 4)),
    "transpose": (lambda x: ops.transpose(x, 0, 1), 1, (ROWS, COLUMNS)),
}
"""What is computed, its inputs, and their shape."""


def prepared(
    session: InferenceSession, compute: Compute, count: int, shape: tuple[int, int]
) -> tuple[Callable[[], object], int]:
    """A call of `compute`, and the bytes that it reads and writes."""
    kind = TensorType(DType.float32, shape, DeviceRef.CPU())
    with Graph("operation", input_types=[kind] * count) as graph:
        graph.output(compute(*graph.inputs))
    model: Model = session.load(compile(graph, targets=["cpu"]))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, np.float32) for _ in range(count)]
    outputs = model.execute(*inputs)
    moved = sum(array.nbytes for array in inputs) + outputs[0].nbytes
    return partial(model.execute, *inputs, out=outputs), moved


def copies(session: InferenceSession, threads: int) -> tuple[dict[str, Callable[[], object]], int]:
    """Both copies of the same bytes, and how many they read and write."""
    step = 16 * probes.CHAINS
    words = ROWS * COLUMNS // threads // step * step
    source = np.full(threads * words, 1.5, np.float32).view(np.int32)
    calls = {}
    for kind in ("copy", "stream"):
        artifact = probes.artifact(kind, native_level(), threads, words, 1, threads * words)
        model = session.load(artifact)
        calls[kind] = partial(model.execute, source, out=model.execute(source))
    return calls, 2 * source.nbytes


def measured(session: InferenceSession, name: str, threads: int) -> dict[str, Any]:
    call, moved = prepared(session, *OPERATIONS[name])
    candidates, copied = copies(session, threads)
    times = measure.interleaved({**candidates, name: call}, ROUNDS, CALLS)
    medians = {key: measure.median_ms(seconds) for key, seconds in times.items()}
    copy = max(copied / medians[kind] for kind in candidates)
    achieved = moved / medians[name]
    return {
        "operation": name,
        "MiB": round(moved / 2**20),
        "median_ms": medians[name],
        "GB/s": round(achieved / 1e6, 1),
        "copy GB/s": round(copy / 1e6, 1),
        "share": round(achieved / copy, 2),
    }


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    session = InferenceSession(threads=options.threads)
    rows = []
    for name in OPERATIONS:
        rows.append(measured(session, name, options.threads))
        print(json.dumps(rows[-1]), flush=True)
    if options.save:
        print(measure.save("bandwidth", {"threads": options.threads, "rows": rows}))


if __name__ == "__main__":
    main()
