"""Checks of what a decoder does in a step by one kernel, and no op does alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpu_operands
import numpy as np

from heddle.graph import DType, Graph, TensorType, ops
from heddle.graph.reference import evaluate
from heddle.pipelines.bench import data

HEADS, KEY_HEADS, BLOCK = 8, 2, 16

COUNTS, LENGTHS = (1, 5, 3), (40, 5, 20)
"""Tokens of each row in the step, and of its sequence with them."""

WIDTHS = (2048, 256, 256)
"""Columns of queries, keys and values: strips of the first are cut into fewer parts than others."""


def products(dtype: DType) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """Queries, keys and values of a few rows: products of one left side.

    The case, its graph and its arrays, as `gpu_kit.checks` has them.
    """
    rows, k = 5, 4096
    types = [TensorType(dtype, (rows, k)), *(TensorType(dtype, (n, k)) for n in WIDTHS)]
    with Graph("products", types) as graph:
        x, *sides = (value.tensor for value in graph.inputs)
        graph.output(*(x @ side.T for side in sides))
    return _case("queries keys values", dtype, {"m": rows, "k": k}, graph, types, {}, 2 * k)


def gated(dtype: DType) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """What a decoder makes of a few rows by a gate and what it multiplies, in strips that are cut.

    The case, its graph and its arrays, as `gpu_kit.checks` has them.
    """
    rows, n, k = 5, 256, 2048
    types = [TensorType(dtype, (rows, k)), *(TensorType(dtype, (n, k)) for _ in range(2))]
    with Graph("gated", types) as graph:
        x, *sides = (value.tensor for value in graph.inputs)
        gate, up = (ops.cast(x @ side.T, DType.float32) for side in sides)
        graph.output(ops.cast(ops.silu(gate) * up, dtype))
    return _case("gated", dtype, {"m": rows, "n": n, "k": k}, graph, types, {}, 4 * k)


def step(dtype: DType, size: int) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """Queries and keys of float32 are turned; keys and values go to caches of `dtype`.

    The case, its graph and its arrays, as `gpu_kit.checks` has them.
    """
    tokens, width, rng = sum(COUNTS), -(-max(LENGTHS) // BLOCK), np.random.default_rng(data.SEED)
    cache = (len(COUNTS) * width, BLOCK, KEY_HEADS, size)
    types = [
        *(TensorType(dtype, cache) for _ in range(2)),
        TensorType(DType.float32, (tokens, HEADS, size)),
        TensorType(DType.float32, (tokens, KEY_HEADS, size)),
        TensorType(dtype, (tokens, KEY_HEADS, size)),
        *(TensorType(DType.float32, (tokens, 1, size // 2)) for _ in range(2)),
        TensorType(DType.int64, (len(COUNTS) + 1,)),
        TensorType(DType.int64, (len(COUNTS),)),
        TensorType(DType.int32, (len(COUNTS), width)),
    ]
    with Graph("step", types) as graph:
        keys, values, query, key, value, cos, sin, *rows = (x.tensor for x in graph.inputs)
        query, key = (ops.cast(ops.rope(x, cos, sin), dtype) for x in (query, key))
        graph.output(
            query, ops.paged_write(keys, key, *rows), ops.paged_write(values, value, *rows)
        )
    blocks = rng.permutation(cache[0]).reshape(len(COUNTS), width).astype(np.int32)
    held = {
        "in7": np.concatenate([[0], np.cumsum(COUNTS)]),
        "in8": np.array(LENGTHS),
        "in9": blocks,
    }
    sizes = {"tokens": tokens, "d": size}
    return _case("rope cache cache", dtype, sizes, graph, types, held, 3)


def _case(
    name: str,
    dtype: DType,
    sizes: dict[str, int],
    graph: Graph,
    types: Sequence[TensorType],
    held: dict[str, Any],
    operations: int,
) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """A check of `graph`, with so many operations for each element of its results."""

    def plain(type: TensorType, values: str = "") -> dict[str, Any]:
        shape = [int(n) for n in type.shape]
        return {"dtype": type.dtype.name, "shape": shape, "weight": False, "values": values}

    operands = [plain(type, "rows" if f"in{i}" in held else "") for i, type in enumerate(types)]
    arrays = gpu_operands.drawn({"operands": operands}, 0, held)
    pairs = zip(arrays, operands, strict=True)
    results = evaluate(graph, [gpu_operands.floats(a, o["dtype"]) for a, o in pairs])
    made = [plain(TensorType(dtype, array.shape)) for array in results]
    case = {
        "name": name,
        "dtype": dtype.name,
        "sizes": sizes,
        "operands": operands,
        "fingerprint": gpu_operands.fingerprint(arrays),
        "results": made,
        "tolerances": [data.tolerance(dtype, operations, 1) for _ in results],
    }
    return case, graph, held | {f"out{i}": array for i, array in enumerate(results)}
