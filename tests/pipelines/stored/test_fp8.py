"""Weights in float8 with scales of blocks."""

import ml_dtypes
import numpy as np
import pytest
from packers import FP8
from products import product, same

from heddle.pipelines.stored.product import Form
from heddle.runtime import Buffer
from heddle.runtime.errors import ArtifactError, GraphError


def weight(n=200, k=320, blocks=(2, 3)):
    rng = np.random.default_rng(0)
    values = (40 * rng.standard_normal((n, k))).astype(ml_dtypes.float8_e4m3fn)
    scales = rng.integers(1, 64, blocks).astype(np.float32) / 1024
    each = np.repeat(np.repeat(scales, 128, 0), 128, 1)[:n, :k]
    return {".weight": values, ".weight_scale_inv": scales}, values.astype(np.float32) * each


@pytest.mark.parametrize(
    ("n", "k", "blocks", "held"), [(200, 320, (2, 3), 64), (256, 384, (2, 3), 128)]
)
def test_blocks_are_groups_of_each_row(n, k, blocks, held):
    parts, wanted = weight(n, k, blocks)
    same(product(parts, FP8), wanted, held)


def test_buffers_of_a_file_and_scales_in_bfloat16():
    parts, wanted = weight()
    scales = parts[".weight_scale_inv"].astype(ml_dtypes.bfloat16)
    found = product(
        {
            ".weight": Buffer.from_numpy(parts[".weight"]),
            ".weight_scale_inv": Buffer.from_numpy(scales),
        },
        FP8,
    )
    same(found, wanted, 64)
    values, _ = found.quantized(Form("float8_e4m3fn", 64, "bfloat16"))
    assert isinstance(values, Buffer)
    np.testing.assert_array_equal(values.to_numpy(), parts[".weight"])


def test_one_scale_for_all():
    values = np.arange(-48, 48).reshape(1, 96).astype(ml_dtypes.float8_e4m3fn)
    parts = {".weight": values, ".weight_scale_inv": np.array(0.5, np.float32)}
    settings = {"quant_method": "fp8", "weight_block_size": None}
    same(product(parts, settings), values.astype(np.float32) / 2, 32)


STACK = "layers.0.mlp.experts.up_proj"


@pytest.mark.parametrize(
    ("shape", "block"),
    [((3, 2, 3), True), ((3, 256, 1), False), ((3, 1, 1), False), ((3,), False), ((1,), False)],
)
def test_experts_side_by_side(shape, block):
    rng = np.random.default_rng(0)
    values = (40 * rng.standard_normal((3, 256, 384))).astype(ml_dtypes.float8_e4m3fn)
    scales = rng.integers(1, 64, shape).astype(np.float32) / 1024
    each = np.repeat(np.repeat(scales, 128, 1), 128, 2) if block else scales.reshape(-1, 1, 1)
    if shape[-1] == 1 and len(shape) == 3:
        each = scales
    settings = {**FP8, "weight_block_size": [128, 128] if block else None}
    found = product(
        {"": values, "_scale_inv": scales, "_activation_scale": np.ones(3, np.float32)},
        settings,
        STACK,
    )
    assert (found.kind, found.group_held) == ("float8_e4m3fn", 128)
    wanted = values.astype(np.float32) * each
    np.testing.assert_array_equal(found.floats("float32"), wanted)
    kept, sides = found.quantized(Form("float8_e4m3fn", 128, "float32"))
    np.testing.assert_array_equal(np.asarray(kept).view(np.uint8), values.view(np.uint8))
    np.testing.assert_array_equal(
        values.astype(np.float32) * np.repeat(np.asarray(sides), 128, 2), wanted
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"_scale_inv": np.ones((2, 2, 3), np.float32)},
            r"_proj_scale_inv: wanted float32 or .* \[3, any, any\], got float32 \[2, 2, 3\]$",
        ),
        (
            {"_scale_inv": np.ones((3, 4, 3), np.float32)},
            r"_proj, expert 0\.weight_scale_inv: wanted one for \[256, 384\], .* \[4, 3\]$",
        ),
        ({"": None}, r"up_proj: wanted float8_e4m3fn or float8_e5m2 \[any, any, any\], got none$"),
    ],
)
def test_experts_of_other_shapes(change, message):
    values = np.zeros((3, 256, 384), ml_dtypes.float8_e4m3fn)
    parts = {"": values, "_scale_inv": np.ones((3, 2, 3), np.float32)} | change
    with pytest.raises(ArtifactError, match=message):
        product({end: array for end, array in parts.items() if array is not None}, FP8, STACK)


def test_scales_of_other_blocks():
    parts, _ = weight()
    with pytest.raises(
        ArtifactError,
        match=r"weight_scale_inv: wanted one for \[200, 320\], .*blocks \[64, 64\], got \[2, 3\]$",
    ):
        product(parts, {**FP8, "weight_block_size": [64, 64]})
    with pytest.raises(GraphError, match=r"weight_block_size: wanted two integers .*, got 128$"):
        product(parts, {**FP8, "weight_block_size": 128})
    parts[".weight"] = np.zeros((200, 320), np.float32)
    with pytest.raises(
        ArtifactError, match=r"x\.weight: wanted float8_e4m3fn or float8_e5m2 \[any"
    ):
        product(parts, FP8)
