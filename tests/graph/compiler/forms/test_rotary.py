"""Rotary position embedding."""

import numpy as np
import pytest
from written import attrs, check, found, written

from heddle.graph import DType, TensorType, ops

F32 = DType.float32
HEADS, TABLE = TensorType(F32, ("n", 4, 16)), TensorType(F32, ("n", 1, 8))


def halves(x):
    half = int(x.shape[-1]) // 2
    return x[..., :half], x[..., half:]


def pairs(x):
    return ops.reshape(x, (*x.shape[:-1], 8, 2))


def by_halves(x, cos, sin):
    a, b = halves(x)
    return ops.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


def by_turning(x, cos, sin):
    a, b = halves(x)
    wide_cos, wide_sin = (ops.concat([t, t], axis=-1) for t in (cos, sin))
    return x * wide_cos + ops.concat([-b, a], axis=-1) * wide_sin


def by_pairs(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    stacked = ops.stack([a * cos - b * sin, sin * a + cos * b], axis=-1)
    return ops.reshape(stacked, x.shape)


def by_an_axis_of_pairs(x, cos, sin):
    wide = pairs(x)
    a, b = wide[..., 0], wide[..., 1]
    return ops.reshape(ops.stack([a * cos - b * sin, b * cos + a * sin], axis=-1), x.shape)


def by_turning_pairs(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    turned = ops.reshape(ops.stack([-b, a], axis=-1), x.shape)
    wide_cos = ops.repeat_interleave(cos, 2, axis=-1)
    return x * wide_cos + turned * ops.reshape(ops.stack([sin, sin], axis=-1), (x.shape[0], 1, 16))


def by_turning_an_axis_of_pairs(x, cos, sin):
    """As GPT-J turns each two."""
    wide = pairs(x)
    turned = ops.stack([-wide[..., 1], wide[..., 0]], axis=-1)
    cos, sin = (ops.repeat_interleave(table, 2, axis=-1) for table in (cos, sin))
    return x * cos + ops.reshape(turned, x.shape) * sin


def by_turning_columns(x, cos, sin):
    """Tables get the axis of heads here."""
    wide = pairs(x)
    turned = ops.concat([-wide[..., 1:], wide[..., :1]], axis=-1)
    cos, sin = (ops.reshape(table, (x.shape[0], 8)) for table in (cos, sin))
    cos, sin = (ops.repeat_interleave(ops.unsqueeze(t, 1), 2, axis=-1) for t in (cos, sin))
    return ops.reshape(turned, x.shape) * sin + cos * x


FORMS = {
    by_halves: False,
    by_turning: False,
    by_pairs: True,
    by_an_axis_of_pairs: True,
    by_turning_pairs: True,
    by_turning_an_axis_of_pairs: True,
    by_turning_columns: True,
}


@pytest.mark.parametrize(("write", "interleaved"), FORMS.items())
def test_rope(write, interleaved):
    graph = written(write, HEADS, TABLE, TABLE)
    assert found(graph) == ["rope"]
    assert attrs(graph, "rope")["interleaved"] == interleaved
    check(graph, {"n": 1}, {"n": 5})


@pytest.mark.parametrize("write", FORMS)
def test_rope_of_a_part_of_each_head(write):
    """The first one, also of rows that are a part of others."""

    def part(x, cos, sin):
        x = ops.exp(x)[..., 2:]
        return ops.concat([write(x[..., :16], cos, sin), x[..., 16:]], axis=-1)

    graph = written(part, TensorType(F32, ("n", 4, 26)), TABLE, TABLE)
    assert found(graph) == ["exp", "rope"]
    assert attrs(graph, "rope")["interleaved"] == FORMS[write]
    check(graph, {"n": 5})


@pytest.mark.parametrize(
    "part",
    [
        lambda x, turned: ops.concat([turned, x[..., 18:]], axis=-1),
        lambda x, turned: ops.concat([turned, ops.exp(x[..., 16:])], axis=-1),
        lambda x, turned: ops.concat([turned, x[..., 16:25]], axis=-1),  # an odd size
        lambda x, turned: ops.concat([x[..., 16:], turned], axis=-1),
        lambda x, turned: ops.concat([turned, x[..., 16:20], x[..., 20:]], axis=-1),
        lambda x, turned: ops.concat([turned, x[..., 8:24]], axis=1),
        lambda x, turned: ops.concat([turned, x[..., 16:]], axis=-1) + ops.sum(turned, axis=-1),
    ],
)
def test_other_parts_stay_behind(part):
    """Beside what is turned, in a rotation of their own; read by others, or not the next ones."""

    def write(x, cos, sin):
        return part(x, ops.rope(x[..., :16], cos, sin))

    graph = written(write, TensorType(F32, ("n", 4, 26)), TABLE, TABLE)
    assert "concat" in found(graph)
    check(graph, {"n": 5})


@pytest.mark.parametrize("write", [by_halves, by_turning])
def test_tables_of_more_rows_stay(write):
    """What is turned by them has as many rows as they have."""
    graph = written(write, TensorType(F32, (1, 1, 16)), *[TensorType(F32, (3, 1, 8))] * 2)
    assert "rope" not in found(graph)
    check(graph, {})


def test_rope_by_tables_of_angles():
    """Cosines of angles that are written twice, as of the tables of transformers."""

    def angles(x, several):
        twice = ops.concat([several, several], axis=-1)
        cos, sin = (ops.unsqueeze(f(twice) * 2.0, 1) for f in (ops.cos, ops.sin))
        a, b = halves(x)
        return x * cos + ops.concat([-b, a], axis=-1) * sin

    graph = written(angles, HEADS, TensorType(F32, ("n", 8)))
    assert found(graph).count("rope") == 1
    assert "concat" not in found(graph)
    check(graph, {"n": 5})

    drawn = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    table = np.concatenate([drawn, drawn], axis=-1)

    def gathered(x, positions):
        places = ops.cast(ops.round(ops.abs(positions)), DType.int64)
        cos = ops.unsqueeze(ops.gather(ops.constant(table, F32), places, axis=0), 1)
        a, b = halves(x)
        return x * cos + ops.concat([-b, a], axis=-1) * cos

    graph = written(gathered, HEADS, TensorType(F32, ("n",)))
    assert "rope" in found(graph)
    check(graph, {"n": 5})

    def in_pairs(x, several):
        scale = ops.constant(np.repeat(drawn[0], 2), F32)
        wide = (ops.repeat_interleave(f(several), 2, axis=-1) for f in (ops.cos, ops.sin))
        cos, sin = (ops.unsqueeze(table * scale, 1) for table in wide)
        turned = ops.reshape(ops.stack([-x[..., 1::2], x[..., 0::2]], axis=-1), x.shape)
        return x * cos + turned * sin

    graph = written(in_pairs, HEADS, TensorType(F32, ("n", 8)))
    assert sorted(found(graph)) == ["cos", "mul", "mul", "rope", "sin"]
    check(graph, {"n": 5})


@pytest.mark.parametrize(
    "write",
    [
        lambda x, cos, sin: by_turning(x, cos, sin) + 0.0 * x[..., :1],  # found, for comparison
        lambda x, c, s: x * ops.concat([c, s], -1) + ops.concat([-halves(x)[1], halves(x)[0]], -1),
        lambda x, c, s: ops.concat(
            [halves(x)[0] * c + halves(x)[1] * s, halves(x)[1] * c + halves(x)[0] * s], -1
        ),
        lambda x, c, s: ops.concat(
            [halves(x)[1] * c - halves(x)[0] * s, halves(x)[0] * c + halves(x)[1] * s], -1
        ),
        lambda x, c, s: (  # halves turned, tables of pairs
            x * ops.repeat_interleave(c, 2, -1)
            + ops.concat([-halves(x)[1], halves(x)[0]], -1) * ops.repeat_interleave(s, 2, -1)
        ),
        lambda x, c, s: (  # pairs turned, tables of halves
            x * ops.concat([c, c], -1)
            + ops.reshape(ops.stack([-x[..., 1::2], x[..., 0::2]], -1), x.shape)
            * ops.concat([s, s], -1)
        ),
        lambda x, c, s: (  # pairs the other way round
            x * ops.repeat_interleave(c, 2, -1)
            + ops.reshape(ops.stack([x[..., 1::2], -x[..., 0::2]], -1), x.shape)
            * ops.repeat_interleave(s, 2, -1)
        ),
        lambda x, c, s: (  # columns of other pairs
            x * ops.repeat_interleave(c, 2, -1)
            + ops.reshape(ops.stack([-pairs(x[:, ::-1])[..., 1], pairs(x)[..., 0]], -1), x.shape)
            * ops.repeat_interleave(s, 2, -1)
        ),
        lambda x, c, s: (
            x * ops.concat([c, c], -1)
            + ops.concat([halves(x)[1], halves(x)[0]], -1) * ops.concat([s, s], -1)
        ),
    ],
)
def test_other_rotations_stay(write):
    graph = written(write, HEADS, TABLE, TABLE)
    assert ("rope" in found(graph)) == ("by_turning" in write.__code__.co_names)
    check(graph, {"n": 5})
