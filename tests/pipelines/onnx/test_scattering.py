"""Scatter and gather by several indices: sizes that are not known, and what is out of range."""

import numpy as np
import pytest
from onnx_texts import computed, imported

from heddle.graph import compile
from heddle.runtime import InferenceSession
from heddle.runtime.errors import HeddleError


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_of_a_part_of_each_axis(axis):
    """What lies beyond the indices along the other axes stays as it is."""
    text = f"""m (float[a, b, c] x, int64[i, j, k] places, float[i, j, k] updates)
    => (float[a, b, c] y)
    {{ y = ScatterElements <axis = {axis}, reduction = "add"> (x, places, updates) }}"""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (4, 5, 3)).astype(np.float32)
    places = rng.integers(-3, 3, (2, 3, 2))
    updates = rng.integers(0, 9, places.shape).astype(np.float32)
    wanted = x.copy()
    for at in np.ndindex(places.shape):
        target = list(at)
        target[axis] = places[at]
        wanted[tuple(target)] += updates[at]
    sizes = {"a": (2, 9), "b": (3, 9), "c": (2, 9), "i": 2, "j": 3, "k": 2}
    (y,) = computed(text, x, places, updates, dims=sizes)
    np.testing.assert_array_equal(y, wanted)


ND = """m (float[a, b, 2] x, int64[n, 2] places, float[n, 2] updates)
=> (float[a, b, 2] y, float[n, 2] z)
{ y = ScatterND(x, places, updates)  z = GatherND(y, places) }"""


def test_rows_named_by_two_indices():
    """From the end, too; of places that are the same the last one's update stays."""
    x = np.zeros((3, 4, 2), np.float32)
    places = np.array([[0, -1], [-3, 3], [2, 0]])
    updates = np.arange(6, dtype=np.float32).reshape(3, 2)
    y, z = computed(ND, x, places, updates)
    wanted = x.copy()
    for place, row in zip(places, updates, strict=True):
        wanted[tuple(place)] = row
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z, updates[[1, 1, 2]])


@pytest.mark.parametrize("operator", ["ScatterND(x, places, updates)", "GatherND(x, places)"])
@pytest.mark.parametrize("bad", [[0, 4], [0, -5], [3, 0], [-4, 3]])
def test_an_index_that_would_name_another_row(operator, bad):
    """Index 4 of rows of 4 is the first of the next row."""
    text = f"""m (float[3, 4] x, int64[1, 2] places, float[1] updates) => (float y)
    {{ found = {operator}  y = ReduceSum <keepdims = 0> (found) }}"""
    found = imported(text)
    model = InferenceSession(threads=1).load(compile(found.graph, "cpu:native"), found.weights)
    arrays = [np.zeros((3, 4), np.float32), np.array([[2, 3]]), np.ones(1, np.float32)]
    model.execute(*arrays)
    arrays[1] = np.array([bad])
    with pytest.raises(HeddleError, match=r"\(m\.onnx:1\).*got -1"):
        model.execute(*arrays)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_entries_of_a_cache(mode):
    text = f"""m (float[b, h, 5, 2] cache, float[b, h, s, 2] new, int64[b] starts)
    => (float[b, h, 5, 2] y) {{ y = TensorScatter <mode = "{mode}"> (cache, new, starts) }}"""
    cache = np.zeros((2, 3, 5, 2), np.float32)
    new = np.random.default_rng(0).standard_normal((2, 3, 2, 2), np.float32)
    starts = np.array([1, 4 if mode == "circular" else 3])
    wanted = cache.copy()
    for row, start in enumerate(starts):
        for number in range(2):
            wanted[row, :, (start + number) % 5] = new[row, :, number]
    (y,) = computed(text, cache, new, starts, opset=24)
    np.testing.assert_array_equal(y, wanted)
