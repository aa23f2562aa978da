"""The operands of a case: how their elements are drawn, and the sets of buffers that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.graph import DType, TensorType
from heddle.graph.rounding import held, loaded, stored
from heddle.pipelines.bench.machine import PER_CACHE
from heddle.pipelines.bench.workload import Operand, Workload
from heddle.runtime import CPU, Buffer, Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 0

MOST_SETS, MOST_WEIGHTS = 4096, 64
"""Sets of small operands, each of which costs a few objects; each set of weights is a model."""

MOST_BYTES = 4 * 2**30
"""Of all sets together, where there are more than two."""


ROWS: dict[str, Callable[[np.random.Generator, tuple[int, ...], int], NDArray[Any]]] = {
    "offsets": lambda rng, shape, length: np.arange(shape[0]) * length,
    "lengths": lambda rng, shape, length: np.full(shape, length),
    "blocks": lambda rng, shape, length: rng.permutation(np.prod(shape)).reshape(shape),
    "sampling": lambda rng, shape, length: np.tile([0.8, 0.95, 0.05, 0.5, 0.5, 1.1], (shape[0], 1)),
    "top-k and seed": lambda rng, shape, length: np.stack(
        [np.full(shape[0], 50), np.arange(shape[0])], axis=1
    ),
    "seen": lambda rng, shape, length: np.stack(
        [np.arange(shape[0]) % length, rng.integers(0, 4, shape[0])], axis=1
    ),
    "sinks": lambda rng, shape, length: rng.normal(np.log(max(length, 1)), 1, shape),
}
"""What the rows of a step have: where each begins, how long it is, which blocks hold it, how its
tokens are sampled, which tokens it has seen and how often; sinks that weigh as much as its keys."""


def draw(workload: Workload, sizes: Mapping[str, int], dtype: DType, inputs: str) -> list[Any]:
    """One NumPy array for each operand; what NumPy lacks as rounded float32."""
    rng = np.random.default_rng(SEED)
    types = workload.types(sizes, dtype)
    return [
        _draw(rng, operand, type, sizes, inputs)
        for operand, type in zip(workload.operands, types, strict=True)
    ]


def _draw(
    rng: np.random.Generator,
    operand: Operand,
    type: TensorType,
    sizes: Mapping[str, int],
    inputs: str,
) -> NDArray[Any]:
    shape, dtype = tuple(map(int, type.shape)), type.dtype
    if operand.values == "index":
        return rng.integers(0, sizes[operand.below], shape, dtype.to_numpy())
    if operand.values in ROWS:
        return ROWS[operand.values](rng, shape, sizes[operand.below]).astype(dtype.to_numpy())
    if inputs == "zeros":
        return np.zeros(shape, dtype.to_numpy())
    if not dtype.is_float:
        least = 1 if operand.values == "positive" else -8 if dtype.is_signed else 0
        low, high = (0, 2) if dtype is DType.bool else (least, 8)
        return rng.integers(low, high, shape).astype(dtype.to_numpy())
    wide = np.float64 if dtype is DType.float64 else np.float32
    values = rng.standard_normal(shape, wide)
    if operand.values == "positive":
        values = np.abs(values) + wide(1e-3)
    return held(values, dtype)


def described(workload: Workload, dtype: DType, inputs: str) -> str:
    """The distribution in words."""
    if inputs == "zeros":
        return "zeros"
    texts = []
    for operand in workload.operands:
        name = operand.dtype or dtype.name
        if operand.values == "index":
            texts.append(f"uniform below {operand.below}")
        elif operand.values in ROWS:
            texts.append(operand.values)
        elif "float" not in name:
            texts.append("uniform")
        else:
            texts.append({"normal": "normal", "positive": "|normal| + 0.001"}[operand.values])
    return ", ".join(dict.fromkeys(texts))


def buffer_of(array: NDArray[Any], dtype: DType, device: Device | None = None) -> Buffer:
    """A new buffer with the values of `array`."""
    buffer = Buffer.from_numpy(np.ascontiguousarray(stored(array, dtype)), dtype=dtype.name)
    return buffer.copy() if device is None or device == CPU() else buffer.to(device)


def array_of(buffer: Buffer, dtype: DType) -> NDArray[Any]:
    """The values of a buffer; what NumPy lacks as float32."""
    return loaded(buffer.to_numpy().view(dtype.to_bits()), dtype)


def sets_wanted(held: int, used: int, last_cache: int, weighted: bool) -> int:
    """How many sets a cold run rotates over: at least two, and the last cache `PER_CACHE` times.

    Of the `held` bytes of a set a call uses `used`; all sets together are bounded.
    """
    most = min(MOST_WEIGHTS if weighted else MOST_SETS, MOST_BYTES // max(held, 1))
    return max(min(-(-PER_CACHE * last_cache // max(used, 1)), most), 2)


def allowed(workload: Workload, sizes: Mapping[str, int], dtype: DType) -> float:
    """The error that is allowed to the result of `workload`."""
    result, cost = workload.result(sizes, dtype), workload.cost(sizes, dtype)
    sums = FLOAT8_SUMS if workload.op == "float8_matmul" else 2.0**-23
    elements, operations = int(result.shape.elements), int(cost.operations)
    if workload.op == "cumsum":  # each element is one more term of the sum before it
        axis = workload.canonical(sizes, dtype)["axis"]
        operations = elements * int(result.shape[axis])
    return tolerance(result.dtype, operations, elements, sums)


FLOAT8_SUMS = 2.0**-17
"""A step, on average, of sums of products of 8-bit floats on sm_90a: of each 32 products tensor
cores keep 14 bits (DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.5.2)."""


def tolerance(dtype: DType, operations: int, elements: int, sums: float = 2.0**-23) -> float:
    """The error that is allowed to a result of `dtype`.

    Rounding of the result, and of a sum of as many terms as there are operations for an element,
    whose errors grow like the root of their number; bfloat16 and float16 compute in float32.
    `sums`: a step of theirs.
    """
    if not dtype.is_float:
        return 0.0
    steps = {
        DType.float64: 2.0**-52,
        DType.float32: 2.0**-23,
        DType.float16: 2.0**-10,
        DType.bfloat16: 2.0**-7,
        DType.float8_e4m3fn: 2.0**-3,
        DType.float8_e5m2: 2.0**-2,
    }
    own = steps[dtype]
    inner = own if dtype is DType.float64 else sums
    return float(2 * own + 16 * inner * (1 + operations / max(elements, 1)) ** 0.5)


def total_bytes(types: Sequence[TensorType]) -> int:
    """The bytes of tensors of `types`."""
    return sum(int(type.shape.elements) * type.dtype.size for type in types)
