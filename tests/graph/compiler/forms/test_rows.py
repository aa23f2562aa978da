"""Softmax, norms and activations."""

import math

import numpy as np
import pytest
from written import check, found, kernels, softmax, written

from heddle.graph import DType, TensorType, ops

F32, BF16 = DType.float32, DType.bfloat16
ROWS, VECTOR = TensorType(F32, ("n", 64)), TensorType(F32, (64,))


def centered(x):
    return x - ops.mean(x, axis=-1)


def variance(x):
    return ops.mean(x * x, axis=-1)


ROW_FORMS = {
    "softmax": [
        softmax,
        lambda x: ops.exp(x - ops.max(x, axis=-1)) / ops.sum(ops.exp(x - ops.max(x, axis=-1)), -1),
    ],
    "rms_norm": [
        lambda x: x * ops.rsqrt(variance(x) + 1e-6),
        lambda x: x / ops.sqrt(1e-6 + ops.mean(ops.pow(x, 2.0), axis=-1)),
        lambda x: x / ops.sqrt(ops.sum(x * x, axis=-1) / 64.0 + 1e-6),
        lambda x: x * ops.pow(variance(x) + 1e-6, -0.5),
        lambda x: x / ops.pow(variance(x) + 1e-6, 0.5),
        lambda x, w: w * (x * ops.rsqrt(variance(x) + 1e-6)),
        lambda x, w: x * w / ops.sqrt(variance(x) + 1e-6),
        lambda x, w: x * (ops.rsqrt(variance(x) + 1e-6) * ops.reshape(w, (1, 64))),
    ],
    "layer_norm": [
        lambda x: centered(x) * ops.rsqrt(variance(centered(x)) + 1e-5),
        lambda x, w: centered(x) / ops.sqrt(variance(centered(x)) + 1e-5) * w,
        lambda x, w, b: b + w * centered(x) * ops.rsqrt(variance(centered(x)) + 1e-5),
        lambda x, w, b: centered(x) / ops.sqrt(variance(centered(x)) + 1e-5) * w + b,
    ],
    "gelu": [
        lambda x: 0.5 * x * (1.0 + ops.erf(x / math.sqrt(2))),
        lambda x: x * 0.5 * (ops.erf(x * 0.70710678) + 1.0),
        lambda x: x * (ops.erf(x / 1.4142135) + 1.0) / 2.0,
        lambda x: 0.5 * x * (1 + ops.tanh(0.7978845608 * (x + 0.044715 * ops.pow(x, 3.0)))),
        lambda x: 0.5 * x * (1 + ops.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
        lambda x: 0.5 * x * (1 + ops.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))),
    ],
    "silu": [
        lambda x: x * ops.sigmoid(x),
        lambda x: x / (1.0 + ops.exp(-x)),
        lambda x: x * (1.0 / (1.0 + ops.exp(x * -1.0))),
    ],
    "sigmoid": [
        lambda x: 1.0 / (ops.exp(-x) + 1.0),
        lambda x: 1.0 / (1.0 + ops.exp(x * -1.0)),
    ],
}


@pytest.mark.parametrize(
    ("name", "write"), [(name, each) for name, several in ROW_FORMS.items() for each in several]
)
def test_rows_and_activations(name, write):
    vectors = write.__code__.co_argcount - 1
    graph = written(write, ROWS, *[VECTOR] * vectors)
    assert found(graph) == [name]
    check(graph, {"n": 1}, {"n": 7})


def test_factors_that_make_it_wider():
    """Ones change no number, but the shape: the op alone would have another one."""
    wide = np.ones((5, 64), np.float32)
    one_row = TensorType(F32, (1, 64))
    for write in (
        lambda x: (
            ops.exp(x - ops.max(x, axis=-1))
            * ops.constant(wide, F32)
            / ops.sum(ops.exp(x - ops.max(x, axis=-1)), -1)
        ),
        lambda x: x * ops.constant(wide, F32) * ops.rsqrt(variance(x) + 1e-6),
        lambda x: x * ops.constant(0.5 * wide, F32) * (1.0 + ops.erf(x * math.sqrt(0.5))),
    ):
        check(written(write, one_row), {})


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("silu", lambda x, y: x * y * ops.sigmoid(x)),
        ("silu", lambda x, y: ops.sigmoid(x) * (y * x)),
        ("silu", lambda x, y: y * x / (1.0 + ops.exp(-x))),
        ("silu", lambda x, y: x / (1.0 + ops.exp(-x)) * y),
        ("silu", lambda x, y: x * y * (1.0 / (1.0 + ops.exp(-x)))),
        ("gelu", lambda x, y: y * 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))),
        ("gelu", lambda x, y: 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5))) * y),
        (
            "gelu",
            lambda x, y: (1 + ops.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))) * (x * y / 2),
        ),
    ],
)
def test_gates_before_and_behind_their_activation(name, write):
    """SwiGLU and GEGLU (arXiv:2002.05202) have the kernels of the op, whatever the order."""
    graph = written(write, ROWS, ROWS)
    assert found(graph) == [name, "mul"]
    approximate = {"approximate": "tanh"} if "tanh" in write.__code__.co_names else {}
    named = written(lambda x, y: getattr(ops, name)(x, **approximate) * y, ROWS, ROWS)
    for kind in ("cpu", "cuda"):
        assert kernels(graph, kind) == kernels(named, kind)
    check(graph, {"n": 1}, {"n": 7})


