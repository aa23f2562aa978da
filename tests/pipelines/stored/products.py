"""What a product's weight is for a graph."""

from pathlib import Path

import numpy as np
from packers import named

from heddle.graph import ops
from heddle.pipelines.stored.selection import Stored, method_of

DTYPES = {"int4": "uint8", "int8": "int8"}
"""What holds the values of products, where the dtype is not that of these."""


def product(parts, settings):
    """The only product of a checkpoint."""
    return Stored(Path("w"), named("x", parts), method_of(settings)).products["x"]


def held(found, dtype=None, group=0):
    """The weight that a graph computes with, float32 [n, k]; by default held exactly."""
    dtype, group = dtype or DTYPES.get(found.kind, found.kind), group or found.group_held
    values, scales = found.quantized(dtype, group, "float32")
    reference = ops.ROWS["quantized_matmul"].reference
    identity = np.eye(found.shape[1], dtype=np.float32)
    bits = 4 if dtype == "uint8" else 8
    return reference(identity, np.asarray(values), scales, bits=bits, group=group).T


def same(found, wanted, group):
    """Asserts that a product is `wanted` as floats, and in groups of `group`, if not 0."""
    assert found.shape == wanted.shape
    assert found.group_held == group
    np.testing.assert_array_equal(found.floats("float32"), wanted)
    if group:
        np.testing.assert_array_equal(held(found), wanted)
