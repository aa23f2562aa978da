"""Channels that are shuffled, sliced and chosen between convolutions, and what reshapes mean."""

import re

import numpy as np
import pytest
from picture_moves import (
    F32,
    Convolutions,
    channels_become_pixels,
    groups_change_places,
    tokens,
    windows,
)

from heddle.graph import Graph, Shape, TensorType, compile, ops
from heddle.graph.compiler.shuffles import Regrouping
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession


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
    return conv(groups_change_places(conv(x, 12, groups=3), 3), 12, groups=3)


def shuffle_v2(x, conv):
    """ShuffleNet V2: half of the channels go on as they are, and are shuffled with the others."""
    left, right = ops.split(conv(x, 8), [4, 4], axis=1)
    y = groups_change_places(ops.concat([left, ops.relu(conv(right, 4))], axis=1))
    left, right = ops.split(y, [4, 4], axis=1)
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
    return channels_become_pixels(conv(channels_become_pixels(conv(x, 8)), 12))


def in_windows(x, conv):
    """MaxViT: beside a residual."""
    y = conv(x, 16)
    return conv(windows(y) * 2.0 + y, 16)


def in_rows(x, conv):
    """SegFormer: rows of pixels between two convolutions."""
    return conv(ops.relu(tokens(conv(x, 8))), 8)


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
        (in_windows, 4),
        (in_rows, 2),
        (patches, 1),
    ],
)
def test_channels_stay_last(network, turns):
    """So many transposes are left, with that of x in front and mostly that of the result."""
    with Graph("net", [TensorType(F32, ("n", 6, 6, 8))]) as graph:
        conv = Convolutions(graph)
        graph.output(network(graph.inputs[0], conv))
    text = compile(graph, "cpu", stop_after="sink")
    assert len(re.findall(r"heddle.transpose.*dims = ", text)) == turns
    model = InferenceSession(threads=2).load(compile(graph, "cpu:x86-64-v3"), conv.weights)
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 6, 6, 8), np.float32)
        (result,), (wanted,) = model.execute(x), evaluate(graph, [x], conv.weights)
        np.testing.assert_allclose(result.to_numpy(), wanted, rtol=1e-4, atol=1e-4)
