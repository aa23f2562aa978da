"""Blocks of GGML whose integers a graph holds, beside what the package gguf makes of them."""

import numpy as np
import pytest
from ggml_blocks import dequantized, drawn
from products import gguf_product, same

from heddle.pipelines.stored.ggml import TYPES
from heddle.pipelines.stored.product import UNSIGNED, Form


@pytest.mark.parametrize("kind", TYPES)
def test_values_are_those_of_the_file(kind):
    """Bit for bit in float32, of blocks of all integers."""
    rows = drawn(kind, 6, 512)
    same(gguf_product(kind, rows), dequantized(kind, rows), 32)


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "MXFP4"])
def test_scales_in_float16(kind):
    """Those of 32 elements are what the file has; those of 256 are rounded, by half a bit of 11."""
    rows = drawn(kind, 6, 512)
    found = gguf_product(kind, rows)
    assert found.scales_in == TYPES[kind].scales_in == "float16"
    sides = [found.quantized(Form(found.kind, 32, dtype))[1:] for dtype in ("float16", "float32")]
    assert len(sides[0]) == 1 + (found.kind in UNSIGNED)
    for rounded, exact in zip(*sides, strict=True):
        close = 2.0**-11 * np.abs(exact) + 2.0**-25 if kind.endswith(("K", "XS")) else 0
        assert (np.abs(rounded.astype(np.float32) - exact) <= close).all()


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        *(("Q4_0", "int4"), ("Q4_1", "uint4"), ("Q4_K", "uint4")),
        *(("Q5_0", "int8"), ("Q8_0", "int8"), ("IQ4_NL", "int8"), ("IQ4_XS", "int8")),
        *(("Q5_1", "uint8"), ("Q5_K", "uint8"), ("MXFP4", "int8")),
    ],
)
def test_what_they_are_held_as(kind, held):
    assert TYPES[kind].kind == held


def test_powers_of_two_of_every_exponent():
    """Those of MXFP4, of which none is NaN; float16 has few of them."""
    rows = drawn("MXFP4", 256, 32)
    rows[:, 0] = np.arange(256)
    found = gguf_product("MXFP4", rows)
    assert found.scales_in == ""
    _, scales = found.quantized(Form("int8", 32, "float32"))
    np.testing.assert_array_equal(scales[:, 0], np.exp2(np.arange(256) - 128.0))
    finite = rows[:253]
    same(gguf_product("MXFP4", finite), dequantized("MXFP4", finite), 32)
