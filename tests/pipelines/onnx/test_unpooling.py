"""Where the largest elements of windows are, and windows that become a picture again."""

import itertools

import numpy as np
import pytest
from onnx_texts import computed, imported

from heddle.runtime.errors import GraphError


def numbered(shape):
    """A picture of few different numbers, so that there are ties."""
    return np.random.default_rng(0).integers(0, 4, shape).astype(np.float32)


WINDOWS = {  # strides, padding before and behind, dilations
    "plain": ([1, 1], [0, 0, 0, 0], [1, 1]),
    "strides": ([2, 1], [0, 0, 0, 0], [1, 1]),
    "padding": ([1, 2], [1, 0, 0, 2], [1, 1]),
    "dilations": ([1, 1], [0, 1, 1, 0], [3, 2]),
}


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_the_first_of_the_largest(name, order):
    strides, pads, dilations = WINDOWS[name]
    settings = f"strides = {strides}, pads = {pads}, dilations = {dilations}"
    text = f"""m (float[b, 2, 5, 6] x) => (float[b, 2, h, w] y, int64[b, 2, h, w] places) {{
    y, places = MaxPool <kernel_shape = [2, 3], storage_order = {order}, {settings}> (x) }}"""
    x = numbered((3, 2, 5, 6))
    numbers = np.arange(x.size).reshape(x.shape)
    if order:
        numbers = np.swapaxes(np.arange(x.size).reshape(3, 2, 6, 5), 2, 3)
    around = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    values, numbers = np.pad(x, around, constant_values=-np.inf), np.pad(numbers, around)
    y, places = computed(text, x)
    for b, c, i, j in np.ndindex(y.shape):
        rows = i * strides[0] + dilations[0] * np.arange(2)
        columns = j * strides[1] + dilations[1] * np.arange(3)
        window = values[b, c][np.ix_(rows, columns)].ravel()
        best = window.argmax()
        assert y[b, c, i, j] == window[best]
        assert places[b, c, i, j] == numbers[b, c][np.ix_(rows, columns)].ravel()[best]


UNPOOLED = """m (float[b, 1, 4, 6] x) => (float[b, 1, p, q] y)
<int64[4] shape = {1, 1, 5, 6}>
{ most, places = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
  y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (most, placesSHAPE) }"""


def test_what_was_pooled_comes_back_among_zeros():
    x = numbered((2, 1, 4, 6))
    (y,) = computed(UNPOOLED.replace("SHAPE", ""), x)
    assert set(np.unique((y == x) | (y == 0))) == {True}
    blocks = (x.reshape(2, 2, 2, 3, 2).max((2, 4)), y.reshape(2, 2, 2, 3, 2).max((2, 4)))
    np.testing.assert_array_equal(*blocks)
    (padded,) = computed(UNPOOLED.replace("SHAPE", ", shape"), x[:1], dims={"b": 1})
    np.testing.assert_array_equal(padded, np.pad(y[:1], ((0, 0), (0, 0), (0, 1), (0, 0))))


def test_a_result_that_is_too_small_is_refused():
    text = UNPOOLED.replace("SHAPE", ", shape").replace("5, 6}", "3, 6}")
    with pytest.raises(GraphError, match="wanted a shape of at least"):
        imported(text, dims={"b": 1})


def test_blocks_that_overlap_are_added():
    text = """m (float[b, 12, 6] x) => (float[b, 2, 4, 5] y)
    <int64[2] image = {4, 5}, int64[2] block = {2, 3}>
    { y = Col2Im <strides = [2, 2], pads = [0, 1, 1, 1], dilations = [1, 1]> (x, image, block) }"""
    x = numbered((3, 12, 6))
    wanted = np.zeros((3, 2, 5, 7), np.float32)
    cells = x.reshape(3, 2, 2, 3, 2, 3)
    for i, j, row, column in itertools.product(range(2), range(3), range(2), range(3)):
        wanted[:, :, 2 * row + i, 2 * column + j] += cells[:, :, i, j, row, column]
    (y,) = computed(text, x)
    np.testing.assert_array_equal(y, wanted[:, :, :4, 1:6])


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_places_are_never_in_the_padding(order, dilation):
    """Which is as large as elements of -inf: the first of these in the window it is then."""
    settings = f"kernel_shape = [2, 2], pads = [1, 1, 1, 1], dilations = [{dilation}, {dilation}]"
    text = f"""m (float[1, 1, 3, 4] x) => (float[1, 1, h, w] y, int64[1, 1, h, w] places)
    {{ y, places = MaxPool <storage_order = {order}, {settings}> (x) }}"""
    y, places = computed(text, np.full((1, 1, 3, 4), -np.inf, np.float32))
    assert set(y.ravel()) == {-np.inf}
    starts = [np.arange(-1, size - 1) for size in y.shape[2:]]
    rows, columns = np.meshgrid(
        *(np.where(at < 0, at + dilation, at) for at in starts), indexing="ij"
    )
    assert places[0, 0].tolist() == (columns * 3 + rows if order else rows * 4 + columns).tolist()
