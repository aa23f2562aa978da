"""What `bandwidth.py` times: operations that memory bounds, in Heddle and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from heddle.graph import DeviceRef, DType, ops

ROWS, COLUMNS = 4096, 4096

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
    """What is computed of `inputs` for an array of `shape`.

    `torch` is the same, of tensors, and `into` what writes that to its last argument.
    """

    compute: Compute
    torch: Compute | None = None
    inputs: tuple[Make, ...] = (floats,)
    shape: tuple[int, ...] = WIDE
    into: Compute | None = None


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


def fused() -> Any:
    """What `functional` calls, which takes `out`."""
    return torch()._C._nn


def copied(x: Any, out: Any) -> Any:
    """`out` with the elements of `x`."""
    return out.copy_(x)


def gate(x: Any, y: Any, out: Any) -> Any:
    """`silu(x) * y` in `out`."""
    return fused().silu(x, out=out).mul_(y)


def transposed(*shape: int) -> Operation:
    """The transpose of a matrix."""
    return Operation(
        lambda x: ops.transpose(x, 0, 1),
        lambda x: x.T.contiguous(),
        shape=shape,
        into=lambda x, out: copied(x.T, out),
    )


def softmaxes(*shape: int) -> Operation:
    """The softmax of rows."""
    return Operation(
        ops.softmax,
        lambda x: x.softmax(-1),
        shape=shape,
        into=lambda x, out: torch().softmax(x, -1, out=out),
    )


LAYER_NORM = norm("layer_norm", "weight", "bias")
RMS_NORM = norm("rms_norm", "weight")

TWO = (floats, floats)

OPERATIONS = {
    "add": Operation(
        lambda x, y: x + y,
        lambda x, y: x + y,
        TWO,
        into=lambda x, y, out: torch().add(x, y, out=out),
    ),
    "cast to bfloat16": Operation(
        lambda x: ops.cast(x, DType.bfloat16), lambda x: x.bfloat16(), into=copied
    ),
    "gelu": Operation(
        ops.gelu, lambda x: functional().gelu(x), into=lambda x, out: fused().gelu(x, out=out)
    ),
    "gelu, tanh form": Operation(
        lambda x: ops.gelu(x, approximate="tanh"),
        lambda x: functional().gelu(x, approximate="tanh"),
        into=lambda x, out: fused().gelu(x, approximate="tanh", out=out),
    ),
    "silu(x) * y": Operation(
        lambda x, y: ops.silu(x) * y, lambda x, y: functional().silu(x) * y, TWO, into=gate
    ),
    "rms_norm": Operation(*RMS_NORM),
    "rms_norm, 384 columns": Operation(*RMS_NORM, shape=(43_690, 384)),
    "layer_norm": Operation(*LAYER_NORM),
    "layer_norm, 384 columns": Operation(*LAYER_NORM, shape=(43_690, 384)),
    "softmax": softmaxes(*WIDE),
    "softmax, 1024 columns": softmaxes(4 * ROWS, COLUMNS // 4),
    "transpose": transposed(*WIDE),
    "transpose, 4000 x 4144": transposed(4000, 4144),
    "transpose, 3 lines": transposed(3, 5_592_064),
    "transpose, lines of 3": transposed(5_592_064, 3),
    "concat": Operation(
        lambda x, y: ops.concat([x, y], 1),
        lambda x, y: torch().cat((x, y), 1),
        TWO,
        into=lambda x, y, out: torch().cat((x, y), 1, out=out),
    ),
    "sum of rows": Operation(lambda x: ops.sum(x, axis=1), lambda x: x.sum(1, keepdim=True)),
    "max of columns": Operation(lambda x: ops.max(x, axis=0), lambda x: x.amax(0, keepdim=True)),
    "cumsum": Operation(
        ops.cumsum, lambda x: x.cumsum(-1), into=lambda x, out: torch().cumsum(x, -1, out=out)
    ),
    "argmax": Operation(ops.argmax, lambda x: x.argmax(-1, keepdim=True)),
    "top_k of 50": Operation(lambda x: ops.top_k(x, 50), lambda x: x.topk(50)),
    "gather of rows": Operation(
        lambda x, rows: ops.gather(x, rows, 0),
        lambda x, rows: x[rows],
        (floats, order),
        into=lambda x, rows, out: torch().index_select(x, 0, rows, out=out),
    ),
    "take_along": Operation(
        ops.take_along,
        lambda x, places: x.gather(-1, places),
        (floats, places),
        (ROWS, 1024),
        lambda x, places, out: torch().gather(x, -1, places, out=out),
    ),
    "rope": Operation(ops.rope, None, (floats, angles, angles), (ROWS, 32, 128)),
    "cast to float8": Operation(
        lambda x: ops.cast(x, DType.float8_e4m3fn),
        lambda x: x.to(torch().float8_e4m3fn),
        into=copied,
    ),
    "cast from float8": Operation(lambda x: ops.cast(x, DType.float32), None, (bytes_of_floats,)),
}
