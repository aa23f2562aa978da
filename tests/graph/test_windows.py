"""conv, max_pool and avg_pool: compiled, in both layouts, a block of ResNet, and mistakes."""

import re

import ml_dtypes
import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler.pipeline import lower
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import CompileError, GraphError

F32, BF16 = DType.float32, DType.bfloat16
FIRST = {"layout": "channels_first"}


def resnet(layout):
    """The start of a ResNet, and a block of three convolutions that halves the picture."""
    size = Dim("size", 16, 64)
    shape = (2, 3, size, size) if layout == "channels_first" else (2, size, size, 3)
    with Graph("resnet", [TensorType(F32, shape)]) as graph:
        at, weights = {"layout": layout}, {}
        rng = np.random.default_rng(0)

        def conv(x, name, n, depth, kernel, **attrs):
            values = rng.standard_normal((n, depth, kernel, kernel)).astype(np.float32)
            weights[name] = values / np.float32(np.sqrt(depth * kernel**2))
            bias = rng.standard_normal(n).astype(np.float32)
            weights[f"{name} bias"] = bias
            b = graph.add_weight(Weight(f"{name} bias", F32, (n,)))
            if layout == "channels_first":
                b = ops.reshape(b, (n, 1, 1))
            weight = graph.add_weight(Weight(name, F32, values.shape))
            return ops.conv(x, weight, **attrs, **at) + b

        x = ops.relu(conv(graph.inputs[0], "stem", 8, 3, 7, strides=(2, 2), padding=(3,) * 4))
        x = ops.max_pool(x, window=(3, 3), strides=(2, 2), padding=(1,) * 4, **at)
        y = ops.relu(conv(x, "narrow", 4, 8, 1))
        y = ops.relu(conv(y, "wide", 4, 4, 3, strides=(2, 2), padding=(1,) * 4))
        y = conv(y, "broad", 16, 4, 1)
        x = ops.relu(y + conv(x, "short", 16, 8, 1, strides=(2, 2)))
        x = ops.relu(conv(x, "channels", 16, 1, 3, padding=(1,) * 4, groups=16))
        graph.output(ops.avg_pool(x, window=(2, 2), strides=(1, 1), **at))
    return graph, weights


def run(graph, arrays, weights):
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), weights)
    return [result.to_numpy() for result in model.execute(*arrays)]


def test_no_pictures():
    with Graph("none", [TensorType(F32, (Dim("batch", 0, 2), 4, 4, 6))]) as graph:
        w = graph.constant(np.ones((4, 3, 3, 3), np.float32))
        graph.output(ops.conv(graph.inputs[0], w, groups=2))
    x = np.zeros((0, 4, 4, 6), np.float32)
    assert evaluate(graph, [x])[0].shape == run(graph, [x], {})[0].shape == (0, 2, 2, 4)


