"""compressed-tensors: integers in words, int8 and float8, with scales of all sorts."""

import ml_dtypes
import numpy as np
import pytest
from packers import compressed, drawn
from products import product, same

from heddle.runtime.errors import ArtifactError, GraphError

PACKED = compressed("pack-quantized")


@pytest.mark.parametrize(
    ("bits", "symmetric", "group"), [(4, True, 32), (4, False, 32), (8, True, 32), (8, False, 32)]
)
def test_integers_in_words(bits, symmetric, group):
    weight = drawn(bits, symmetric=symmetric)
    same(product(weight.packed(symmetric), PACKED), weight.floats, group)


def test_a_row_of_no_whole_words():
    weight = drawn(k=36, group=36, symmetric=True)
    same(product(weight.packed(symmetric=True), PACKED), weight.floats, 0)


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points_without_a_sign_of_their_own_are_int8(bits):
    """As early versions wrote them: one a byte."""
    weight = drawn(bits)
    zeros = (weight.zeros - 2 ** (bits - 1)).astype(np.int8)
    parts = weight.packed() | {".weight_zero_point": zeros}
    np.testing.assert_array_equal(product(parts, PACKED).floats("float32"), weight.floats)


def test_groups_that_are_not_side_by_side():
    weight = drawn(symmetric=True)
    weight.places = np.random.default_rng(1).permutation(weight.places)
    places = weight.places.astype(np.int32)
    parts = weight.packed(symmetric=True) | {".weight_g_idx": places}
    found = product(parts, PACKED)
    np.testing.assert_array_equal(weight.places[found.order], np.sort(weight.places))
    same(found, weight.floats, 32)
    weight.places = np.sort(weight.places)
    parts[".weight_g_idx"] = np.full(96, -1, np.int32)
    same(product(parts, PACKED), weight.floats, 32)


SCALES = {
    "all": (np.array([0.25], np.float32), 0),
    "one": (np.array(0.25, np.float32), 0),
    "rows": (np.arange(1, 41, dtype=np.float32)[:, None] / 64, 0),
    "rows alone": (np.arange(1, 41, dtype=np.float32) / 64, 0),
    "groups": (np.arange(1, 121, dtype=np.float32).reshape(40, 3) / 64, 32),
}


def values(dtype):
    """int8, or float8, of which all are finite."""
    drawn = np.random.default_rng(0).integers(-120, 120, (40, 96))
    return drawn.astype(np.int8) if dtype == "int8" else drawn.astype(getattr(ml_dtypes, dtype))


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("scales", SCALES)
def test_eight_bits(dtype, scales):
    array, _ = SCALES[scales]
    parts = {".weight": values(dtype), ".weight_scale": array}
    each = np.repeat(array, 32, 1) if scales == "groups" else array.reshape(-1, 1)
    found = product(parts, compressed("naive-quantized"))
    assert found.kind == dtype
    same(found, values(dtype).astype(np.float32) * each, 32)


@pytest.mark.parametrize(("shape", "rows"), [((2, 3), 128), ((1, 1), 128), ((5, 2), 1)])
def test_blocks(shape, rows):
    n, k = rows * shape[0] - rows // 2 + 8 * (rows > 8), 128 * shape[1] - 64
    array = np.random.default_rng(0).integers(-120, 120, (n, k)).astype(np.int8)
    scales = np.arange(1, 1 + shape[0] * shape[1], dtype=np.float32).reshape(shape)
    settings = compressed("int-quantized", strategy="block", block_structure=[rows, 128])
    found = product({".weight": array, ".weight_scale": scales}, settings)
    each = np.repeat(np.repeat(scales, rows, 0), 128, 1)[:n, :k]
    same(found, array * each, 64)


def test_zero_points_of_int8():
    array = values("int8")
    zeros, scales = np.arange(40, dtype=np.int8)[:, None], SCALES["rows"][0]
    parts = {".weight": array, ".weight_scale": scales, ".weight_zero_point": zeros}
    wanted = (array.astype(np.float32) - zeros) * scales
    found = product(parts, compressed("int-quantized"))
    assert found.kind == "uint8"
    same(found, wanted, 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({".weight_shape": None}, r"x\.weight_shape: wanted int64 or int32 \[2\], got none$"),
        ({".weight_scale": None}, r"x\.weight_scale: wanted float32 or .*, got none$"),
        ({".weight_packed": np.zeros((40, 7), np.int32)}, r"int32 \[40, 12\], got int32 \[40, 7\]"),
        (
            {".weight_scale": np.zeros((40, 5), np.float32)},
            r"x\.weight_scale: wanted one for \[40, 96\], its rows, groups, got \[40, 5\]$",
        ),
        ({".weight_zero_point": np.zeros((4, 3), np.int32)}, r"\[5, 3\], got int32 \[4, 3\]$"),
    ],
)
def test_parts_that_are_missing_or_of_another_shape(change, message):
    parts = {k: v for k, v in (drawn().packed() | change).items() if v is not None}
    with pytest.raises(ArtifactError, match=message):
        product(parts, PACKED)


def test_groups_of_another_size_than_the_configuration_says():
    """The last of which would be shorter, which shapes alone do not tell."""
    parts, settings = drawn(group=48).packed(), compressed("pack-quantized", group_size=64)
    message = r"x\.weight_scale: wanted scales of 64 of 96 elements, got of 48$"
    with pytest.raises(ArtifactError, match=message):
        product(parts, settings)
    whole = drawn(group=96)
    same(product(whole.packed(), settings), whole.floats, 32)
    settings = compressed("pack-quantized", group_size=-1)
    same(product(whole.packed(), settings), whole.floats, 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "nvfp4-pack-quantized"}, "format: wanted 'pack-quantized' or .*, got 'nvfp4"),
        ({"config_groups": {"a": {"format": "marlin-24"}}}, "format: wanted .*, got 'marlin-24'$"),
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "format: wanted 'dense', got 's"),
        ({"transform_config": {"R1": {}}}, "transform_config: wanted none, got {'R1': {}}$"),
        ({"config_groups": 3}, "config_groups: wanted a JSON object, got 3$"),
        (
            {"config_groups": {"a": {"weights": {"block_structure": [128]}}}},
            r"block_structure: wanted two integers of at least 1, got \[128\]$",
        ),
    ],
)
def test_variants_that_are_not_read(change, message):
    with pytest.raises(GraphError, match=f"quantization_config of compressed-tensors: {message}"):
        product(drawn().packed(), PACKED | change)
