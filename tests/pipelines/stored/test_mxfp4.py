"""MXFP4: floats of 4 bits with scales that are powers of two."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from packers import MXFP4, named
from products import product

from heddle.pipelines.stored.mxfp4 import integers, scales
from heddle.pipelines.stored.product import Form
from heddle.pipelines.stored.selection import Stored, method_of
from heddle.runtime.errors import ArtifactError

VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_each_element_is_half_an_integer():
    codes = np.arange(16, dtype=np.uint8)
    wanted = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert wanted.tolist() == [*VALUES, *(-value for value in VALUES)]
    np.testing.assert_array_equal(integers(codes[0::2] | codes[1::2] << 4), 2 * wanted)


def test_scales_are_powers_of_two():
    found = scales(np.array([0, 1, 127, 128, 254, 255], np.uint8))
    assert found[:-1].tolist() == [2.0**-128, 2.0**-127, 0.5, 1, 2.0**126]
    assert np.isnan(found[-1])


def drawn(experts=3, n=4, groups=2):
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (experts, n, groups, 16), np.uint8)
    return {"_blocks": blocks, "_scales": rng.integers(110, 140, (experts, n, groups), np.uint8)}


def test_experts_are_held_in_int8():
    parts = drawn()
    found = Stored(Path("w"), named("x", parts), method_of(MXFP4)).products["x"]
    assert (found.shape, found.kind, found.group_held) == ((3, 4, 64), "int8", 32)
    halves = np.stack([parts["_blocks"] & 15, parts["_blocks"] >> 4], -1).reshape(3, 4, 2, 32)
    wanted = np.array([*VALUES, *(-value for value in VALUES)])[halves]
    wanted = wanted * np.exp2(parts["_scales"].astype(float) - 127)[..., None]
    np.testing.assert_array_equal(found.floats("float32"), wanted.reshape(3, 4, 64))
    values, found_scales = found.quantized(Form("int8", 32, "bfloat16"))
    each = np.asarray(found_scales).astype(np.float32)
    np.testing.assert_array_equal(
        values.reshape(3, 4, 2, 32) * each[..., None], wanted.astype(np.float32)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_scales": np.zeros((3, 4, 3), np.uint8)}, r"x_scales: wanted uint8 \[3, 4, 2\], got"),
        ({"_blocks": np.zeros((3, 4, 2, 8), np.uint8)}, r"x_blocks: wanted uint8 \[any, any, any"),
    ],
)
def test_parts_of_another_shape(change, message):
    with pytest.raises(ArtifactError, match=message):
        product(drawn() | change, MXFP4)
