"""What a product's weight is for a graph."""

from pathlib import Path

import numpy as np
from packers import named

from heddle.graph import ops
from heddle.pipelines.stored.gguf import Gguf
from heddle.pipelines.stored.product import UNSIGNED, Form
from heddle.pipelines.stored.selection import Stored, method_of


def product(parts, settings, name="x"):
    """The only product of a checkpoint."""
    return Stored(Path("w"), named(name, parts), method_of(settings)).products[name]


def gguf_product(kind, rows, name="x", **paired):
    """The only product of a GGUF file."""
    arrays = {f"{name}.{kind}": rows.view(np.uint8)}
    return Stored(Path("w"), arrays, Gguf((kind,), paired)).products[name]


def held(found, kind=None, group=0):
    """The weight that a graph computes with, float32 [n, k]; by default held exactly."""
    ordered = kind is None and found.order is not None
    form = Form(kind or found.kind, group or found.group_held, "float32", ordered)
    values, *sides = map(np.asarray, found.quantized(form))
    attrs = {"bits": form.bits, "group": form.group}
    identity = np.eye(found.shape[1], dtype=np.float32)
    weight = ops.ROWS["quantized_matmul"].reference(identity, values, *sides, **attrs).T
    return weight[:, np.argsort(found.order)] if ordered else weight


def same(found, wanted, group):
    """Asserts that a product is `wanted` as floats, and in groups of `group`, if not 0.

    A graph adds what minimums stand for to the sum of a group, and so rounds once more.
    """
    assert found.shape == wanted.shape
    assert found.group_held == group
    np.testing.assert_array_equal(found.floats("float32"), wanted)
    if group:
        off = 2.0**-22 * np.abs(wanted).max() if found.kind in UNSIGNED else 0
        np.testing.assert_allclose(held(found), wanted, rtol=0, atol=off)
