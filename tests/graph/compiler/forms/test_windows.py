"""Padding in front of convolutions and pooling."""

import math

import numpy as np
import pytest
from written import attrs, check, found, written

from heddle.graph import Dim, DType, TensorType, ops

F32 = DType.float32
H = Dim("h", 3, 99)
LAST, FIRST = TensorType(F32, ("b", H, 9, 4)), TensorType(F32, ("b", 4, H, 9))
SIZES = [{"b": 1, "h": 3}, {"b": 2, "h": 8}]
WEIGHTS = np.random.default_rng(1).normal(size=(5, 4, 3, 3)).astype(np.float32)


def conv(x, layout="channels_last", **moves):
    return ops.conv(x, ops.constant(WEIGHTS, F32), layout=layout, **moves)


def test_conv():
    graph = written(lambda x: conv(ops.pad(x, (0, 0, 1, 2, 0, 1, 0, 0)), strides=(2, 1)), LAST)
    assert found(graph) == ["conv"]
    assert attrs(graph, "conv")["padding"] == (1, 2, 0, 1)
    check(graph, *SIZES, tolerance=1e-5)


def test_conv_that_pads_more():
    def write(x):
        return conv(ops.pad(x, (0, 0, 0, 0, 1, 1, 2, 0)), "channels_first", padding=(0, 1, 1, 1))

    graph = written(write, FIRST)
    assert found(graph) == ["conv"]
    assert attrs(graph, "conv")["padding"] == (1, 2, 3, 1)
    check(graph, *SIZES, tolerance=1e-5)


@pytest.mark.parametrize(
    ("pool", "fill"),
    [
        (lambda x: ops.avg_pool(x, window=(2, 2)), 0),
        (lambda x: ops.max_pool(x, window=(2, 2)), -math.inf),
    ],
)
def test_pools(pool, fill):
    graph = written(lambda x: pool(ops.pad(x, (0, 0, 1, 0, 0, 1, 0, 0), fill)), LAST)
    assert "concat" not in found(graph)
    check(graph, *SIZES)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: conv(ops.pad(x, (0, 0, 1, 1, 0, 0, 0, 0), 1.0)),
        lambda x: conv(ops.pad(x[..., :3], (0, 0, 0, 0, 0, 0, 0, 1))),
        lambda x: conv(ops.pad(x, (1, 0, 0, 0, 0, 0, 0, 0))),
        lambda x: conv(ops.concat([x, x], axis=1)),
        lambda x: ops.max_pool(ops.pad(x, (0, 0, 1, 1, 0, 0, 0, 0)), window=(2, 2)),
        lambda x: ops.avg_pool(
            ops.pad(x, (0, 0, 1, 1, 0, 0, 0, 0)), window=(2, 2), counts_padding=False
        ),
    ],
)
def test_what_is_no_padding_of_windows_stays(write):
    graph = written(write, LAST)
    assert "concat" in found(graph)
    check(graph, *SIZES, tolerance=1e-5)


def test_what_others_read_padded_stays():
    """It is in memory anyway, and nothing would be saved."""

    def write(x):
        wide = ops.pad(x, (0, 0, 1, 1, 1, 1, 0, 0))
        return conv(wide) + ops.sum(wide, axis=-1)[:, 1:-1, 1:-1]

    graph = written(write, LAST)
    assert "concat" in found(graph)
    check(graph, *SIZES, tolerance=1e-5)
