"""Resize of a part of a picture, and by sizes, beside ONNX's reference."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, ops_of, parsed

from heddle.runtime.errors import GraphError


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_part_is_resized_by_scales(mode):
    """Scales are of the whole picture, not of the part; what lies beyond it is one number."""
    text = f"""m (float[1, 6, 10] x) => (float[1, h, w] y)
    <float[4] part = {{0.25, -0.5, 0.75, 1.5}}, float[2] scales = {{1.5, 0.5}}>
    {{ y = Resize <mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize",
                   extrapolation_value = 7.0, axes = [1, 2]> (x, part, scales) }}"""
    x = np.random.default_rng(0).standard_normal((1, 6, 10), np.float32)
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x})
    (found,) = computed(text, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


PICTURE = np.random.default_rng(0).integers(0, 256, (1, 6, 10), np.uint8)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_are_rounded_once(mode, dtype):
    """Not after each axis: cubic weights leave the range of 8 bits on the way."""
    text = f"""m ({dtype}[1, 6, 10] x) => ({dtype}[1, h, w] y) <float[3] scales = {{1, 2, 4}}>
    {{ y = Resize <mode = "{mode}"> (x, , scales) }}"""
    x = PICTURE.astype(dtype)
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x})
    (found,) = computed(text, x)
    np.testing.assert_array_equal(found, wanted)


def test_integers_beyond_their_picture():
    text = """m (uint8[1, 6, 10] x) => (uint8[1, 6, 4] y)
    <float[2] part = {1.5, 2.0}, int64[1] sizes = {4}>
    { y = Resize <coordinate_transformation_mode = "tf_crop_and_resize",
                  extrapolation_value = 7.0, axes = [2]> (x, part, , sizes) }"""
    assert computed(text, PICTURE)[0].ravel().tolist() == [7] * 24


@pytest.mark.parametrize("batch", ["n", "2"])
def test_sizes_of_pictures_in_a_batch_that_is_not_known(batch):
    text = f"""m (float[{batch}, 3, 4] x) => (float[{batch}, 6, 8] y)
    <int64[1] i = {{0}}, int64[2] picture = {{6, 8}}> {{
        shape = Shape(x)  first = Gather(shape, i)  sizes = Concat <axis = 0> (first, picture)
        y = Resize <mode = "linear"> (x, , , sizes) }}"""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x})
    np.testing.assert_allclose(computed(text, x)[0], wanted, rtol=1e-6)


SIZES = """m (float[h, w] x) => (float[a, b] y) <int64[2] two = {{{factors}}}> {{
    shape = Shape(x)  sizes = {sizes}
    y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                nearest_mode = "floor"> (x, , , sizes) }}"""


def test_sizes_that_are_multiples_of_unknown_ones():
    text = SIZES.format(factors="2, 3", sizes="Mul(shape, two)")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert computed(text, x)[0].tolist() == x.repeat(2, 0).repeat(3, 1).tolist()


@pytest.mark.parametrize("sizes", ["Add(shape, two)", "Mul(two, two)"])
def test_sizes_that_are_no_multiples(sizes):
    with pytest.raises(GraphError, match=r"'y'.*wanted a known multiple of .* axis 0, h, got"):
        computed(SIZES.format(factors="2, 3", sizes=sizes), np.ones((2, 3), np.float32))


MIXED = """m (float[1, {n}, 5, 7] x) => (float[1, {n}, h, w] y)
<float[4] scales = {{1, 1, {scales}}}> {{ y = Resize <mode = "{mode}"{flags}> (x, , scales) }}"""


@pytest.mark.parametrize("n", [32, 3])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("flags", ["", ", exclude_outside = 1", ", antialias = 1"])
@pytest.mark.parametrize("scales", ["2, 3", "0.4, 1.7"])
def test_pictures_of_many_channels_and_of_few(n, mode, flags, scales):
    text = MIXED.format(n=n, mode=mode, flags=flags, scales=scales)
    x = np.random.default_rng(0).standard_normal((1, n, 5, 7), np.float32)
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x})
    (found,) = computed(text, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_few_elements_of_many_channels_are_mixed():
    """Others are a product with a matrix: where channels are few, or a pixel is made of many."""
    cases = {
        (32, "linear", ""): "gather",
        (32, "cubic", ""): "gather",
        (3, "linear", ""): "matmul",
        (32, "cubic", ", antialias = 1"): "matmul",
    }
    for (n, mode, flags), op in cases.items():
        names = ops_of(imported(MIXED.format(n=n, mode=mode, flags=flags, scales="0.4, 0.4")))
        assert {"gather", "matmul"} & set(names) == {op}


@pytest.mark.parametrize("n", [32, 3])
def test_pictures_that_vanish(n):
    text = MIXED.format(n=n, mode="linear", flags="", scales="0.1, 1")
    (found,) = computed(text, np.ones((1, n, 5, 7), np.float32))
    assert found.shape == (1, n, 0, 7)
