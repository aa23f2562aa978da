"""Functions made of ops: what they give beside NumPy, for sizes that are known late too."""

import re

import ml_dtypes
import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

F32 = DType.float32
N = Dim("n", 0, 40)


def compiled(build, types, arrays):
    """What the function's graph gives for the arrays, in one artifact for each list of them."""
    with Graph("joining", types) as graph:
        graph.output(*build(*graph.inputs))
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"))
    return [[result.to_numpy() for result in model.execute(*given)] for given in arrays]


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(build, reference, *shapes, types=((N, 6),)):
    """`build` and `reference` alike, for `shapes` of the inputs one after another."""
    arrays = [[numbers(*shape) for shape in sizes] for sizes in shapes]
    made = [TensorType(F32, shape) for shape in types]
    for found, given in zip(compiled(build, made, arrays), arrays, strict=True):
        for result, wanted in zip(found, reference(*given), strict=True):
            assert result.shape == wanted.shape
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


SIZES = ([(0, 6)], [(1, 6)], [(37, 6)])


def test_stack_and_chunk():
    check(
        lambda x: (ops.stack([x, x * 2.0]), ops.stack([x, x, x], -1), *ops.chunk(x, 3, -1)),
        lambda x: (np.stack([x, x * 2]), np.stack([x, x, x], -1), *np.split(x, 3, -1)),
        *SIZES,
    )


def test_pad():
    check(
        lambda x: (ops.pad(x, (1, 2, 0, 3)), ops.pad(x, (0,) * 4), ops.pad(x, [0, 1, 0, 0], -1.5)),
        lambda x: (
            np.pad(x, ((1, 2), (0, 3))),
            x,
            np.pad(x, ((0, 1), (0, 0)), constant_values=-1.5),
        ),
        *SIZES,
    )


def test_tile_and_repeat_interleave():
    check(
        lambda x: (
            *(ops.tile(x, (2, 3)), ops.tile(x, (1, 1)) + 1.0, ops.tile(x, (1, 0))),
            *(ops.repeat_interleave(x, 3), ops.repeat_interleave(x, np.int64(2), axis=-1)),
        ),
        lambda x: (
            *(np.tile(x, (2, 3)), x + 1, x[:, :0]),
            *(np.repeat(x, 3, 0), np.repeat(x, 2, 1)),
        ),
        *SIZES,
    )


def test_band_part():
    check(
        lambda x: (
            *(ops.band_part(x, None, 0), ops.band_part(x, 0), ops.band_part(x)),
            *(ops.band_part(x, 1, 2), ops.band_part(x, 1, 2, exclude=True)),
            ops.band_part(x, exclude=True),
        ),
        lambda x: (
            *(np.tril(x), np.triu(x), x),
            *(np.triu(np.tril(x, 2), -1), x - np.triu(np.tril(x, 2), -1)),
            np.zeros_like(x),
        ),
        *([(2, n, 6)] for n in (0, 1, 9)),
        types=[(2, N, 6)],
    )


def log_of_shares(x, axis=-1):
    x = x.astype(np.float64)
    less = x - x.max(axis=axis, keepdims=True)
    return less - np.log(np.exp(less).sum(axis=axis, keepdims=True))


def test_logsoftmax():
    check(
        lambda x: (ops.logsoftmax(x * 40.0), ops.logsoftmax(x, 0)),
        lambda x: (log_of_shares(np.float32(40) * x), log_of_shares(x, 0)),
        *SIZES[1:],
    )
    rows = np.float32([[-np.inf] * 3, [0, -np.inf, 0], [np.nan, 0, 1], [-1000, 0, 1000]])
    with np.errstate(all="ignore"):
        wanted = log_of_shares(rows)
    wanted[0] = -np.inf
    types = [TensorType(F32, (4, 3))]
    ((found,),) = compiled(lambda x: (ops.logsoftmax(x),), types, [[rows]])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def grouped(x, gamma, beta, groups):
    rows = x.astype(np.float64).reshape(len(x), groups, -1)
    centered = rows - rows.mean(-1, keepdims=True)
    normal = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]


