"""Weights in the blocks of GGML, beside what the package gguf makes of them."""

from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from products import same

from heddle.pipelines.stored.gguf import Gguf
from heddle.pipelines.stored.selection import Stored
from heddle.runtime.errors import ArtifactError


def drawn(kind, *shape):
    """A weight's rows of bytes in a type, and its values as float32."""
    rng = np.random.default_rng(0)
    chosen = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[chosen]
    if kind in ("Q4_K", "Q6_K", "IQ4_NL"):  # which the package does not make
        rows = rng.integers(0, 256, (*shape[:-1], shape[-1] // block, size), np.uint8)
        scale = np.array([0.01], np.float16).view(np.uint8)
        for at in {"Q4_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,)}[kind]:
            rows[..., at : at + 2] = scale
        rows = rows.reshape(*shape[:-1], -1)
    else:
        rows = gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32), chosen)
    return rows, gguf.quants.dequantize(rows, chosen)


def product(kind, rows, name="x", **paired):
    arrays = {f"{name}.{kind}": rows.view(np.uint8)}
    return Stored(Path("w"), arrays, Gguf((kind,), paired)).products[name]


@pytest.mark.parametrize(("kind", "held"), [("Q8_0", "int8"), ("Q5_0", "int8"), ("Q4_0", "int4")])
def test_integers_are_held_exactly(kind, held):
    rows, wanted = drawn(kind, 6, 96)
    found = product(kind, rows)
    assert found.kind == held
    same(found, wanted, 32)
    _, scales = found.quantized("uint8" if held == "int4" else "int8", 32, "float16")
    blocks = rows.reshape(6, 3, -1)
    np.testing.assert_array_equal(scales, blocks[..., :2].copy().view(np.float16)[..., 0])


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_1", "IQ4_NL", "Q4_K", "Q6_K"])
def test_others_become_floats(kind):
    rows, wanted = drawn(kind, 4, 512)
    same(product(kind, rows), wanted, 0)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K"])
def test_pairs_of_rows(kind):
    """Rows 0 and 2 of a head of four turn together in a checkpoint, rows 0 and 1 in a file."""
    rows, wanted = drawn(kind, 12, 256)
    found = product(kind, rows, "a.q_proj", q_proj=3).floats("float32")
    order = [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11]
    np.testing.assert_array_equal(found, wanted[order])
    np.testing.assert_array_equal(
        product(kind, rows, "a.v_proj", q_proj=3).floats("float32"), wanted
    )


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_K"])
def test_experts(kind):
    rows, wanted = drawn(kind, 3, 4, 256)
    found = product(kind, rows, "mlp.experts.up_proj")
    same(found, wanted, 32 if kind == "Q8_0" else 0)


def test_floats_are_not_copied():
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    assert np.shares_memory(product("F32", values).floats("float32"), values)
    bits = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    found = product("BF16", bits).floats("bfloat16")
    assert np.shares_memory(np.asarray(found).view(np.uint16), bits)


def test_a_type_without_floats():
    with pytest.raises(
        ArtifactError, match=r"w: x\.I32: wanted a type that the package gguf reads"
    ):
        product("I32", np.zeros((2, 32), np.int32))