def test_two_gates_are_two_activations():
    graph = written(lambda x, y: x * ops.sigmoid(x) * (y * ops.sigmoid(y)), ROWS, ROWS)
    assert sorted(found(graph)) == ["mul", "silu", "silu"]
    check(graph, {"n": 7})


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: x - y,
        lambda x, y: 1.0 - x,
        lambda x, y: x - ops.max(y, axis=-1),
        lambda x, y: x - ops.mean(y, axis=-1),
        lambda x, y: x - ops.mean(x, axis=0),
    ],
)
def test_a_difference_may_be_what_a_norm_is_of(write):
    """It takes off no mean of the row itself: that would be another norm."""
    graph = written(lambda x, y: write(x, y) * ops.rsqrt(variance(write(x, y)) + 1e-6), ROWS, ROWS)
    for kind in ("cpu", "cuda"):
        assert found(graph, kind)[-1] == "rms_norm"
    check(graph, {"n": 5})


def test_what_stays_of_a_norm_is_behind_it():
    """A scale for each row, as of an adaptive norm; casts as Llama has them."""
    rows = TensorType(F32, ("n", 1))
    graph = written(lambda x, w, s: x * ops.rsqrt(variance(x) + 1e-6) * s, ROWS, VECTOR, rows)
    assert found(graph) == ["rms_norm", "mul"]
    check(graph, {"n": 5})

    def llama(x, weight):
        wide = ops.cast(x, F32)
        normal = wide * ops.rsqrt(variance(wide) + 1e-6)
        return weight * ops.cast(normal, BF16)

    types = TensorType(BF16, ("n", 64)), TensorType(BF16, (64,))
    assert found(written(llama, *types)) == ["cast", "rms_norm", "cast", "mul"]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: ops.exp(x) / ops.sum(ops.exp(x), axis=-1),  # infinite where softmax is not
        lambda x: ops.exp(x - ops.min(x, axis=-1)) / ops.sum(ops.exp(x - ops.min(x, axis=-1)), -1),
        lambda x: ops.exp(x - ops.max(x, axis=0)) / ops.sum(ops.exp(x - ops.max(x, axis=0)), -1),
        lambda x: 2.0 * softmax(x) / (ops.sum(softmax(x), axis=-1) + 1.0),
        lambda x: x * ops.rsqrt(ops.mean(x * x, axis=0) + 1e-6),
        lambda x: x * ops.rsqrt(ops.mean(x * centered(x), axis=-1) + 1e-6),
        lambda x: x * ops.rsqrt(variance(x) + ops.mean(x, axis=-1)),
        lambda x: x * ops.sqrt(variance(x) + 1e-6),
        lambda x: x * ops.pow(variance(x) + 1e-6, 0.5),
        lambda x: x / ops.pow(variance(x) + 1e-6, 0.6),
        lambda x: 0.5 * x * (1.0 + ops.erf(x * 0.7)),
        lambda x: 0.4 * x * (1.0 + ops.erf(x * math.sqrt(0.5))),
        lambda x: 0.5 * x * (2.0 + ops.erf(x * math.sqrt(0.5))),
        lambda x: 0.5 * x * (1 + ops.tanh(0.7978845608 * (x + 0.05 * ops.pow(x, 3.0)))),
        lambda x: 0.5 * x * (1 + ops.tanh(0.7978845608 * (x + 0.044715 * ops.pow(x, 2.0)))),
        lambda x: x / (1.0 + ops.exp(x)),
        lambda x: x / (2.0 + ops.exp(-x)),
        lambda x: (x + 1.0) * ops.sigmoid(x),
        lambda x: x * centered(x) * ops.sigmoid(-x),
        lambda x: centered(x) / x / (1.0 + ops.exp(-x)),
        lambda x: 2.0 * x * centered(x) * ops.sigmoid(x),
        lambda x: x * centered(x) * (1.0 + ops.erf(x * math.sqrt(0.5))),
    ],
)
def test_what_is_something_else_stays(write):
    graph = written(write, ROWS)
    named = (
        set(found(graph)) - {"softmax"} if "softmax" in write.__code__.co_names else found(graph)
    )
    assert not {"softmax", "rms_norm", "layer_norm", "gelu", "silu"} & set(named)
    check(graph, {"n": 5}, tolerance=1e-5)
