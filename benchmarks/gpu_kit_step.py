"""A check of what a decoder does to its cache in a step, which no op does alone."""

from __future__ import annotations

from typing import Any

import gpu_operands
import numpy as np

from heddle.graph import DType, Graph, TensorType, ops
from heddle.graph.reference import evaluate
from heddle.pipelines.bench import data

HEADS, KEY_HEADS, BLOCK = 8, 2, 16

COUNTS, LENGTHS = (1, 5, 3), (40, 5, 20)
"""Tokens of each row in the step, and of its sequence with them."""


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

    def plain(type: TensorType, values: str = "") -> dict[str, Any]:
        shape = [int(n) for n in type.shape]
        return {"dtype": type.dtype.name, "shape": shape, "weight": False, "values": values}

    operands = [plain(type, "rows" if f"in{i}" in held else "") for i, type in enumerate(types)]
    arrays = gpu_operands.drawn({"operands": operands}, 0, held)
    pairs = zip(arrays, operands, strict=True)
    results = evaluate(graph, [gpu_operands.floats(a, o["dtype"]) for a, o in pairs])
    made = [plain(TensorType(dtype, array.shape)) for array in results]
    case = {
        "name": "rope cache cache",
        "dtype": dtype.name,
        "sizes": {"tokens": tokens, "d": size},
        "operands": operands,
        "fingerprint": gpu_operands.fingerprint(arrays),
        "results": made,
        "tolerances": [data.tolerance(dtype, 3 * array.size, array.size) for array in results],
    }
    return case, graph, held | {f"out{i}": array for i, array in enumerate(results)}