def test_a_window_that_does_not_fit_is_none():
    """Where strides leave room for a picture of no windows."""
    with Graph("none", [TensorType(F32, (1, "m", 4))]) as graph:
        (x,), w = graph.inputs, graph.constant(np.ones((4, 4, 3), np.float32))
        graph.output(ops.max_pool(x, (5,)), ops.conv(x, w, strides=(2,)), ops.avg_pool(x, (5,)))
    for size in (1, 4, 5, 12):
        x = np.random.default_rng(size).standard_normal((1, size, 4)).astype(np.float32)
        for found, wanted in zip(run(graph, [x], {}), evaluate(graph, [x]), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_a_resnet(layout):
    graph, weights = resnet(layout)
    rng = np.random.default_rng(1)
    shape = (2, 3, 33, 33) if layout == "channels_first" else (2, 33, 33, 3)
    x = rng.standard_normal(shape).astype(np.float32)
    (found,) = run(graph, [x], weights)
    (wanted,) = evaluate(graph, [x], weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_both_layouts_mean_the_same():
    rng = np.random.default_rng(0)
    weight, x = rng.standard_normal((6, 2, 3)), rng.standard_normal((2, 9, 4))
    attrs = {"strides": (2,), "padding": (1, 2), "dilations": (1,), "groups": 2}
    last = ROWS["conv"].reference(x, weight, **attrs, layout="channels_last")
    first = ROWS["conv"].reference(np.moveaxis(x, -1, 1), weight, **attrs, **FIRST)
    np.testing.assert_allclose(first, np.moveaxis(last, -1, 1))
    by_hand = np.sum(weight[5].T * np.vstack([np.zeros(2), x[1, :2, 2:]]))
    np.testing.assert_allclose(last[1, 0, 5], by_hand)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_kernels(kind):
    """Of one pixel a plain product; biases, activations and the residual join what is before."""
    graph, _ = resnet("channels_last")
    groups = [op for op in m.operations(lower(graph.module, kind)) if m.name(op) == "fused"]
    late = [op for op in groups if "stage" not in op.attributes]
    names = [str(op.attributes["kernel"]).strip('"').rpartition("-")[0] for op in late]
    # On a CPU weights of few channels are read where they lie.
    windows, plain = {
        "cpu": ("window_matmul_packed", {"matmul", "matmul_packed"}),
        "cuda": ("window_matmul", {"matmul"}),
    }[kind]
    assert [names.count(name) for name in (windows, "window_reduce")] == [3, 3]
    assert sum(names.count(name) for name in plain) == 2
    assert set(names) == {windows, *plain, "window_reduce"}


@pytest.mark.parametrize(
    ("depth", "dtype", "kernel"),
    [(4, F32, "window_reduce"), (2, BF16, "window_reduce"), (12, F32, "window_matmul_packed")],
)
def test_narrow_groups(depth, dtype, kernel):
    shapes = (2, 6, 5, 3 * depth), (3 * depth, depth, 3, 2)
    with Graph("g", types_of(("b", *shapes[0][1:]), shapes[1], (dtype, dtype))) as graph:
        graph.output(ops.conv(*graph.inputs, padding=(1, 1, 0, 1), groups=3))
    groups = [op for op in m.operations(lower(graph.module, "cpu")) if m.name(op) == "fused"]
    assert any(kernel in str(op.attributes["kernel"]) for op in groups)
    rng, kind = np.random.default_rng(0), ml_dtypes.bfloat16 if dtype is BF16 else np.float32
    arrays = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    (found,), (wanted,) = run(graph, arrays, {}), evaluate(graph, arrays, {})
    error = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    assert error.max() < (0.1 if dtype is BF16 else 1e-4)


def types_of(x, weights, dtypes=(F32, F32)):
    return [TensorType(dtypes[0], x), TensorType(dtypes[1], weights)]


X, W = ("b", 9, 9, 6), (4, 6, 3, 3)
MISTAKES = [
    (X, W[:3], {}, "weights: wanted rank 4, as x, got [4, 6, 3]"),
    (("b", 6), (4, 6), {}, "x: wanted 1 to 3 axes beside batch and channels, got 0"),
    (X, W, {"layout": "NHWC"}, "layout: wanted channels_last or channels_first, got 'NHWC'"),
    (X, W, {"strides": (2,)}, "strides: wanted 2 numbers from 1 on, got (2,)"),
    (X, W, {"dilations": (0, 1)}, "dilations: wanted 2 numbers from 1 on, got (0, 1)"),
    (X, W, {"padding": (1, 1)}, "padding: wanted 4 numbers from 0 on, got (1, 1)"),
    (X, W, {"padding": (1, 1, 1, -1)}, "padding: wanted 4 numbers from 0 on, got (1, 1, 1, -1)"),
    ((2, 5, 6, 0), (5, 0, 3, 3), {}, "x: wanted at least one channel, got float32[2, 5, 6, 0] on "
     "cpu:0"),
    (X, W, {"groups": 4}, "wanted [n, channels / groups, ...] for 6 channels in 4 groups that "
     "divide n, got [4, 6, 3, 3]"),
    (X, (5, 3, 3, 3), {"groups": 2}, "wanted [n, channels / groups, ...] for 6 channels in 2 "
     "groups that divide n, got [5, 3, 3, 3]"),
    (X, (4, 6, 3, "k"), {}, "weights: wanted static sizes of the kernel, got [4, 6, 3, k]"),
    (X, (4, 6, 10, 3), {}, "wanted a window of (10, 3) inside [9, 9]"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "weights", "attrs", "message"), MISTAKES)
def test_mistakes(x, weights, attrs, message):
    place = r"test_windows\.py:\d+: conv: "
    with (
        pytest.raises(GraphError, match=place + re.escape(message)),
        Graph("g", types_of(x, weights)) as graph,
    ):
        ops.conv(*graph.inputs, **attrs)


def test_mistakes_of_pooling():
    with Graph("g", [TensorType(F32, X)]) as graph:
        for window, message in (
            ((3,), "window: wanted 2 numbers from 1 on, got (3,)"),
            ((3, 10), "wanted a window of (3, 10) inside [9, 9]"),
        ):
            for op in (ops.max_pool, ops.avg_pool):
                with pytest.raises(GraphError, match=re.escape(message)):
                    op(graph.inputs[0], window=window)
        graph.output(graph.inputs[0])


def test_weights_of_run_time_sizes_are_refused():
    with Graph("g", types_of(X, ("n", 6, 3, 3))) as graph:
        graph.output(ops.conv(*graph.inputs))
    with pytest.raises(CompileError, match=r"conv.*wanted static weights, got float32\[n, 6, 3, 3"):
        compile(graph, "cpu")


MOVES = {"kernel": (3, 3), "strides": (1, 1), "padding": (0,) * 4, "dilations": (1, 1)}


@pytest.mark.parametrize(
    ("name", "weights", "attrs", "message"),
    [
        ("window_matmul", (1, 4), {}, "weights: wanted rank 3, got [1, 4]"),
        ("window_matmul", (2, 4, 54), {}, "weights: wanted k = 6 channels times 9 taps by 2"),
        ("window_matmul_packed", (1, 54, 32), {"columns": Dim(4)}, "b: wanted rank 4 or more"),
        ("window_matmul_packed", (1, 2, 54, 32), {"columns": Dim(4)},
         "b: wanted panels [1, 54, 32] for n = 4, got [1, 2, 54, 32]"),
        ("depthwise_conv", (9, 5), {},
         "weights: wanted [9 taps times the depth, 6], got float32 [9, 5]"),
        ("depthwise_conv", (36, 6), {}, "weights: wanted a depth that divides 6, got 4"),
    ],
)  # fmt: skip
def test_what_the_verifier_refuses(name, weights, attrs, message):
    """Of ops that `ops` has no function for."""
    with pytest.raises(GraphError, match=re.escape(message)):
        ROWS[name].infer(types_of(X, weights), {**MOVES, **attrs})
