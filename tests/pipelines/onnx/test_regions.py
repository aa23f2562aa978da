"""RoiAlign beside ONNX's reference: regions inside and outside of pictures, and without a size."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, parsed

from heddle.graph import compile
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError, InputError

RNG = np.random.default_rng(7)

NODE = """RoiAlign <mode = "{mode}", coordinate_transformation_mode = "{shift}",
  sampling_ratio = {ratio}, output_height = 2, output_width = 3, spatial_scale = 0.75>
  (x, regions, picture)"""

INPUTS = "{dtype}[n, c, h, w] x, {dtype}[count, 4] regions, int64[count] picture"

WAYS = [
    (mode, shift, ratio)
    for mode in ("avg", "max")
    for shift in ("half_pixel", "output_half_pixel")
    for ratio in (0, 1, 3)
    if mode == "avg" or ratio
]

REGIONS = np.array(
    [
        [1, 1, 6, 5],
        [0, 0, 10, 10],  # all of a picture, and more
        [-5, -3, 4, 2],
        [-90, -80, 90, 70],
        [30, 30, 40, 50],
        [-9, 2, -6, 4],
        [3, 2, 3, 2],
        [3, 2, 3, 6],
        [6, 5, 1, 2],  # turned around
        [6, 1, 1, 5],
    ],
    np.float32,
)
PICTURE = np.arange(len(REGIONS)) % 2


def floats(*shape):
    return RNG.standard_normal(shape, np.float32)


def text(mode, shift, ratio, dtype="float"):
    node = NODE.format(mode=mode, shift=shift, ratio=ratio)
    return f"m ({INPUTS.format(dtype=dtype)}) => ({dtype}[count, c, p, q] y) {{ y = {node} }}"


def expected(way, x, regions, picture):
    given = {"x": x, "regions": regions, "picture": picture}
    return ReferenceEvaluator(parsed(text(*way))).run(None, given)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(6, 7), (1, 1), (2, 9)])
def test_regions_anywhere(way, sizes):
    x = floats(2, 2, *sizes)
    regions = np.concatenate([REGIONS, RNG.uniform(-8, 14, (9, 4)).astype(np.float32)])
    picture = np.arange(len(regions)) % 2
    (found,) = computed(text(*way), x, regions, picture)
    wanted = expected(way, x, regions, picture)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


COMPILED = [way for way in WAYS if way[1:] in (("half_pixel", 0), ("output_half_pixel", 3))]


@pytest.fixture(scope="module")
def model():
    """Some of the ways in one compiled model, whose sizes are those of the call."""
    nodes = "\n".join(
        f"y{at} = {NODE.format(mode=mode, shift=shift, ratio=ratio)}"
        for at, (mode, shift, ratio) in enumerate(COMPILED)
    )
    results = ", ".join(f"float[count, c, p, q] y{at}" for at in range(len(COMPILED)))
    graph = imported(f"m ({INPUTS.format(dtype='float')}) => ({results}) {{ {nodes} }}").graph
    return InferenceSession(threads=1).load(compile(graph, "cpu:native"))


@pytest.mark.parametrize("sizes", [(2, 3, 6, 7), (3, 1, 1, 4)])
def test_sizes_are_those_of_the_run(model, sizes):
    x = floats(*sizes)
    for way, found in zip(COMPILED, model.execute(x, REGIONS, PICTURE), strict=True):
        wanted = expected(way, x, REGIONS, PICTURE)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ratio", [0, 2])
def test_a_picture_that_is_not_there(ratio):
    graph = imported(text("avg", "half_pixel", ratio)).graph
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    for wrong in (-1, 1):
        with pytest.raises(InputError, match="wanted an index inside a size of 2, got"):
            model.execute(floats(2, 1, 4, 4), REGIONS, PICTURE + wrong)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_number_stays_in_its_region(way):
    x, regions = floats(2, 2, 6, 7), REGIONS.copy()
    regions[4] = np.nan
    (found,) = computed(text(*way), x, regions, PICTURE)
    (other,) = computed(text(*way), x, REGIONS, PICTURE)
    rest = np.arange(len(regions)) != 4
    np.testing.assert_array_equal(found[rest], other[rest])


def test_a_sample_on_the_border_is_counted_as_others_count_it():
    """One lies at 68, the size: inside, unless it is rounded otherwise."""
    x = floats(1, 1, 50, 68)
    regions = np.array([[49.9375, 33.75, 80.0625, 59.75]], np.float32) / np.float32(0.5)
    way = text("avg", "output_half_pixel", 0).replace(
        "= 2, output_width = 3", "= 7, output_width = 7"
    )
    way = way.replace("0.75", "0.5")
    given = {"x": x, "regions": regions, "picture": np.zeros(1, np.int64)}
    (wanted,) = ReferenceEvaluator(parsed(way)).run(None, given)
    np.testing.assert_allclose(computed(way, *given.values())[0], wanted, atol=1e-5)


@pytest.mark.parametrize(("name", "rough"), [("float16", 2**-10), ("bfloat16", 2**-7)])
@pytest.mark.parametrize("way", WAYS)
def test_narrow_floats_are_rounded_once(way, name, rough):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x, regions = floats(2, 2, 6, 7).astype(dtype), REGIONS.astype(dtype)
    (found,) = computed(text(*way, dtype=name), x, regions, PICTURE, opset=22)
    exact = [value.astype(np.float32) for value in (x, regions)]
    (wanted,) = computed(text(*way), *exact, PICTURE)
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=rough, atol=1e-6)


def test_doubles_are_computed_as_such():
    x = RNG.standard_normal((2, 2, 6, 7))
    given = [x, REGIONS.astype(np.float64), PICTURE]
    for ratio in (0, 2):
        way = text("avg", "half_pixel", ratio, "double")
        names = ("x", "regions", "picture")
        (wanted,) = ReferenceEvaluator(parsed(way)).run(None, dict(zip(names, given, strict=True)))
        np.testing.assert_allclose(computed(way, *given)[0], wanted, rtol=1e-12, atol=1e-12)


def test_opset_10_does_not_shift():
    old = text("avg", "half_pixel", 2).replace('coordinate_transformation_mode = "half_pixel",', "")
    (found,) = computed(old, x := floats(2, 1, 6, 7), REGIONS, PICTURE, opset=10)
    wanted = expected(("avg", "output_half_pixel", 2), x, REGIONS, PICTURE)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_what_only_regions_tell_is_refused():
    message = r"^m.onnx:1: RoiAlign 'y': wanted a sampling_ratio above 0 for the mode max, got 0: "
    with pytest.raises(GraphError, match=message):
        imported(text("max", "half_pixel", 0))
    with pytest.raises(GraphError, match="wanted a mode of avg or max, got 'sum'"):
        imported(text("sum", "half_pixel", 2))
