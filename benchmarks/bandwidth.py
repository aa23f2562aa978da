"""Kernels that memory bounds, beside a copy: how much of its bandwidth they reach.

    python benchmarks/bandwidth.py [--dtype bfloat16] [--threads 2] [--peer torch] [--save]

Each operation runs on 64 MiB and more of float32, or of 16 bits, by as many sets of buffers as fill
the last cache four times, in turns with two copies of `heddle bench`'s limits: one with ordinary
stores and one past the cache. `share` is the operation's bytes a second, inputs read and outputs
written once, over those of the faster copy: medians of the same turns.
Outputs are the caller's. `torch` is eager PyTorch in the same turns, which makes a
new output in each call: its median, and `ratio`, that over Heddle's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

import measure
import ml_dtypes
import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, compile, ops
from heddle.graph.targets import native_level
from heddle.pipelines.bench import probes
from heddle.runtime import InferenceSession, Model

ROWS, COLUMNS = 4096, 4096
ROUNDS, CALLS = 9, 3
DTYPES = ("float32", "bfloat16", "float16")

Compute = Callable[..., Any]

Make = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Makes one input of an operation on so large an array."""


def floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def order(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All rows, in another order."""
    return rng.permutation(shape[0])


def places(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A place in its row for each element."""
    return rng.integers(0, shape[-1], shape)


def angles(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A table for the pairs of each position, the same for all heads."""
    return rng.standard_normal((shape[0], 1, shape[-1] // 2), np.float32)


def bytes_of_floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return floats(rng, shape).astype(ml_dtypes.float8_e4m3fn)


def ones(columns: int, dtype: DType) -> Any:
    return ops.constant(np.ones(columns, np.float32), dtype, DeviceRef.CPU())


WIDE = (ROWS, COLUMNS)


class Operation(NamedTuple):
    """What is computed of `inputs` for an array of `shape`; `torch` is the same, of tensors."""

    compute: Compute
    torch: Compute | None = None
    inputs: tuple[Make, ...] = (floats,)
    shape: tuple[int, ...] = WIDE


def norm(name: str, *parameters: str) -> tuple[Compute, Compute]:
    """A norm of the last axis, in Heddle and in torch."""

    def compute(x: Any) -> Any:
        columns = int(x.shape[-1])
        return getattr(ops, name)(x, *(ones(columns, x.dtype) for _ in parameters), 1e-5)

    def eager(x: Any) -> Any:
        columns = x.shape[-1]
        given = {parameter: x.new_ones(columns) for parameter in parameters}
        return getattr(functional(), name)(x, (columns,), **given, eps=1e-5)

    return compute, eager


def torch() -> Any:
    """PyTorch, which only `--peer torch` needs."""
    return import_module("torch")


def functional() -> Any:
    return import_module("torch.nn.functional")


LAYER_NORM = norm("layer_norm", "weight", "bias")
RMS_NORM = norm("rms_norm", "weight")
SOFTMAX = (ops.softmax, lambda x: x.softmax(-1))

TWO = (floats, floats)

OPERATIONS = {
    "add": Operation(lambda x, y: x + y, lambda x, y: x + y, TWO),
    "cast to bfloat16": Operation(lambda x: ops.cast(x, DType.bfloat16), lambda x: x.bfloat16()),
    "gelu": Operation(ops.gelu, lambda x: functional().gelu(x)),
    "gelu, tanh form": Operation(
        lambda x: ops.gelu(x, approximate="tanh"),
        lambda x: functional().gelu(x, approximate="tanh"),
    ),
    "silu(x) * y": Operation(
        lambda x, y: ops.silu(x) * y, lambda x, y: functional().silu(x) * y, TWO
    ),
    "rms_norm": Operation(*RMS_NORM),
    "rms_norm, 384 columns": Operation(*RMS_NORM, shape=(43_690, 384)),
    "layer_norm": Operation(*LAYER_NORM),
    "layer_norm, 384 columns": Operation(*LAYER_NORM, shape=(43_690, 384)),
    "softmax": Operation(*SOFTMAX),
    "softmax, 1024 columns": Operation(*SOFTMAX, shape=(4 * ROWS, COLUMNS // 4)),
    "transpose": Operation(lambda x: ops.transpose(x, 0, 1), lambda x: x.T.contiguous()),
    "transpose, 4000 x 4144": Operation(
        lambda x: ops.transpose(x, 0, 1), lambda x: x.T.contiguous(), shape=(4000, 4144)
    ),
    "transpose, 3 lines": Operation(
        lambda x: ops.transpose(x, 0, 1), lambda x: x.T.contiguous(), shape=(3, 5_592_064)
    ),
    "transpose, lines of 3": Operation(
        lambda x: ops.transpose(x, 0, 1), lambda x: x.T.contiguous(), shape=(5_592_064, 3)
    ),
    "concat": Operation(
        lambda x, y: ops.concat([x, y], 1), lambda x, y: torch().cat((x, y), 1), TWO
    ),
    "sum of rows": Operation(lambda x: ops.sum(x, axis=1), lambda x: x.sum(1, keepdim=True)),
    "max of columns": Operation(lambda x: ops.max(x, axis=0), lambda x: x.amax(0, keepdim=True)),
    "cumsum": Operation(ops.cumsum, lambda x: x.cumsum(-1)),
    "argmax": Operation(ops.argmax, lambda x: x.argmax(-1, keepdim=True)),
    "top_k of 50": Operation(lambda x: ops.top_k(x, 50), lambda x: x.topk(50)),
    "gather of rows": Operation(
        lambda x, rows: ops.gather(x, rows, 0), lambda x, rows: x[rows], (floats, order)
    ),
    "take_along": Operation(
        ops.take_along, lambda x, places: x.gather(-1, places), (floats, places), (ROWS, 1024)
    ),
    "rope": Operation(ops.rope, None, (floats, angles, angles), (ROWS, 32, 128)),
    "cast to float8": Operation(
        lambda x: ops.cast(x, DType.float8_e4m3fn), lambda x: x.to(torch().float8_e4m3fn)
    ),
    "cast from float8": Operation(lambda x: ops.cast(x, DType.float32), None, (bytes_of_floats,)),
}


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
        eager = [partial(operation.torch, *map(tensor, arrays)) for arrays in given]
        calls[peer] = measure.Turns(eager)
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