def test_group_norm():
    types = [(N, 6, "h", 5), (6,), (6,)]
    sizes = [[(n, 6, h, 5), (6,), (6,)] for n, h in ((1, 1), (3, 7), (2, 30))]
    check(
        lambda *given: (ops.group_norm(*given, 3), ops.group_norm(*given, 1)),
        lambda *given: (grouped(*given, 3), grouped(*given, 1)),
        *sizes,
        types=types,
    )


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_sums_of_16_bits_are_float32(dtype):
    """Beside what rounding the result leaves to see, nothing is lost."""
    x, one = (8 + numbers(2, 6, 9, 5)).astype(dtype), np.ones(6, dtype)
    types = [TensorType(DType[np.dtype(dtype).name], array.shape) for array in (x, one, one)]
    ((norm, logs),) = compiled(
        lambda x, *more: (ops.group_norm(x, *more, 3), ops.logsoftmax(x)), types, [[x, one, one]]
    )
    step = float(ml_dtypes.finfo(dtype).eps)
    wanted = grouped(x, np.ones(6), np.zeros(6) + 1, 3)
    np.testing.assert_allclose(norm.astype(np.float64), wanted, rtol=step, atol=step)
    logs, wanted = logs.astype(np.float64), log_of_shares(x.astype(np.float64))
    np.testing.assert_allclose(logs, wanted, rtol=step)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: ops.stack([]), "stack: wanted a list of tensor values, got []"),
        (lambda x: ops.stack([x, 1]), "stack: wanted a tensor value, got int"),
        (lambda x: ops.stack([x, x[:1]]), "stack: wanted one shape, got [4, 6] and [1, 6]"),
        (lambda x: ops.stack([x], 3), "stack: wanted an axis from -3 to 2, got 3"),
        (lambda x: ops.chunk(x, 4, 1), "chunk: wanted a number of pieces that divides 6, got 4"),
        (lambda x: ops.chunk(x, 0), "chunk: wanted a number of pieces that divides 4, got 0"),
        (lambda x: ops.pad(x, ((1, 1), (0, 2))),
         "pad: wanted 4 sizes of 0 or more, before and behind each dim, got ((1, 1), (0, 2))"),
        (lambda x: ops.pad(x, (0, 0, 0, -1)),
         "pad: wanted 4 sizes of 0 or more, before and behind each dim, got (0, 0, 0, -1)"),
        (lambda x: ops.tile(x, 2), "tile: wanted 2 counts of 0 or more, got 2"),
        (lambda x: ops.repeat_interleave(x, -1),
         "repeat_interleave: wanted a count of 0 or more, got -1"),
        (lambda x: ops.band_part(x[0], 1), "band_part: wanted a rank of 2 or more, got [6]"),
        (lambda x: ops.band_part(x, -1), "band_part: num_lower: wanted None or 0 or more, got -1"),
        (lambda x: ops.group_norm(x, x, x, 2),
         "group_norm: wanted [batch, channels, ...], got [4, 6]"),
        (lambda x: ops.group_norm(ops.unsqueeze(x, 2), x, x, 4),
         "group_norm: wanted a number of groups that divides 6, got 4"),
        (lambda x: ops.group_norm(ops.unsqueeze(x, 2), x[0], x, 3),
         "group_norm: beta: wanted shape [6], got [4, 6]"),
        (lambda x: ops.logsoftmax([1.0]), "logsoftmax: wanted a tensor value, got list"),
    ],
)  # fmt: skip
def test_mistakes(function, text):
    with Graph("g", [TensorType(F32, (4, 6))]) as graph:
        with pytest.raises(GraphError, match=re.escape(text) + "$"):
            function(graph.inputs[0])
        graph.output()
