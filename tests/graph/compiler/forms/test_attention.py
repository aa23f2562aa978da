"""Attention, its masks and the order of positions."""

import math
import warnings

import numpy as np
import pytest
from written import attrs, check, found, heads, softmax, turned, written

from heddle.graph import Dim, DType, TensorType, compile, ops
from heddle.runtime import InferenceSession

F32, BF16 = DType.float32, DType.bfloat16


def before(queries, keys, window=0):
    """Whether a query may see a key, by their positions at the end of the keys."""
    row = ops.unsqueeze(ops.range(keys - queries, keys), 1)
    column = ops.range(0, keys)
    seen = column <= row
    return ops.logical_and(seen, row - column < window) if window else seen


def with_heads(mask):
    return ops.unsqueeze(ops.unsqueeze(mask, 0), 0)


def places(scores):
    return ops.range(0, scores.shape[-1])


def row_of(scores):
    return ops.unsqueeze(ops.range(0, scores.shape[-2]), 1)


def causal(scores, window=0, late=-math.inf):
    return ops.where(before(*scores.shape[-2:], window), scores, late)


QKV = [TensorType(F32, ("b", size, 64)) for size in ("s", "t", "t")]
SAME = [TensorType(F32, ("b", "s", 64))] * 3
SIZES = [{"b": 1, "s": 1, "t": 1}, {"b": 2, "s": 3, "t": 19}]


@pytest.mark.parametrize(
    "scale",
    [
        lambda q, k: (q @ turned(k)) * 0.25,
        lambda q, k: 0.25 * (q @ turned(k)),
        lambda q, k: (q @ turned(k)) / 4.0,
        lambda q, k: (q * 0.25) @ turned(k),
        lambda q, k: (q / 2.0) @ turned(k) / 2.0,
        lambda q, k: (q * 0.5) @ (turned(k) * 0.5),
    ],
)
@pytest.mark.parametrize("soft", [softmax, ops.softmax])
def test_attention_by_its_scale(scale, soft):
    def write(q, k, v):
        q, k, v = map(heads, (q, k, v))
        return soft(scale(q, k)) @ v

    graph = written(write, *QKV)
    assert found(graph) == ["attention"]
    assert attrs(graph, "attention")["scale"] == 0.25
    check(graph, *SIZES)


@pytest.mark.parametrize(
    ("hide", "causal", "window"),
    [
        (causal, True, 0),
        (lambda s: causal(s, 3), True, 3),
        (lambda s: ops.where(ops.logical_not(before(*s.shape[-2:])), -math.inf, s), True, 0),
        (lambda s: s + ops.where(before(*s.shape[-2:]), 0.0, -1e9), True, 0),
        (lambda s: s + ops.where(before(*s.shape[-2:]), 0.0, -100.0), False, 0),
        (lambda s: ops.where(places(s) - row_of(s) <= -1, -math.inf, s), False, 0),
        (lambda s: ops.where(places(s) + -1 < row_of(s), s, -math.inf), True, 0),
        (lambda s: ops.where(ops.range(0, s.shape[-1]) < 3, s, -math.inf), False, 0),
        (lambda s: ops.where(with_heads(before(*s.shape[-2:])), s, -1e9), True, 0),
        (lambda s: s + with_heads(ops.where(before(*s.shape[-2:], 3), 0.0, -1e9)), True, 3),
    ],
)
def test_attention_by_the_order_of_positions(hide, causal, window):
    """Where it is what `causal` says, nothing is read for it."""

    def write(q, k, v):
        q, k, v = map(heads, (q, k, v))
        return ops.softmax(hide(q @ turned(k) * 0.25)) @ v

    graph = written(write, *SAME)
    assert "attention" in found(graph)
    kept = attrs(graph, "attention")
    assert (kept["causal"], kept["window"]) == (causal, window)
    check(graph, {"b": 2, "s": 1}, {"b": 1, "s": 9})


@pytest.mark.parametrize("late", [-math.inf, float(np.finfo(np.float32).min)])
def test_attention_by_a_constant_of_positions(late):
    """Every size is known, and the mask is an array of the user's."""
    drawn = np.where(np.tri(5, dtype=bool), 0, late).astype(np.float32)

    def write(q, k, v):
        return ops.softmax(q @ turned(k) + ops.constant(drawn, F32)) @ v

    graph = written(write, *[TensorType(F32, (3, 5, 8))] * 3)
    assert found(graph) == ["attention"]
    assert attrs(graph, "attention")["causal"]
    check(graph, {})


