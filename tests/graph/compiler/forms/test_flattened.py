"""Attention whose batch and heads are one axis of its products, as BART, OPT and BLOOM have it."""

import numpy as np
import pytest
from written import attrs, check, found, heads, kernels, softmax, turned, written

from heddle.graph import Dim, DType, TensorType, ops

F32, BOOL = DType.float32, DType.bool
BATCH, QUERIES, KEYS = Dim("b", 0, 9), Dim("s", 0, 99), Dim("t", 0, 99)
QKV = [TensorType(F32, (BATCH, size, 64)) for size in (QUERIES, KEYS, KEYS)]
TERM = TensorType(F32, ("b", 1, "s", "t"))
SEEN = TensorType(BOOL, ("b", 1, "s", "t"))
SLOPES = TensorType(F32, (BATCH * 4, 1, "t"))
SIZES = [{"b": 2, "s": 3, "t": 19}, {"b": 1, "s": 1, "t": 1}, {"b": 0, "s": 2, "t": 3}]
SIZES += [{"b": 2, "s": 0, "t": 3}]
LOWEST = float(np.finfo(np.float32).min)


def flat(x):
    """`[batch, sequence, 64]` as `[batch * 4, sequence, 16]`."""
    return ops.reshape(heads(x), (x.shape[0] * 4, x.shape[1], 16))


def parted(scores):
    """`[batch * 4, ...]` as `[batch, 4, ...]`."""
    return ops.reshape(scores, (BATCH, 4, *scores.shape[1:]))


def joined(scores):
    """`[batch, 4, ...]` as `[batch * 4, ...]`."""
    return ops.reshape(scores, (BATCH * 4, *scores.shape[2:]))


def together(mixed):
    """`[batch * 4, sequence, 16]` as `[batch, sequence, 64]`."""
    mixed = ops.permute(parted(mixed), (0, 2, 1, 3))
    return ops.reshape(mixed, (*mixed.shape[:2], 64))


def named(q, k, v, *masks):
    """What all of them are."""
    q, k, v = (ops.reshape(x, (*x.shape[:2], 4, 16)) for x in (q, k, v))
    mixed = ops.attention(q, k, v, *masks, layout="bshd")
    return ops.reshape(mixed, (*mixed.shape[:2], 64))


def plain(q, k, v):
    return together(ops.softmax(flat(q) @ turned(flat(k)) * 0.25) @ flat(v))


def bart(q, k, v, term):
    scores = flat(q * 0.25) @ turned(flat(k))
    return together(softmax(joined(parted(scores) + term)) @ flat(v))


def opt(q, k, v, term):
    scores = parted(flat(q * 0.25) @ turned(flat(k))) + term
    shares = ops.softmax(joined(ops.maximum(scores, LOWEST)))
    return together(joined(parted(shares)) @ flat(v))


def bloom(q, k, v, slopes, seen):
    keys = ops.reshape(k, (*k.shape[:2], 4, 16))
    keys = ops.reshape(ops.permute(keys, (0, 2, 3, 1)), (BATCH * 4, 16, k.shape[1]))
    scores = parted(slopes + 0.25 * (flat(q) @ keys))
    shares = ops.softmax(ops.where(seen, scores, LOWEST))
    return together(joined(shares) @ flat(v))


def bloom_named(q, k, v, slopes, seen):
    return named(q, k, v, parted(slopes) + ops.where(seen, 0.0, LOWEST))


def seen_twice(q, k, v, seen):
    """In both shapes of scores, with heads joined where a mask has none."""
    scores = ops.where(seen, parted(flat(q) @ turned(flat(k)) * 0.25), -np.inf)
    scores = ops.where(ops.reshape(ops.range(0, KEYS) < 30, (1, 1, KEYS)), joined(scores), -np.inf)
    return together(ops.softmax(scores) @ flat(v))


FORMS = [
    (plain, named, ()),
    (bart, named, (TERM,)),
    (opt, named, (TERM,)),
    (bloom, bloom_named, (SLOPES, SEEN)),
]


@pytest.mark.parametrize(("write", "op", "masks"), FORMS)
def test_it_has_the_kernels_of_the_op(write, op, masks):
    graph = written(write, *QKV, *masks)
    assert found(graph)[-1] == "attention"
    for kind in ("cpu", "cuda"):
        assert kernels(graph, kind) == kernels(written(op, *QKV, *masks), kind)
    check(graph, *SIZES)


def test_masks_of_both_shapes():
    graph = written(seen_twice, *QKV, SEEN)
    assert "attention" in found(graph)
    assert attrs(graph, "attention")["layout"] == "bshd"
    check(graph, *SIZES)


@pytest.mark.parametrize(
    "write",
    [
        # A number that lifts what another one hides.
        lambda q, k, v, term: joined(ops.maximum(parted(q @ k) + term, -1e9)),
        # Batch and heads in one order, then in the other.
        lambda q, k, v, term: ops.reshape(
            ops.reshape(joined(parted(q @ k) + term), (4, BATCH, QUERIES, KEYS))
            + ops.reshape(term, (1, BATCH, QUERIES, KEYS)),
            (BATCH * 4, QUERIES, KEYS),
        ),
        # Heads and queries are one axis.
        lambda q, k, v, term: ops.reshape(
            ops.exp(ops.reshape(q @ k, (BATCH, 4 * QUERIES, KEYS))), (BATCH * 4, QUERIES, KEYS)
        ),
        lambda q, k, v, term: joined(ops.softmax(parted(q @ k) + term)),
    ],
)
def test_other_scores_stay(write):
    def whole(q, k, v, term):
        scores = write(flat(q), turned(flat(k)), v, term)
        return together(ops.softmax(scores) @ flat(v))

    graph = written(whole, *QKV, TERM)
    assert "attention" not in found(graph)
    check(graph, *SIZES)
