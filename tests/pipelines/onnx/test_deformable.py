"""DeformConv beside ONNX's reference, which has pictures, and beside Conv, which has volumes."""

import math

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, parsed

from heddle.graph import compile
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(3)

KINDS = {"float32": "float", "float16": "float16", "bfloat16": "bfloat16", "float64": "double"}

SETTINGS = {  # channels, kernel, attributes
    "plain": (3, (2, 3), {"group": 1}),
    "pads": (2, (3, 2), {"pads": [1, 0, 2, 1]}),
    "strides": (2, (2, 2), {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 0, 1]}),
    "groups": (6, (2, 2), {"group": 2, "offset_group": 3}),
    "parts": (4, (1, 3), {"group": 4, "offset_group": 2, "pads": [0, 2, 0, 0]}),
    "line": (2, (3,), {"group": 2, "pads": [1, 1]}),
    "volume": (2, (2, 1, 2), {"group": 2}),
}
PICTURES = ("plain", "pads", "strides", "groups", "parts")


def floats(*shape):
    return RNG.standard_normal(shape, np.float32)


def example(name, sizes=(5, 6), inputs="xwobm"):
    """Arrays by the names of the inputs, and attributes."""
    channels, kernel, given = SETTINGS[name]
    rank, taps = len(kernel), math.prod(kernel)
    pads, ones = given.get("pads", [0] * (2 * rank)), [1] * rank
    windows = [
        (size + pads[i] + pads[i + rank] - given.get("dilations", ones)[i] * (kernel[i] - 1) - 1)
        // given.get("strides", ones)[i]
        + 1
        for i, size in enumerate(sizes)
    ]
    groups, parts = given.get("group", 1), given.get("offset_group", 1)
    arrays = {
        "x": floats(2, channels, *sizes),
        "w": floats(2 * groups, channels // groups, *kernel),
        "o": 2 * floats(2, parts * taps * rank, *windows),
        "b": floats(2 * groups),
        "m": floats(2, parts * taps, *windows),
    }
    return {each: arrays[each] for each in inputs}, given


def text(arrays, given, kind="DeformConv", dtype="float"):
    """A model of one node; the sizes of x and of offsets are known when it runs."""
    rank = arrays["x"].ndim - 2
    names = {"x": [f"x{i}" for i in range(rank)], "o": [f"y{i}" for i in range(rank)]}
    names["m"] = names["o"]
    inputs = []
    for name, array in arrays.items():
        sizes = [*map(str, array.shape)]
        if name in names:
            sizes = ["n", sizes[1], *names[name]]
        inputs.append(f"{dtype}[{', '.join(sizes)}] {name}")
    order = "xwobm" if "m" in arrays else "xwob" if "b" in arrays else "xwo"
    order = "xw" if kind == "Conv" else order
    listed = ", ".join(name if name in arrays else "" for name in order)
    settings = ", ".join(f"{name} = {value}" for name, value in given.items())
    result = ", ".join(["n", "d", *(f"z{i}" for i in range(rank))])
    return (
        f"m ({', '.join(inputs)}) => ({dtype}[{result}] y) {{ y = {kind} <{settings}> ({listed}) }}"
    )


@pytest.mark.parametrize("inputs", ["xwo", "xwob", "xwom", "xwobm"])
@pytest.mark.parametrize("name", PICTURES)
def test_samples_between_and_beyond_pixels(name, inputs):
    arrays, given = example(name, inputs=inputs)
    node = text(arrays, given)
    (wanted,) = ReferenceEvaluator(parsed(node)).run(None, arrays)
    found = computed(node, *arrays.values())[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["strides", "groups"])
def test_sizes_are_those_of_the_run(name):
    arrays, given = example(name)
    graph = imported(text(arrays, given)).graph
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    weights = {each: arrays[each] for each in "wb"}
    for sizes in ((5, 6), (4, 9)):
        arrays = example(name, sizes)[0] | weights
        (wanted,) = ReferenceEvaluator(parsed(text(arrays, given))).run(None, arrays)
        (found,) = model.execute(*(arrays[each] for each in "xwobm"))
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "sizes"), [("line", (7,)), ("volume", (3, 4, 5))])
def test_without_offsets_it_is_a_convolution(name, sizes):
    arrays, given = example(name, sizes, "xwo")
    arrays["o"] *= 0
    (found,) = computed(text(arrays, given), *arrays.values())
    (wanted,) = computed(text(arrays, given, "Conv"), *arrays.values())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "rough"), [("float16", 2**-8), ("bfloat16", 2**-5), ("float64", 1e-5)]
)
def test_other_floats(dtype, rough):
    import ml_dtypes

    arrays, given = example("groups")
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    held = {name: array.astype(narrow) for name, array in arrays.items()}
    (found,) = computed(text(held, given, dtype=KINDS[dtype]), *held.values(), opset=22)
    exact = [array.astype(np.float32) for array in held.values()]
    (wanted,) = computed(text(arrays, given), *exact)
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=rough, atol=4 * rough)


def test_places_far_away_and_those_that_are_no_numbers():
    arrays, given = example("plain", inputs="xwo")
    (wanted,) = computed(text(arrays, given), *arrays.values())
    arrays["o"][0, :, 1, 2] = 1e30
    arrays["o"][1, 3, 0, 0] = np.nan
    (found,) = computed(text(arrays, given), *arrays.values())
    assert (found[0, :, 1, 2] == 0).all()
    found[0, :, 1, 2] = wanted[0, :, 1, 2]
    found[1, :, 0, 0] = wanted[1, :, 0, 0]
    np.testing.assert_array_equal(found, wanted)


def test_offsets_that_do_not_fit_are_refused():
    arrays, given = example("plain", inputs="xwo")
    message = r"DeformConv 'y': wanted .* 12 numbers of each window as offsets, got 3 channels by 1"
    with pytest.raises(GraphError, match=message):
        imported(text(arrays | {"o": arrays["o"][:, 1:]}, given))
    fixed = text(arrays, given).replace("x0", "5").replace("y0", "5")
    with pytest.raises(GraphError, match="wanted offsets for 4 windows along axis 2, got 5"):
        imported(fixed)
    with pytest.raises(GraphError, match=r"that offset_group divides, .* got 3 channels by 2"):
        imported(text(arrays, {"offset_group": 2}))