def test_positions_that_wrap_are_a_mask():
    """Of 8 bits, place 128 is -128: before all others."""

    def write(q, k, v):
        places = ops.cast(ops.range(0, q.shape[1]), DType.int8)
        seen = places <= ops.unsqueeze(places, 1)
        return ops.softmax(ops.where(seen, q @ turned(k), -math.inf)) @ v

    graph = written(write, *[TensorType(F32, (1, Dim("s", 1, 200), 8))] * 3)
    assert not attrs(graph, "attention")["causal"]
    check(graph, {"s": 150})


def test_conditions_stay_as_they_are_where_no_part_is_of_positions():
    """What is shared is not made again: it would be 3^40 conditions, and 3000 deep."""

    def shared(a, b):
        for _ in range(40):
            a = ops.logical_and(ops.logical_and(a, b), ops.logical_and(b, ops.logical_and(a, b)))
        return a

    def deep(a, b):
        for _ in range(3000):
            a = ops.logical_and(a, ops.logical_xor(a, b))
        return a

    for condition, each in ((shared, 120), (deep, 3000)):

        def write(q, k, v, a, b, condition=condition):
            return ops.softmax(ops.where(condition(a, b), q @ turned(k), -math.inf)) @ v

        types = [TensorType(F32, (1, 4, 8))] * 3 + [TensorType(DType.bool, (4, 4))] * 2
        names = found(written(write, *types))
        assert names[-1] == "attention"
        assert names.count("logical_and") == each


def test_a_constant_of_16_bits_is_read_without_a_warning():
    drawn = np.where(np.tri(5, dtype=bool), 0, -math.inf).astype(np.float16)

    def write(q, k, v):
        return ops.softmax(q @ turned(k) + ops.constant(drawn, DType.float16)) @ v

    graph = written(write, *[TensorType(DType.float16, (3, 5, 8))] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attrs(graph, "attention")["causal"]


@pytest.mark.parametrize("late", [-math.inf, -1e9])
def test_attention_of_later_queries(late):
    """As a decoder's: queries are the last of the keys."""
    past = Dim("past", 0, 50)

    def write(q, k, v, old_k, old_v):
        k, v = ops.concat([old_k, k], axis=1), ops.concat([old_v, v], axis=1)
        return ops.softmax(causal(q @ turned(k), 3, late)) @ v

    for new in (Dim("new", 1, 9), Dim(1)):
        types = [TensorType(F32, (2, size, 16)) for size in (new, new, new, past, past)]
        graph = written(write, *types)
        assert found(graph) == ["concat", "concat", "attention"]
        kept = attrs(graph, "attention")
        assert (kept["causal"], kept["window"]) == (True, 3)
        check(graph, *({"past": size, "new": 2} if new != 1 else {"past": size} for size in (0, 7)))


BOOL, TERM = TensorType(DType.bool, ("b", 1, 1, "t")), TensorType(F32, ("b", 1, "s", "t"))


@pytest.mark.parametrize(
    ("hide", "types"),
    [
        (lambda s, seen: ops.where(seen, s, -math.inf), [BOOL]),
        (lambda s, seen: ops.where(seen, -math.inf, s), [BOOL]),
        (lambda s, seen: ops.where(seen, s, -1e9), [BOOL]),
        (lambda s, seen: ops.where(ops.logical_or(seen, ops.logical_not(seen)), s, -1e9), [BOOL]),
        (lambda s, term: s + term, [TERM]),
        (lambda s, seen, term: ops.where(seen, term + s, -math.inf), [BOOL, TERM]),
        (lambda s, seen, term: ops.where(seen, s, -1e9) + term, [BOOL, TERM]),
    ],
)
def test_attention_by_its_mask(hide, types):
    def write(q, k, v, *masks):
        q, k, v = map(heads, (q, k, v))
        return ops.softmax(hide(q @ turned(k) * 0.25, *masks)) @ v

    graph = written(write, *QKV, *types)
    assert "attention" in found(graph)
    assert not {"matmul", "softmax"} & set(found(graph))
    check(graph, *SIZES)


def test_a_row_that_sees_nothing_is_the_mean_as_it_is_written():
    """-1e9 in the place of each score leaves them equal; -inf is the op's zeros."""

    def write(fill):
        return lambda q, k, v, seen: ops.softmax(ops.where(seen, q @ turned(k), fill)) @ v

    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 4, 8)).astype(np.float32)
    seen = np.zeros((4, 4), bool)
    for fill, wanted in ((-1e9, v.mean(axis=1, keepdims=True)), (-math.inf, 0 * v[:, :1])):
        types = [TensorType(F32, (1, 4, 8))] * 3 + [TensorType(DType.bool, (4, 4))]
        graph = written(write(fill), *types)
        assert "attention" in found(graph)
        model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
        (result,) = model.execute(q, k, v, seen)
        np.testing.assert_allclose(result.to_numpy(), wanted.repeat(4, axis=1), atol=1e-6)


