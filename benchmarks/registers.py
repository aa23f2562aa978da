"""The multiplications of a piece of work in registers alone: no code that multiplies so is faster.

Or in tiles that come from the second cache.

It takes turns with what is measured, because the clock of a CPU goes up and down.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from heddle.graph.targets import native_level
from heddle.kernels.registry import MACHINES
from heddle.pipelines.bench import limits, probes
from heddle.runtime import Buffer, InferenceSession

SLICE, LEAST = 4096, 64
"""Words that a task goes through, and the least turns of its loop."""


def multiplies(dtype: str) -> bool:
    """Whether there is such a kernel: bytes are multiplied by dot products, or in tiles, alone."""
    machine = MACHINES[native_level()]
    return dtype != "int8" or machine.dots or machine.tiles


def in_tiles(dtype: str) -> bool:
    """Whether this CPU multiplies it in tiles, float32 as sums of bfloat16."""
    products = *limits.TILE_PRODUCTS, *limits.TILES_OF
    return dtype in products and MACHINES[native_level()].tiles


def call(
    dtype: str, operations: int, threads: int, tiles: bool = True, resident: bool = False
) -> Callable[[], np.ndarray]:
    """A call of so many multiplications and additions of float32, bfloat16 or int8.

    In `tiles`, where there are some; those that are `resident` come from the second cache.
    """
    arch = native_level()
    machine = MACHINES[arch]
    lanes = machine.vector_bytes // 4
    kind, each, words, result = "float32", 2 * lanes * probes.CHAINS, 1, 16
    if tiles and in_tiles(dtype):
        count = limits.TILES_OF.get(dtype, 1)
        product, operations_of_tiles = limits.TILE_PRODUCTS["bfloat16" if count > 1 else dtype]
        place = "memory" if resident else "registers"
        kind, each = f"{product} from {place}", 4 * operations_of_tiles / count
        words, result = probes.TILES, probes.TILE
    elif dtype in limits.DOT_PRODUCTS and machine.dots:
        kind, of_sum = limits.DOT_PRODUCTS[dtype]
        each = of_sum * lanes * probes.DOT_CHAINS
    steps = limits.resident() // (4 * words) if resident else max(SLICE // words, LEAST)
    repeats = round(operations / (each * steps * threads))
    size, results = steps * words, threads * repeats * result
    artifact = probes.artifact(kind, arch, threads, size, repeats, results)
    model = InferenceSession(threads=threads).load(artifact)
    x, y = Buffer("int32", (threads * size,)), Buffer("int32", (results,))
    x.to_numpy()[...] = limits.HALVES

    def multiply() -> np.ndarray:
        model.execute(x, out=[y])
        return y.to_numpy()

    return multiply
