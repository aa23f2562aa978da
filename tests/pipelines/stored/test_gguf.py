"""Weights of GGUF files: floats, blocks, rows in pairs and experts."""

import ml_dtypes
import numpy as np
import pytest
from ggml_blocks import dequantized, drawn, quantized
from products import gguf_product, same

from heddle.pipelines.stored.product import Form
from heddle.runtime.errors import ArtifactError


def made(kind, *shape):
    """A weight's rows of bytes in a type, and its values as float32."""
    blocks = kind not in ("F32", "F16", "BF16")
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    rows = drawn(kind, *shape) if blocks else quantized(weight, kind)
    return rows, dequantized(kind, rows)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q6_K", "IQ3_S"])
def test_others_are_rounded_anew(kind):
    """In groups of 32 by a 254th of the largest element at most."""
    rows, wanted = made(kind, 4, 512)
    found = gguf_product(kind, rows)
    same(found, wanted, 0)
    integers, scales = found.quantized(Form("int8", 32, "float32"))
    off = np.abs(integers * np.repeat(scales, 32, axis=1) - wanted).reshape(4, 16, 32)
    largest = np.abs(wanted).reshape(4, 16, 32).max(axis=-1, keepdims=True)
    assert (off <= largest / 253.9).all()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K"])
def test_pairs_of_rows(kind):
    """Rows 0 and 2 of a head of four turn together in a checkpoint, rows 0 and 1 in a file."""
    rows, wanted = made(kind, 12, 256)
    found = gguf_product(kind, rows, "a.q_proj", q_proj=3).floats("float32")
    order = [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11]
    np.testing.assert_array_equal(found, wanted[order])
    np.testing.assert_array_equal(
        gguf_product(kind, rows, "a.v_proj", q_proj=3).floats("float32"), wanted
    )


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_K", "Q6_K"])
def test_experts(kind):
    rows, wanted = made(kind, 3, 4, 256)
    found = gguf_product(kind, rows, "mlp.experts.up_proj")
    same(found, wanted, 32 if kind in ("Q8_0", "Q4_K") else 0)


def test_floats_are_not_copied():
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    assert np.shares_memory(gguf_product("F32", values).floats("float32"), values)
    bits = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    found = gguf_product("BF16", bits).floats("bfloat16")
    assert np.shares_memory(np.asarray(found).view(np.uint16), bits)


def test_a_type_without_floats():
    with pytest.raises(
        ArtifactError, match=r"w: x\.I32: wanted a type that the package gguf reads"
    ):
        gguf_product("I32", np.zeros((2, 32), np.int32))
