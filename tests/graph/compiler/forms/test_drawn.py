"""Masks of positions that are cut from a constant, and positions of which a number is known."""

import math

import numpy as np
import pytest
from written import attrs, check, found, heads, kernels, turned, written

from heddle.graph import Dim, DType, TensorType, ops

F32, BOOL, U8 = DType.float32, DType.bool, DType.uint8
NEW, PAST = Dim("new", 0, 9), Dim("past", 0, 50)
KEYS = NEW + PAST
TYPES = [TensorType(F32, (2, size, 64)) for size in (NEW, NEW, NEW, PAST, PAST)]
SIZES = [{"new": new, "past": past} for new, past in ((3, 0), (1, 7), (9, 30), (0, 5))]
TRIANGLE = np.tri(64, dtype=bool)
BAND = TRIANGLE & ~np.tri(64, k=-7, dtype=bool)


def decoder(hide):
    """Of old and new keys, scores of new queries that `hide` has masked."""

    def write(q, k, v, old_k, old_v):
        k, v = ops.concat([old_k, k], axis=1), ops.concat([old_v, v], axis=1)
        return ops.softmax(hide(heads(q) @ turned(heads(k)) * 0.25)) @ heads(v)

    return write


def buffer(array, dtype):
    return ops.constant(array.astype(dtype.to_numpy()), dtype)


def shown(array, dtype=BOOL):
    """What GPT-2 reads of a buffer `[1, 1, most, most]`."""
    whole = buffer(array.reshape(1, 1, 64, 64), dtype)
    return whole[:, :, KEYS - NEW : KEYS, :KEYS]


MASKS = [
    lambda s: ops.where(shown(TRIANGLE), s, -math.inf),
    lambda s: ops.where(shown(TRIANGLE), s, -1e9),
    lambda s: ops.where(ops.logical_not(shown(~TRIANGLE)), s, -math.inf),
    lambda s: ops.where(ops.cast(shown(TRIANGLE, U8), BOOL), s, -1e9),
    lambda s: ops.where(ops.equal(shown(TRIANGLE, F32), 0.0), -math.inf, s),
    lambda s: ops.where(buffer(TRIANGLE, BOOL)[PAST:KEYS, :KEYS], s, -math.inf),
    lambda s: ops.where(buffer(TRIANGLE, BOOL)[:KEYS, :KEYS][PAST:], s, -math.inf),
    lambda s: s + (1.0 - shown(TRIANGLE, F32)) * -1e9,
    lambda s: s + buffer(np.where(TRIANGLE, 0, -np.inf), F32)[PAST:KEYS, :KEYS],
    lambda s: ops.where(ops.unsqueeze(shown(TRIANGLE)[0, 0], 0), s, -math.inf),
]


@pytest.mark.parametrize("hide", MASKS)
def test_a_causal_mask_out_of_a_buffer(hide):
    graph = written(decoder(hide), *TYPES)
    assert found(graph) == ["concat", "concat", "attention"]

    def named(q, k, v, old_k, old_v):
        k, v = ops.concat([old_k, k], axis=1), ops.concat([old_v, v], axis=1)
        return ops.attention(*map(heads, (q, k, v)), causal=True)

    for kind in ("cpu", "cuda"):
        assert kernels(graph, kind) == kernels(written(named, *TYPES), kind)
    check(graph, *SIZES)


@pytest.mark.parametrize(
    "hide",
    [
        lambda s: ops.where(shown(BAND), s, -math.inf),
        lambda s: s + (1.0 - shown(BAND, F32)) * -1e9,
    ],
)
def test_a_window_out_of_a_buffer(hide):
    graph = written(decoder(hide), *TYPES)
    kept = attrs(graph, "attention")
    assert (kept["causal"], kept["window"]) == (True, 7)
    check(graph, *SIZES)


HOLE = TRIANGLE.copy()
HOLE[40, 3] = False


@pytest.mark.parametrize(
    "hide",
    [
        lambda s: ops.where(buffer(HOLE, BOOL)[PAST:KEYS, :KEYS], s, -math.inf),
        lambda s: ops.where(buffer(TRIANGLE, BOOL)[:NEW, :KEYS], s, -math.inf),
        lambda s: ops.where(buffer(TRIANGLE, BOOL)[PAST:KEYS, 1 : KEYS + 1], s, -1e9),
        lambda s: ops.where(buffer(TRIANGLE, BOOL)[1 + PAST : 1 + KEYS, :KEYS], s, -math.inf),
        lambda s: ops.where(buffer(TRIANGLE.T, BOOL)[PAST:KEYS, :KEYS], s, -1e9),
        lambda s: ops.where(buffer(TRIANGLE[::-1], BOOL)[PAST:KEYS, :KEYS], s, -1e9),
        lambda s: ops.where(buffer(np.tri(64, k=1), BOOL)[PAST:KEYS, :KEYS], s, -math.inf),
        lambda s: s + (1.0 - buffer(TRIANGLE, F32)[PAST:KEYS, :KEYS]) * -10.0,
        lambda s: s + buffer(TRIANGLE, F32)[PAST:KEYS, :KEYS],
        lambda s: ops.where(
            buffer(np.stack([TRIANGLE] * 4), BOOL)[:, PAST:KEYS, :KEYS], s, -math.inf
        ),
    ],
)
def test_other_parts_of_a_buffer_are_a_mask(hide):
    graph = written(decoder(hide), *TYPES)
    assert not attrs(graph, "attention")["causal"]
    check(graph, *SIZES[1:])


def test_every_second_of_a_buffer_is_a_mask():
    def hide(s):
        return ops.where(buffer(TRIANGLE, BOOL)[: 2 * NEW : 2][:NEW, :KEYS], s, -1e9)

    graph = written(decoder(hide), *TYPES)
    assert not attrs(graph, "attention")["causal"]
    check(graph, *SIZES[1:])


@pytest.mark.parametrize("late", [-math.inf, -1e9])
@pytest.mark.parametrize(
    ("queries", "keys", "sizes"),
    [
        (1, Dim("t", 1, 99), (1, 9)),
        (4, Dim("t", 4, 99), (4, 9)),
        (Dim("s", 0, 32), 32, (0, 1, 32)),
    ],
)
def test_positions_of_which_a_number_is_known(queries, keys, sizes, late):
    """Those are a constant by then."""

    def write(q, k, v):
        row = ops.unsqueeze(ops.range(k.shape[1] - q.shape[1], k.shape[1]), 1)
        return ops.softmax(ops.where(ops.range(0, k.shape[1]) <= row, q @ turned(k), late)) @ v

    types = [TensorType(F32, (2, size, 16)) for size in (queries, keys, keys)]
    graph = written(write, *types)
    assert found(graph) == ["attention"]
    assert attrs(graph, "attention")["causal"]
    check(graph, *({("t" if queries in (1, 4) else "s"): size} for size in sizes))


def test_fewer_keys_than_queries_may_be():
    """Then a query sees none, and is the mean of all values where a number hides them."""

    def write(q, k, v):
        row = ops.unsqueeze(ops.range(0, 4), 1)
        return ops.softmax(ops.where(ops.range(0, k.shape[1]) - 1 < row, q @ turned(k), -1e9)) @ v

    types = [TensorType(F32, (2, 4, 16)), *[TensorType(F32, (2, Dim("t", 1, 9), 16))] * 2]
    graph = written(write, *types)
    assert not attrs(graph, "attention")["causal"]
    check(graph, {"t": 2}, {"t": 9})
