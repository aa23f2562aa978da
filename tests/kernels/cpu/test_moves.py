"""transpose, concat, slice and gather."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import ARCHS, check, random, run
from reference import shape as shape_of

from heddle.kernels.registry import find
from heddle.kernels.spec import Operand, Spec, fold

SIZES = ("bool", "bfloat16", "int32", "float64")
DIMS = {"d0": 37}


def transposition(dtype, shape, permutation):
    result = Operand(dtype, tuple(shape[axis] for axis in permutation))
    attrs = (("permutation", permutation),)
    return Spec("transpose", (Operand(dtype, shape),), result, (result,), attrs)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(
    ("shape", "permutation"),
    [(("d0", 70), (1, 0)), ((2, "d0", 3, 32), (0, 2, 1, 3)), ((2, "d0", 3, 33), (0, 2, 3, 1))],
)
def test_transpose(shape, permutation, dtype, arch):
    check(transposition(dtype, shape, permutation), DIMS, arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(
    ("shape", "permutation"),
    [
        ((3, "d0"), (1, 0)),
        (("d0", 4), (1, 0)),
        ((2, "d0", 7), (0, 2, 1)),
        ((5, 2, "d0"), (0, 2, 1)),
        ((2, 3, 2, "d0"), (1, 0, 3, 2)),
    ],
)
def test_few_long_lines(shape, permutation, dtype, arch):
    """Fewer elements than a vector, vectors alone, a part of one, and more than one task."""
    for length in (3, 64, 101, 1024 + 70):
        check(transposition(dtype, shape, permutation), {"d0": length}, arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(
    ("shape", "permutation"),
    [
        ((512, 64), (1, 0)),
        ((2, 1024, 70), (0, 2, 1)),
        ((70, 2, 4, 256), (2, 3, 1, 0)),
        (("d0", 50), (1, 0)),
    ],
)
def test_lines_that_share_sets_of_the_cache(shape, permutation, dtype, arch):
    """Whole pieces of them, parts of one at either end, and lengths that are known at the call."""
    for length in (4096, 2048 + 512, 512 - 3):
        check(transposition(dtype, shape, permutation), {"d0": length}, arch=arch)


def test_tasks_are_parts_of_long_lines():
    """Those of the channels of a picture: no squares."""
    kernel = find("transpose", "cpu")
    for shape, order in (((1, 3, 224, 224), (0, 2, 3, 1)), ((1, 224, 224, 3), (0, 3, 1, 2))):
        assert kernel.launch(transposition("float32", shape, order)).grid == (49, 1, 1)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_permutation(data):
    extent = st.sampled_from([1, 1, 2, 5, 17, "d0"])
    shape = tuple(data.draw(st.lists(extent, max_size=4)))
    permutation = tuple(data.draw(st.permutations(range(len(shape)))))
    spec = transposition("float32", shape, permutation)
    check(spec, {name: data.draw(st.integers(0, 20)) for name in spec.dims})


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(2, "d0", 3), (2, 4, 3)], 1),
        ([(5, 7), (5, 1), (5, "d0")], 1),
        ([("d0", 3), (5000, 3)], 0),
    ],
)
def test_concat(shapes, axis, dtype, arch):
    total = 0
    for shape in shapes:
        total = fold("add", total, shape[axis])
    result = Operand(dtype, (*shapes[0][:axis], total, *shapes[0][axis + 1 :]))
    operands = tuple(Operand(dtype, shape) for shape in shapes)
    check(Spec("concat", operands, result, (result,), (("axis", axis),)), DIMS, arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(
    ("shape", "starts", "steps", "result"),
    [
        ((10, "d0"), (2, 0), (3, 1), (3, "d0")),
        ((10, 50), (9, 49), (-1, -1), (10, 50)),
        ((3, 4, 45), (1, 0, 2), (1, 2, 3), (2, 2, 14)),
        ((9000,), (1,), (2,), (4500,)),
        (("d0", 50), (("sub", "d0", 3), 7), (1, 1), (3, 40)),
        ((40, "d0"), (2, ("sub", "d0", 1)), (1, -1), (3, "d0")),
        ((5000,), ("d0",), (1,), (4500,)),
    ],
)
def test_slice(shape, starts, steps, result, dtype, arch):
    made = Operand(dtype, result)
    operand, attrs = Operand(dtype, shape), (("steps", steps),)
    check(Spec("slice", (operand,), made, (made,), attrs, starts=starts), DIMS, arch=arch)


GATHERS = [
    ((50, 33), ("d0",), 0),
    ((50,), ("d0", 3), 0),
    ((2, 50, 7), (5,), 1),
    ((2, 50), (40,), 1),
]


def gathering(dtype, table, indices, axis, kind="int64"):
    result = Operand(dtype, (*table[:axis], *indices, *table[axis + 1 :]))
    operands = (Operand(dtype, table), Operand(kind, indices))
    return Spec("gather", operands, result, (result,), (("axis", axis),))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize(("table", "indices", "axis"), GATHERS)
def test_gather(table, indices, axis, dtype, arch):
    spec = gathering(dtype, table, indices, axis)
    rng = np.random.default_rng(1)
    arrays = [random(rng, table, dtype), rng.integers(0, 50, shape_of(indices, DIMS))]
    check(spec, DIMS, arrays, arch=arch)
    assert run(spec, arrays, DIMS, arch)[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("int64", -1),
        ("int64", 50),
        ("int64", 2**40),
        ("int32", -(2**31)),
        ("int8", -4),
        ("uint8", 200),
        ("uint64", 77),
    ],
)
@pytest.mark.parametrize(("table", "indices", "axis"), GATHERS)
def test_an_index_outside_is_reported_and_clamped(table, indices, axis, kind, bad):
    spec = gathering("float32", table, indices, axis, kind)
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 50, shape_of(indices, DIMS)).astype(kind)
    numbers.reshape(-1)[3] = bad
    arrays = [random(rng, table, "float32"), numbers]
    check(spec, DIMS, arrays)
    code = 3 if kind == "uint64" else 1
    assert run(spec, arrays, DIMS)[1].tolist() == [code, bad, 50, 0]


@pytest.mark.parametrize("inner", [(), (3,)])
def test_an_empty_table_is_not_read(inner):
    spec = gathering("float32", ("d0", *inner), (5,), 0)
    arrays = [np.zeros((0, *inner), np.float32), np.zeros(5, np.int64)]
    assert run(spec, arrays, {"d0": 0})[1].tolist() == [1, 0, 0, 0]
