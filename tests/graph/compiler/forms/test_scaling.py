"""Queries and keys that are scaled in front of attention."""

import ml_dtypes
import numpy as np
import pytest
from written import attrs, check, found, heads, kernels, turned, written

from heddle.graph import Dim, DType, TensorType, compile, ops
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

F32, F16, BF16 = DType.float32, DType.float16, DType.bfloat16
QKV = [TensorType(F32, (Dim("b", 0, 9), Dim(size, 0, 99), 64)) for size in ("s", "t", "t")]
SIZES = [{"b": 2, "s": 3, "t": 19}, {"b": 1, "s": 1, "t": 1}, {"b": 0, "s": 2, "t": 3}]


def plain(q, k, v):
    return ops.softmax(heads(q) @ turned(heads(k))) @ heads(v)


@pytest.mark.parametrize(
    "write",
    [
        lambda q, k, v: ops.softmax(heads(q) @ turned(heads(k) * 0.25)) @ heads(v),
        lambda q, k, v: ops.softmax((heads(q) * 0.5) @ turned(heads(k) / 2.0)) @ heads(v),
        lambda q, k, v: plain(q * 16**-0.25, k * 16**-0.25, v),
        lambda q, k, v: plain(0.5 * (q / 2.0), k, v),
        lambda q, k, v: plain(-q, k * -0.25, v),
        lambda q, k, v: ops.attention(*map(heads, (q * 0.5, k, v)), scale=0.5),
    ],
)
def test_the_scale_is_the_attention_s(write):
    graph = written(write, *QKV)
    assert found(graph) == ["attention"]
    assert attrs(graph, "attention")["scale"] == 0.25
    named = written(lambda *qkv: ops.attention(*map(heads, qkv)), *QKV)
    for kind in ("cpu", "cuda"):
        assert kernels(graph, kind) == kernels(named, kind)
    check(graph, *SIZES)


@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_the_scale_is_taken_before_the_cap(softcap):
    """A cap stays what it is: it is that of scores which are scaled."""

    def write(q, k, v):
        return ops.attention(*map(heads, (q * 0.5, k * 2.0, v)), scale=0.25, softcap=softcap)

    graph = written(write, *QKV)
    assert found(graph) == ["attention"]
    kept = attrs(graph, "attention")
    assert (kept["scale"], kept["softcap"]) == (0.25, softcap)
    check(graph, *SIZES)


def test_keys_of_a_cache_are_read_as_they_are():
    """Old and new ones were copied for their scale alone."""
    past = TensorType(F32, (Dim("b", 0, 9), Dim("p", 0, 50), 64))

    def write(q, k, v, old_k, old_v):
        k, v = ops.concat([old_k, k], axis=1), ops.concat([old_v, v], axis=1)
        return ops.softmax(heads(q) @ turned(heads(k) * 0.25)) @ heads(v)

    graph = written(write, *QKV[:1] * 3, past, past)
    assert found(graph) == ["concat", "concat", "attention"]
    check(graph, {"b": 2, "s": 3, "p": 0}, {"b": 1, "s": 1, "p": 7})


@pytest.mark.parametrize("name", ["ragged_attention", "paged_attention"])
def test_the_attention_of_a_server(name):
    """Its queries, and keys that are not in blocks."""
    i64, i32 = DType.int64, DType.int32
    if name == "ragged_attention":
        types = [TensorType(F32, (size, 4, 16)) for size in ("s", "t", "t")]
        types += [TensorType(i64, (3,))] * 2
    else:
        types = [TensorType(F32, ("s", 4, 16)), *[TensorType(F32, ("n", 8, 4, 16))] * 2]
        types += [TensorType(i64, (3,)), TensorType(i64, (2,)), TensorType(i32, (2, "most"))]

    def write(q, k, *others):
        return getattr(ops, name)(q * 0.5, k * 0.5, *others, scale=1.0)

    graph = written(write, *types)
    ragged = name == "ragged_attention"
    assert found(graph) == [name] if ragged else ["mul", name]
    assert attrs(graph, name)["scale"] == (0.25 if ragged else 0.5)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_of_16_bits_less_is_rounded(dtype):
    """The number is the one that they hold; the product with it is not rounded any more."""
    types = [TensorType(dtype, (1, size, 64)) for size in (5, 7, 7)]
    graph = written(lambda q, k, v: plain(q * 0.3, k, v), *types)
    assert found(graph) == ["attention"]
    numpy = np.float16 if dtype is F16 else ml_dtypes.bfloat16
    assert attrs(graph, "attention")["scale"] == float(numpy(0.3))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(1, n, 64)).astype(numpy).astype(np.float32) for n in (5, 7, 7)]
    exact = written(lambda q, k, v: plain(q * float(numpy(0.3)), k, v), *_wide(types))
    (wanted,) = evaluate(exact, arrays)
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
    (result,) = model.execute(*(array.astype(numpy) for array in arrays))
    unit = 2**-11 if dtype is F16 else 2**-8
    np.testing.assert_allclose(
        result.to_numpy().astype(np.float32), wanted, rtol=2 * unit, atol=2 * unit
    )


def _wide(types):
    return [TensorType(F32, type.shape) for type in types]


@pytest.mark.parametrize(
    "write",
    [
        lambda q, k, v, x: plain(q * x, k, v),  # a number that is not known
        lambda q, k, v, x: plain(q + 0.25, k, v),
        lambda q, k, v, x: plain(q * np.arange(64, dtype=np.float32), k, v),
        lambda q, k, v, x: plain(q * 0.0, k, v),
        lambda q, k, v, x: plain(ops.tanh(q * 0.25), k, v),
        lambda q, k, v, x: plain(q, k, v * 0.25),
        lambda q, k, v, x: plain(0.25 / q, k, v),
    ],
)
def test_other_factors_stay(write):
    graph = written(write, *QKV, TensorType(F32, ()))
    assert len(found(graph)) > 1
    assert attrs(graph, "attention")["scale"] == 1.0
    check(graph, *SIZES)


def test_what_others_read_is_scaled_anyway():
    def write(q, k, v):
        q = q * 0.25
        return plain(q, k, v) + heads(q)

    graph = written(write, *QKV)
    assert found(graph) == ["mul", "attention", "add"]
    check(graph, *SIZES[:2])
