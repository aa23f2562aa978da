"""What an op moves and computes at the least: `OpRow.cost`."""

import numpy as np
import pytest

from heddle.graph import Dim, DType, TensorType
from heddle.graph.ops import windows
from heddle.graph.ops.attention import pairs
from heddle.graph.ops.row import ROWS

SIZES = {"b": 2, "h": 6, "m": 5, "n": 7, "k": 3, "s": 8, "t": 9, "d": 4, "c": 2}


def cost_of(name, number=0, dtype=DType.float32):
    """Read, written and operations of a row's sample with `SIZES`."""
    row = ROWS[name]
    types, attrs = row.samples[number].types(dtype), row.samples[number].attrs
    cost = row.cost(types, attrs, row.infer(types, attrs))
    return tuple(dim.evaluate(SIZES) for dim in (cost.read, cost.written, cost.operations))


@pytest.mark.parametrize(
    ("name", "number", "wanted"),
    [
        ("add", 0, (2 * 5 * 7 * 4, 5 * 7 * 4, 5 * 7)),
        ("add", 2, ((5 + 7) * 4, 5 * 7 * 4, 5 * 7)),
        ("exp", 0, (5 * 7 * 4, 5 * 7 * 4, 16 * 5 * 7)),
        ("less", 0, (2 * 5 * 7 * 4, 5 * 7, 5 * 7)),
        ("where", 0, (5 * 7 * 9, 5 * 7 * 4, 5 * 7)),
        ("sum", 1, (3 * 5 * 7 * 4, 3 * 5 * 4, 3 * 5 * 7)),
        ("softmax", 2, (7 * 4, 7 * 4, 20 * 7)),
        ("layer_norm", 0, ((5 * 7 + 14) * 4, 5 * 7 * 4, 7 * 5 * 7)),
        ("rms_norm", 0, ((5 * 7 + 7) * 4, 5 * 7 * 4, 4 * 5 * 7)),
        ("matmul", 0, ((5 * 3 + 3 * 7) * 4, 5 * 7 * 4, 2 * 5 * 7 * 3)),
        ("matmul_packed", 1, ((2 * 15 + 2 * 96) * 4, 2 * 5 * 32 * 4, 2 * 2 * 5 * 32 * 3)),
        ("transpose", 0, (3 * 5 * 7 * 4, 3 * 5 * 7 * 4, 0)),
        ("broadcast_to", 0, (5 * 4, 2 * 5 * 3 * 4, 0)),
        ("concat", 0, (3 * (5 + 7 + 2) * 4, 3 * (5 + 7 + 2) * 4, 0)),
        ("gather", 0, (3 * 5 * (7 * 4 + 8), 3 * 5 * 7 * 4, 0)),
        ("slice", 0, (3 * 7 * 4, 3 * 7 * 4, 0)),
        ("rope", 0, (8 * (2 * 6 * 16 + 2 * 8) * 4, 8 * 2 * 6 * 16 * 4, 3 * 8 * 2 * 6 * 16)),
        ("rope", 4, (8 * (2 * 6 * 24 + 2 * 9) * 4, 8 * 2 * 6 * 24 * 4, 3 * 8 * 2 * 6 * 18)),
        ("attention", 0, (2 * 6 * 4 * (8 + 18) * 4, 2 * 6 * 8 * 4 * 4, 2 * 6 * 72 * (4 * 4 + 20))),
        ("attention", 3, (3 * 384 * 4, 384 * 4, 2 * 6 * 36 * (4 * 4 + 20))),
    ],
)
def test_costs(name, number, wanted):
    assert cost_of(name, number) == wanted


def test_bytes_are_those_of_the_dtype():
    assert cost_of("matmul", dtype=DType.bfloat16)[0] * 2 == cost_of("matmul")[0]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_row_has_a_cost(row):
    for sample in row.samples:
        types = sample.types(DType.float32)
        result = row.infer(types, sample.attrs)
        cost = row.cost(types, sample.attrs, result)
        assert cost.written == result.shape.elements * result.dtype.size
        assert cost.read.evaluate(SIZES) > 0 or cost.written == 0
        assert isinstance(cost.operations, Dim)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("stride", [1, 2, 7])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("padding", [(0, 0), (2, 0), (1, 4), (9, 9)])
