"""The limits of a GPU: bandwidth of its memory and L2 cache, its arithmetic, the cost of a launch.

Bandwidth is that of shipped kernels, `neg` (a map) and the maxima of rows; arithmetic that of
`gpu_probes`, from registers and shared memory. All run through the runtime, replayed as one CUDA
graph, on random values; the best of the launches counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, TensorValue, compile, ops, rounding
from heddle.kernels.registry import MACHINES
from heddle.pipelines.bench import limits
from heddle.pipelines.bench.limits import Limits
from heddle.pipelines.bench.machine import Level
from heddle.runtime import Accelerator, Artifact, Buffer, InferenceSession, replay
from heddle.runtime._core import cuda_info

MEMORY = 2**30
"""Bytes that are read, and in a copy as many written: more than any cache."""

L2_SHARE = 4
"""What goes to and fro in the L2 cache is this part of it, on each side."""

STEPS = 4096
"""Of a probe: milliseconds, where a wgmma step is 1024 cycles."""

LAUNCHES, CALLS = 20, 100
"""Launches of a graph, and calls in a graph of those that are short."""

COLUMNS = 4096
"""Of the rows whose maxima are taken."""


def gpu() -> dict[str, Any] | None:
    """What the runtime says of the first GPU, or None where there is none that can be used."""
    devices = cuda_info()["devices"]
    return devices[0] if devices else None


def levels(found: Limits) -> list[Level]:
    """The cache that keeps what fits, for rows of this GPU; threads have nothing to do with it."""
    return [Level("L2", found["l2_bytes"], 2**31)]


def of(again: bool = False) -> Limits | None:
    """The limits of the first GPU, as `limits.of` keeps them; None where there is none.

    A row has `gpu`, its name, and `l2_bytes` in the place of `threads`.

    Raises:
        ChildError: The child that measures crashed or hung.
    """
    device = gpu()
    if device is None:
        return None
    return limits.kept(device["name"], again, lambda: limits.asked({"gpu": 0, "threads": 1}))


def measure() -> Limits:
    """Measures the limits of the first GPU, in this process."""
    from heddle.pipelines.bench import gpu_probes

    device = gpu()
    assert device is not None, "asked for where there is one"
    session = InferenceSession([Accelerator()])
    result: Limits = {"gpu": device["name"], "l2_bytes": device["l2_bytes"], "others_share": 0.0}
    result |= {"read_gb_s": {}, "copy_gb_s": {}, "tflop_s": {}}
    for name, size in (("L2", device["l2_bytes"] // L2_SHARE), ("memory", MEMORY)):
        rows = max(size // (4 * COLUMNS), 1)
        moved, calls = 4 * rows * COLUMNS, CALLS if name == "L2" else 1
        for kind, emit, times in (("read", maxima, 1), ("copy", ops.neg, 2)):
            seconds = _fastest(session, operation(emit, rows), drawn((rows, COLUMNS)), calls)
            result[f"{kind}_gb_s"][name] = times * moved / seconds / 1e9
    arch = arch_of(device)
    for name, probe in gpu_probes.PROBES[arch].items():
        blocks = device["multiprocessors"] * probe.blocks
        artifact = gpu_probes.artifact(name, MACHINES[arch], blocks, STEPS)
        seconds = _fastest(session, artifact, operand(name.split()[1], gpu_probes.OPERAND_BYTES))
        result["tflop_s"][name] = probe.operations * blocks * STEPS / seconds / 1e12
    one = operation(ops.neg, 1, 1)
    result["call_us"] = 1e6 * _fastest(session, one, drawn((1, 1)), CALLS)
    return result


def arch_of(device: dict[str, Any]) -> str:
    """The architecture whose probes run on the device: as its artifacts would choose."""
    return "sm_90a" if device["capability"] == "9.0" else "sm_80"


def maxima(x: TensorValue) -> TensorValue:
    """The maximum of each row: next to nothing is written."""
    return ops.max(x, axis=1)


def operation(
    emit: Callable[[TensorValue], TensorValue], rows: int, columns: int = COLUMNS
) -> Artifact:
    """`emit` of rows of float32, compiled for GPUs."""
    shape = TensorType(DType.float32, (rows, columns), DeviceRef.GPU())
    with Graph("limit", [shape]) as graph:
        graph.output(emit(graph.inputs[0].tensor))
    made: Artifact = compile(graph, ["cuda"])
    return made


def drawn(shape: tuple[int, ...]) -> Any:
    """Normal float32."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def operand(dtype: str, size: int) -> Any:
    """So many bytes as int32: normal numbers of `dtype`; of float32 and float64 about one half."""
    if dtype in ("float32", "float64"):
        return np.full(size // np.dtype(dtype).itemsize, 0.5, dtype).view(np.int32)
    numbers = drawn((size,))
    if dtype == "int8":
        numbers = (32 * numbers).clip(-127, 127).astype(np.int8)
    elif dtype != "tf32":
        stored = DType.float8_e4m3fn if dtype == "float8" else DType[dtype]
        numbers = rounding.stored(numbers, stored)
    return numbers.view(np.int32)[: size // 4]


def _fastest(session: InferenceSession, artifact: Artifact, x: Any, calls: int = 1) -> float:
    """The least seconds of one of `calls` calls in a graph, which all read and write the same."""
    device, model = session.devices[0], session.load(artifact)
    (output,) = model.output_metadata
    y = Buffer(output.dtype, tuple(map(int, output.shape)), device)
    return min(replay([(model, (Buffer.from_numpy(x).to(device),), (y,))], calls, LAUNCHES)) / calls
