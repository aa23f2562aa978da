"""Kernels that memory bounds, beside a copy: how much of its bandwidth they reach.

    python benchmarks/bandwidth.py [--dtype bfloat16] [--threads 2] [--peer torch] [--save]

Each operation runs on 64 MiB and more of float32, or of 16 bits, by as many sets of buffers as fill
the last cache four times, in turns with two copies of `heddle bench`'s limits: one with ordinary
stores and one past the cache. `share` is the operation's bytes a second, inputs read and outputs
written once, over those of the faster copy: medians of the same turns.
Outputs are the caller's. `torch` is eager PyTorch in the same turns, as people write it, which
makes a new output in each call: its median, and `ratio`, that over Heddle's. `torch, given its
output` is the same with `out=`, where PyTorch can be told so, and `ratio, given it` that one's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import measure
import ml_dtypes
import numpy as np
from bandwidth_operations import COLUMNS, OPERATIONS, ROWS, Operation, torch

from heddle.graph import DeviceRef, DType, Graph, TensorType, compile
from heddle.graph.targets import native_level
from heddle.pipelines.bench import probes
from heddle.runtime import InferenceSession, Model

ROUNDS, CALLS = 9, 3
DTYPES = ("float32", "bfloat16", "float16")

INTO = "into"
"""The peer that is told where to write."""


def tensor(array: np.ndarray) -> Any:
    """The same as a tensor of torch, which takes no bfloat16 from NumPy."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch().from_numpy(array.view(np.int16)).view(torch().bfloat16)
    return torch().from_numpy(array)


def prepared(
    session: InferenceSession, operation: Operation, dtype: DType, peer: str | None, threads: int
) -> tuple[dict[str, Callable[[], object]], int]:
    """Calls of Heddle and of the peer, and the bytes that each reads and writes."""
    inputs = drawn(operation, dtype, 0)
    kinds = [TensorType(DType(x.dtype.name), x.shape, DeviceRef.CPU()) for x in inputs]
    with Graph("operation", input_types=kinds) as graph:
        results = operation.compute(*graph.inputs)
        graph.output(*(results if isinstance(results, tuple) else [results]))
    model: Model = session.load(compile(graph, targets=["cpu"]))
    outputs = model.execute(*inputs)
    moved = sum(array.nbytes for array in (*inputs, *outputs))
    given = [inputs, *(drawn(operation, dtype, seed) for seed in range(1, measure.sets(moved)))]
    own = [partial(model.execute, *arrays, out=model.execute(*arrays)) for arrays in given]
    calls: dict[str, Callable[[], object]] = {"heddle": measure.Turns(own)}
    if peer and operation.torch:
        torch().set_num_threads(threads)
        tensors = [[tensor(array) for array in arrays] for arrays in given]
        calls[peer] = measure.Turns([partial(operation.torch, *each) for each in tensors])
        if operation.into:
            calls[INTO] = measure.Turns(
                [partial(operation.into, *each, operation.torch(*each)) for each in tensors]
            )
    return calls, moved


def drawn(operation: Operation, dtype: DType, seed: int) -> list[np.ndarray]:
    """A set of inputs, of as many bytes in any dtype."""
    rng, (rows, *columns) = np.random.default_rng(seed), operation.shape
    inputs = [make(rng, (rows * 4 // dtype.size, *columns)) for make in operation.inputs]
    return [x.astype(dtype.value) if x.dtype == np.float32 else x for x in inputs]


def copies(session: InferenceSession, threads: int) -> tuple[dict[str, Callable[[], object]], int]:
    """Both copies of the same bytes, and how many they read and write."""
    step = 16 * probes.CHAINS
    words = ROWS * COLUMNS // threads // step * step
    nbytes = 4 * threads * words
    sources = [
        np.full(threads * words, 1.5, np.float32).view(np.int32)
        for _ in range(measure.sets(2 * nbytes))
    ]
    calls = {}
    for kind in ("copy", "stream"):
        artifact = probes.artifact(kind, native_level(), threads, words, 1, threads * words)
        model = session.load(artifact)
        each = [partial(model.execute, source, out=model.execute(source)) for source in sources]
        calls[kind] = measure.Turns(each)
    return calls, 2 * nbytes


def measured(
    session: InferenceSession, name: str, dtype: DType, peer: str | None, threads: int
) -> dict[str, Any]:
    calls, moved = prepared(session, OPERATIONS[name], dtype, peer, threads)
    candidates, copied = copies(session, threads)
    times = measure.interleaved({**candidates, **calls}, ROUNDS, CALLS)
    medians = {key: measure.median_ms(seconds) for key, seconds in times.items()}
    copy = max(copied / medians[kind] for kind in candidates)
    achieved = moved / medians["heddle"]
    row = {
        "operation": name,
        "MiB": round(moved / 2**20),
        "median_ms": medians["heddle"],
        "GB/s": round(achieved / 1e6, 1),
        "copy GB/s": round(copy / 1e6, 1),
        "share": round(achieved / copy, 2),
    }
    if peer in medians:
        row |= {f"{peer}_ms": medians[peer], "ratio": round(medians[peer] / medians["heddle"], 2)}
    if INTO in medians:
        ratio = round(medians[INTO] / medians["heddle"], 2)
        row |= {f"{peer}, given its output_ms": medians[INTO], "ratio, given it": ratio}
    return row


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="the operations; all where none is named")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", choices=["torch"])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    session = InferenceSession(threads=options.threads)
    dtype, rows = DType(options.dtype), []
    for name in options.names or OPERATIONS:
        if name == f"cast to {dtype}":
            continue  # nothing is left of it
        rows.append(measured(session, name, dtype, options.peer, options.threads))
        print(json.dumps(rows[-1]), flush=True)
    figures: dict[str, Any] = {"threads": options.threads, "rows": rows}
    if options.peer:
        figures["torch"] = version("torch")
    if options.save:
        end = "" if dtype is DType.float32 else f"_{dtype}"
        print(measure.save(f"bandwidth{end}", figures))


if __name__ == "__main__":
    main()