def test_taps_in_the_padding_cost_nothing(size, window, stride, dilation, padding):
    attrs = {"strides": (stride,), "padding": padding, "dilations": (dilation,)}
    found = windows.taps_inside(TensorType(DType.float32, [2, size, 3]), (window,), attrs)
    first = np.arange(-padding[0], size + padding[1] - dilation * (window - 1), stride)
    at = first[:, None] + dilation * np.arange(window)
    assert int(found) == ((at >= 0) & (at < size)).sum()


def test_costs_of_windows():
    """Of 2 x 5 x 7 x 3 elements, by 3 x 3 windows with one zero around them: 13 x 19 are inside."""
    padded = {"padding": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1)}
    last = {**padded, "layout": "channels_last"}
    x, taps = TensorType(DType.float32, [2, 5, 7, 3]), 13 * 19

    def operations(name, weights, **attrs):
        types = [x] if weights is None else [x, TensorType(DType.float32, weights)]
        row = ROWS[name]
        return int(row.cost(types, attrs, row.infer(types, attrs)).operations)

    assert operations("conv", [4, 3, 3, 3], **last, groups=1) == 2 * 2 * 4 * 3 * taps
    assert operations("conv", [6, 1, 3, 3], **last, groups=3) == 2 * 2 * 6 * taps
    assert operations("max_pool", None, **last, window=(3, 3)) == 2 * 3 * taps
    product = {**padded, "kernel": (3, 3)}
    assert operations("window_matmul", [1, 4, 27], **product) == 2 * 2 * 4 * 3 * taps
    assert operations("window_matmul", [3, 2, 9], **product) == 2 * 2 * 6 * taps
    assert operations("depthwise_conv", [9, 3], **product) == 2 * 2 * 3 * taps


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 4, 100])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 9), (9, 9), (9, 3)])
def test_pairs_of_attention(queries, keys, causal, window):
    """As many as are seen: also where there are more queries than keys."""
    seen = np.ones((queries, keys), bool)
    if causal:
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        if window:
            seen &= ~np.tri(queries, keys, keys - queries - window, dtype=bool)
    found = pairs(Dim(queries), Dim(keys), {"causal": causal, "window": window})
    assert found.evaluate({}) == seen.sum()


def pairs_of(name, *operands, **attrs):
    """For how many pairs of a query and a key a row counts operations, for each head."""
    row, dtypes = ROWS[name], {"offsets": DType.int64, "tables": DType.int32}
    types = [TensorType(dtypes.get(kind, DType.float32), shape) for kind, *shape in operands]
    given = {"scale": 0.5, "causal": True, "window": 0, "softcap": 0.0, "value_size": 0, **attrs}
    heads, size = map(int, types[0].shape[1:])
    each = 4 * size + (38 if given["softcap"] else 20)
    return int(row.cost(types, given, types[0]).operations) / heads / each


def ragged_pairs(rows, queries, keys, **attrs):
    sides = [("q", rows * queries, 6, 8), *[("k", rows * keys, 2, 8)] * 2]
    return pairs_of("ragged_attention", *sides, *[("offsets", rows + 1)] * 2, **attrs)


def paged_pairs(rows, queries, blocks, **attrs):
    sides = [("q", rows * queries, 6, 8), *[("k", rows * blocks, 16, 2, 8)] * 2]
    places = ("offsets", rows + 1), ("offsets", rows), ("tables", rows, blocks)
    return pairs_of("paged_attention", *sides, *places, **attrs)


def test_queries_see_keys_of_their_own_row_alone():
    assert ragged_pairs(8, 128, 128) == 8 * sum(range(129))
    assert ragged_pairs(8, 128, 128, causal=False) == 8 * 128 * 128
    assert ragged_pairs(3, 2, 10) == 3 * (9 + 10)
    assert ragged_pairs(0, 4, 4) == 0
    assert ragged_pairs(3, 2, 10, softcap=30.0) == ragged_pairs(3, 2, 10)


def test_queries_see_no_key_behind_their_own():
    assert paged_pairs(8, 1, 4) == 8 * 64
    assert paged_pairs(2, 64, 4) == 2 * sum(range(65))
    assert paged_pairs(2, 64, 4, causal=False) == 2 * 64 * 64
    assert paged_pairs(2, 1, 4, window=5) == 2 * 5