def test_attention_of_one_head_and_of_grouped_ones():
    def plain(q, k, v):
        return ops.softmax(q @ turned(k)) @ v

    for shape in (("s", 16), (3, "s", 16), ("b", 3, "s", 16)):
        graph = written(plain, *[TensorType(F32, shape)] * 3)
        assert found(graph) == ["attention"]
        check(graph, {"b": 2, "s": 9})

    def repeated(q, k, v):
        k, v = (ops.repeat_interleave(heads(x, 2), 3, axis=1) for x in (k, v))
        return plain(heads(q, 6), k, v)

    types = [TensorType(F32, ("b", "s", 16 * count)) for count in (6, 2, 2)]
    graph = written(repeated, *types)
    assert found(graph) == ["attention"]
    assert attrs(graph, "attention")["layout"] == "bshd"
    check(graph, {"b": 2, "s": 9})

    def grouped(q, k, v):
        k, v = (ops.unsqueeze(heads(x, 2), 2) for x in (k, v))
        q = ops.reshape(heads(q, 6), (q.shape[0], 2, 3, q.shape[1], 16))
        return ops.softmax(causal(q @ turned(k))) @ v

    graph = written(grouped, *types)
    assert found(graph) == ["attention"]
    check(graph, {"b": 2, "s": 9})


def test_attention_in_more_bits_between():
    """Scores of 16 bits are cast for their softmax, and its shares back."""

    def write(q, k, v):
        scores = ops.cast(q @ turned(k), F32) * 0.25
        return ops.cast(ops.softmax(causal(scores)), BF16) @ v

    graph = written(write, *[TensorType(BF16, (3, "s", 16))] * 3)
    assert found(graph) == ["attention"]

    def wide(turn):
        return lambda q, k, v: (
            ops.cast(ops.softmax(causal(ops.cast(q, F32) @ turn(k) * 0.25)), q.dtype) @ v
        )

    for turn in (lambda k: ops.cast(turned(k), F32), lambda k: turned(ops.cast(k, F32))):
        graph = written(wide(turn), *[TensorType(DType.float16, (3, "s", 16))] * 3)
        assert found(graph) == ["attention"]
        check(graph, {"s": 9}, tolerance=2e-3)


@pytest.mark.parametrize(
    "write",
    [
        lambda q, k, v: ops.softmax(q @ turned(k), axis=-2) @ v,
        lambda q, k, v: ops.softmax(ops.exp(q @ turned(k))) @ v,
        lambda q, k, v: ops.softmax(causal(q @ turned(k)) * 2.0) @ v,
        lambda q, k, v: ops.softmax(q @ turned(k)) @ v[..., :8],
        lambda q, k, v: ops.matmul(ops.softmax(q @ turned(k)), v, precision="tf32"),
    ],
)
def test_other_products_of_a_softmax_stay(write):
    graph = written(write, *[TensorType(F32, (3, "s", 16))] * 3)
    assert "attention" not in found(graph)
    check(graph, {"s": 9})


def test_scores_that_a_factor_makes_wider():
    def write(q, k, v):
        scores = q @ turned(k) * ops.constant(np.full((3, 5, 5), 0.25, np.float32), F32)
        return ops.softmax(scores) @ v

    types = [TensorType(F32, (1, 5, 16))] * 3
    assert "attention" not in found(written(write, *types))
    check(written(write, *types), {})


def test_heads_that_no_kernel_takes_stay():
    def write(q, k, v):
        return ops.softmax(q @ turned(k)) @ v

    for kind, size in (("cpu", 264), ("cuda", 264)):
        assert "attention" not in found(written(write, *[TensorType(F32, (2, 5, size))] * 3), kind)
    assert "attention" not in found(written(write, *[TensorType(F32, (2, 5, "d"))] * 3))
