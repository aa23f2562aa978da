"""Attention whose scores are capped, written out: `cap * tanh(scores / cap)` before the mask."""

import math

import pytest
from written import attrs, check, found, heads, softmax, turned, written

from heddle.graph import Dim, DType, TensorType, ops

F32 = DType.float32
QKV = [TensorType(F32, (Dim("b", 0, 9), Dim(size, 0, 99), 64)) for size in ("s", "t", "t")]
SAME = [TensorType(F32, ("b", "s", 64))] * 3
SIZES = [{"b": 2, "s": 3, "t": 19}, {"b": 1, "s": 1, "t": 1}]


def attended(cap, hide=lambda scores: scores, soft=ops.softmax):
    """Attention of heads with a scale of 0.25, whose scores `cap` caps and `hide` hides."""

    def write(q, k, v):
        q, k, v = map(heads, (q, k, v))
        return soft(hide(cap((q @ turned(k)) * 0.25))) @ v

    return write


def causal(scores):
    row = ops.unsqueeze(ops.range(0, scores.shape[-2]), 1)
    return ops.where(ops.range(0, scores.shape[-1]) <= row, scores, -math.inf)


@pytest.mark.parametrize(
    "cap",
    [
        lambda s: ops.tanh(s / 1.5) * 1.5,
        lambda s: 1.5 * ops.tanh(s / 1.5),
        lambda s: ops.tanh(s * (1 / 1.5)) * 1.5,
        lambda s: ops.tanh(s / 1.5) / (1 / 1.5),
    ],
)
@pytest.mark.parametrize("soft", [softmax, ops.softmax])
def test_a_cap(cap, soft):
    graph = written(attended(cap, soft=soft), *QKV)
    assert found(graph) == ["attention"]
    kept = attrs(graph, "attention")
    assert kept["softcap"] == pytest.approx(1.5)
    assert kept["scale"] == pytest.approx(0.25)
    check(graph, *SIZES, tolerance=5e-6)


def test_a_cap_of_other_scores_than_the_scaled_ones():
    """tanh(s / 3) * 1.5 is a cap of 1.5 of half the scores."""
    graph = written(attended(lambda s: ops.tanh(s / 3.0) * 1.5), *QKV)
    kept = attrs(graph, "attention")
    assert (kept["softcap"], kept["scale"]) == (1.5, 0.125)
    check(graph, *SIZES, tolerance=5e-6)


@pytest.mark.parametrize(
    ("hide", "kept"),
    [
        (causal, True),
        (lambda s: s + ops.where(ops.range(0, s.shape[-1]) < 2, 0.0, -1e9), False),
        (lambda s: ops.where(ops.range(0, s.shape[-1]) < 2, s, -math.inf), False),
    ],
    ids=["causal", "added", "chosen"],
)
def test_a_mask_after_the_cap(hide, kept):
    graph = written(attended(lambda s: ops.tanh(s / 1.5) * 1.5, hide), *SAME)
    assert "attention" in found(graph)
    assert attrs(graph, "attention")["causal"] == kept
    check(graph, {"b": 2, "s": 3}, {"b": 1, "s": 9}, tolerance=5e-6)


@pytest.mark.parametrize(
    "cap",
    [
        lambda s: ops.tanh(causal(s) / 1.5) * 1.5,  # what is hidden is -1.5 then
        lambda s: ops.tanh(s / 1.5) * -1.5,
        lambda s: ops.tanh(ops.tanh(s) * 0.5) * 1.5,
        lambda s: ops.tanh(s),
        lambda s: ops.tanh(s / 1.5) * 1.5 * s,
        lambda s: ops.sin(s / 1.5) * 1.5,
    ],
)
def test_what_is_no_cap(cap):
    graph = written(attended(cap), *SAME)
    assert "attention" not in found(graph)
    check(graph, {"b": 2, "s": 3}, {"b": 1, "s": 9}, tolerance=5e-6)


def test_a_cap_that_is_read_elsewhere():
    def write(q, k, v):
        q, k, v = map(heads, (q, k, v))
        capped = ops.tanh((q @ turned(k)) / 1.5)
        return ops.softmax(capped * 1.5) @ v + ops.sum(capped, axis=-1)

    graph = written(write, *SAME)
    assert "attention" not in found(graph)
    check(graph, {"b": 2, "s": 3}, tolerance=5e-6)
