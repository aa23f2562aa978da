"""GridSample and GatherND beyond ONNX's own cases: sizes known when the model runs, far places."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, parsed

from heddle.graph import compile
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(5)

SAMPLED = """m (float[n, c, h, w] x, float[n, s, t, 2] grid) => (float[n, c, s, t] y) {{
  y = GridSample<mode = "{mode}", padding_mode = "{padding}", align_corners = {corners}>(x, grid)
}}"""

WAYS = [
    (mode, padding, corners)
    for mode in ("nearest", "linear", "cubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (0, 1)
]


@pytest.fixture(scope="module")
def sampler():
    """A function: way, inputs -> what the compiled model computes; one artifact for all ways."""
    nodes = "\n".join(
        f'  y{at} = GridSample<mode = "{mode}", padding_mode = "{padding}", '
        f"align_corners = {corners}>(x, grid)"
        for at, (mode, padding, corners) in enumerate(WAYS)
    )
    results = ", ".join(f"float[n, c, s, t] y{at}" for at in range(len(WAYS)))
    text = f"m (float[n, c, h, w] x, float[n, s, t, 2] grid) => ({results}) {{\n{nodes}\n}}"
    session = InferenceSession(threads=1)
    model = session.load(compile(imported(text).graph, "cpu:native"))
    return lambda way, *inputs: np.asarray(model.execute(*inputs)[WAYS.index(way)])


@pytest.mark.parametrize(("mode", "padding", "corners"), WAYS)
@pytest.mark.parametrize("sizes", [(2, 3, 5, 7, 4, 6), (1, 1, 2, 9, 3, 1)])
def test_places_inside_and_far_outside(sampler, mode, padding, corners, sizes):
    n, c, h, w, s, t = sizes
    x = RNG.standard_normal((n, c, h, w), np.float32)
    grid = RNG.uniform(-4, 4, (n, s, t, 2)).astype(np.float32)
    text = SAMPLED.format(mode=mode, padding=padding, corners=corners)
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x, "grid": grid})
    found = sampler((mode, padding, corners), x, grid)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mode", "padding", "corners"), WAYS)
def test_places_that_are_no_numbers_and_sides_of_one_element_read_nothing_else(
    sampler, mode, padding, corners
):
    x = np.ones((1, 2, 1, 3), np.float32)
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0], np.float32)
    places = np.stack(np.meshgrid(grid, grid), axis=-1)[None]
    found = sampler((mode, padding, corners), x, places)
    assert found.shape == (1, 2, 6, 6)
    # In the middle all that is read is 1; the weights of every mode add up to 1.
    assert found[0, :, 5, 5] == pytest.approx(1)


def test_opset_16_names_its_modes_otherwise():
    x = RNG.standard_normal((1, 1, 3, 3), np.float32)
    grid = RNG.uniform(-1, 1, (1, 4, 4, 2)).astype(np.float32)
    for old, new in (("bilinear", "linear"), ("bicubic", "cubic")):
        texts = [SAMPLED.format(mode=m, padding="zeros", corners=0) for m in (old, new)]
        (found,), (wanted,) = (
            computed(text, x, grid, opset=opset)
            for text, opset in zip(texts, (16, 20), strict=True)
        )
        np.testing.assert_array_equal(found, wanted)


def test_integers_have_no_weights():
    text = """m (int32[1, 1, h, w] x, float[1, s, t, 2] grid) => (int32[1, 1, s, t] y) {{
      y = GridSample<mode = "{mode}">(x, grid)
    }}"""
    x = np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4)
    grid = np.array([-0.75, -0.7, 0.75, 0.7], np.float32).reshape(1, 1, 2, 2)
    (y,) = computed(text.format(mode="nearest"), x, grid)
    assert y.ravel().tolist() == [0, 11]
    with pytest.raises(GraphError, match="wanted floats for the mode linear, got int32"):
        imported(text.format(mode="linear"))


@pytest.mark.parametrize("sizes", [("2", "3", "4"), ("a", "b", "c")])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_gather_nd_of_parts(sizes, batch):
    shapes = {0: (5,), 1: (2, 5), 2: (2, 3, 5)}
    count = 3 - batch
    places = ", ".join([*sizes[:batch], "5", str(count)])
    rank = ", ".join([*sizes[:batch], "5"])
    text = f"""m (float[{", ".join(sizes)}] x, int64[{places}] indices) => (float[{rank}] y) {{
      y = GatherND<batch_dims = {batch}>(x, indices)
    }}"""
    x = RNG.standard_normal((2, 3, 4), np.float32)
    indices = np.stack(
        [RNG.integers(-size, size, shapes[batch]) for size in x.shape[batch:]], axis=-1
    )
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x, "indices": indices})
    (found,) = computed(text, x, indices)
    np.testing.assert_array_equal(found, wanted)
