"""Channels that are shuffled, sliced and chosen between convolutions, and what reshapes mean."""

import re

import numpy as np
import pytest

from heddle.graph import DType, Graph, Shape, TensorType, Weight, compile, ops
from heddle.graph.compiler.shuffles import Regrouping
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

F32 = DType.float32


@pytest.mark.parametrize(
    ("before", "after", "sizes"),
    [
        ([1, 6, 5], [1, 2, 3, 5], [1, 2, 3, 5]),
        (["n", 2, 3, 5], ["n", 6, 5], ["n", 2, 3, 5]),
        (["n", 8, 5, 5], ["n", 2, 4, 25], ["n", 2, 4, 5, 5]),
        (["2*n"], [2, "n"], [2, "n"]),
        ([1, 6], [6], [1, 6]),
        ([6], [1, 6], [1, 6]),
        ([0, 3], [0, 3], [0, 3]),
        ([], [], []),
        ([4, 6], [6, 4], None),
        ([4, 1], [4], None),
        (["n", 8], ["4*n", 2], None),
    ],
)
def test_regroupings(before, after, sizes):
    found = Regrouping.of(Shape(before), Shape(after))
    if sizes is None:
        assert found is None
        return
    assert found.sizes == Shape(sizes)
    for shape, parts in (before, found.before), (after, found.after):
        assert [part for run in parts for part in run] == list(range(len(sizes)))
        assert Shape(shape) == Shape(Shape(found.sizes[i] for i in run).elements for run in parts)


def shuffle_v1(x, conv):
    """ShuffleNet: channels of groups change places between two convolutions."""
    n, c, h, w = conv(x, 12, groups=3).shape
    y = ops.reshape(conv(x, 12, groups=3), [n, 3, 4, h, w])
    return conv(ops.reshape(ops.permute(y, [0, 2, 1, 3, 4]), [n, c, h, w]), 12, groups=3)


def shuffle_v2(x, conv):
    """ShuffleNet V2: half of the channels go on as they are, and are shuffled with the others."""
    left, right = ops.split(conv(x, 8), [4, 4], axis=1)
    y = ops.concat([left, ops.relu(conv(right, 4))], axis=1)
    n, c, h, w = y.shape
    y = ops.permute(ops.reshape(y, [n, 2, 4, h, w]), [0, 2, 1, 3, 4])
    left, right = ops.split(ops.reshape(y, [n, c, h, w]), [4, 4], axis=1)
    return conv(ops.concat([left, conv(right, 4)], axis=1), 6)


def in_between(x, conv):
    """YOLO: halves of channels, a picture twice as large, every second pixel from the end."""
    small = conv(x, 8)
    left, right = ops.split(ops.silu(small), [4, 4], axis=1)
    rows = ops.gather(conv(right, 4), np.repeat(np.arange(6), 2), axis=2)
    y = ops.concat([left, ops.gather(rows, np.arange(0, 12, 2), axis=2)], axis=1)
    return conv(y[:, :, ::-1, 1::2], 5)


def larger(x, conv):
    """Super-resolution: channels become pixels between two convolutions, and once more."""
    n, _, h, w = conv(x, 8).shape
    y = ops.permute(ops.reshape(conv(x, 8), [n, 2, 2, 2, h, w]), [0, 1, 4, 2, 5, 3])
    y = conv(ops.reshape(y, [n, 2, h * 2, w * 2]), 12)
    y = ops.permute(ops.reshape(y, [n, 3, 2, 2, h * 2, w * 2]), [0, 1, 4, 2, 5, 3])
    return ops.reshape(y, [n, 3, h * 4, w * 4])


def windows(x, conv):
    """MaxViT: windows of 3 x 4 pixels as rows of their own, and back, beside a residual."""
    y = conv(x, 16)
    n, c, h, w = y.shape
    rows = ops.permute(ops.reshape(y, [n, c, 2, h // 2, 2, w // 2]), [0, 2, 4, 3, 5, 1])
    rows = ops.softmax(ops.reshape(rows, [n, 4, 12, c]), axis=-1)
    back = ops.permute(ops.reshape(rows, [n, 2, 2, h // 2, w // 2, c]), [0, 5, 1, 3, 2, 4])
    return conv(ops.reshape(back, [n, c, h, w]) * 2.0 + y, 16)


def tokens(x, conv):
    """SegFormer: rows of pixels become a picture between two convolutions."""
    y = ops.permute(ops.reshape(conv(x, 8), [x.shape[0], 8, 48]), [0, 2, 1])
    rows = ops.permute(ops.softmax(y, axis=-1), [0, 2, 1])
    return conv(ops.relu(ops.reshape(rows, [x.shape[0], 8, 6, 8])), 8)


def patches(x, conv):
    """A vision transformer's: pixels in a row, their channels last."""
    y = conv(x, 8)
    n, c, h, w = y.shape
    return ops.permute(ops.reshape(y, [n, c, h * w]), [0, 2, 1])


@pytest.mark.parametrize(
    ("network", "turns"),
    [
        (shuffle_v1, 3),
        (shuffle_v2, 3),
        (in_between, 2),
        (larger, 4),
        (windows, 4),
        (tokens, 2),
        (patches, 1),
    ],
)
def test_channels_stay_last(network, turns):
    """So many transposes are left, with that of x in front and mostly that of the result."""
    weights: dict[str, np.ndarray] = {}
    with Graph("net", [TensorType(F32, ("n", 6, 6, 8))]) as graph:

        def conv(x, channels, groups=1):
            shape = (channels, int(x.shape[1]) // groups, 1, 1)
            name = f"w{len(weights)}"
            weights[name] = np.random.default_rng(len(weights)).standard_normal(shape, np.float32)
            own = graph.add_weight(Weight(name, F32, shape))
            return ops.conv(x, own, groups=groups, layout="channels_first")

        graph.output(network(graph.inputs[0], conv))
    text = compile(graph, "cpu", stop_after="sink")
    assert len(re.findall(r"heddle.transpose.*dims = ", text)) == turns
    model = InferenceSession(threads=2).load(compile(graph, "cpu:x86-64-v3"), weights)
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 6, 6, 8), np.float32)
        (result,), (wanted,) = model.execute(x), evaluate(graph, [x], weights)
        np.testing.assert_allclose(result.to_numpy(), wanted, rtol=1e-4, atol=1e-4)
