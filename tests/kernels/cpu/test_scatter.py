"""scatter: rows of every length, equal indices, and what is out of range."""

import numpy as np
import pytest
from native import ARCHS, check, run
from scattered import operands, scattering

from heddle.kernels.cpu.scatter import LEAST
from heddle.kernels.emit import ITEM_SIZE
from heddle.kernels.registry import find


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("reduce", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64"])
def test_reductions(dtype, reduce, arch):
    spec = scattering(dtype, ("d0",), 5, "d1", ("d2",), reduce)
    for runs, count, inner in (
        (1, 9, 1),
        (3, 7, 67),
        (2, 40, LEAST),
        (1, 9, 67 * LEAST),
        (4, 0, 3),
        (2, 1, 0),
    ):
        dims = {"d0": runs, "d1": count, "d2": inner}
        check(spec, dims, operands(spec, dims), arch=arch)


@pytest.mark.parametrize("dtype", ITEM_SIZE)
@pytest.mark.parametrize("inner", [(), (3,), (16,), (300,)])
def test_rows_of_a_known_length(dtype, inner):
    """The last of equal indices stays; NaN and what only bits tell apart is moved as it is."""
    for outer in ((), (6,)):
        spec = scattering(dtype, outer, "d0", 40, inner, kind="int32")
        check(spec, {"d0": 11}, operands(spec, {"d0": 11}))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_larger_and_smaller_of_16_bits(dtype, reduce):
    spec = scattering(dtype, (2,), 4, 20, (9,), reduce, "uint8")
    check(spec, {}, operands(spec, values=[-1.5, 0.25, np.nan, 7]))


def test_bits_are_moved_and_nothing_else_is_written():
    spec = scattering("float32", (), 3, 1, (5,))
    x, updates = np.zeros((3, 5), np.float32), np.full((1, 5), 0xFFA00002, np.uint32)
    (found,), _ = run(spec, [x, np.array([1]), updates.view(np.float32)])  # a NaN of its own
    assert found.view(np.uint32)[:, 0].tolist() == [0xA5A5A5A5, 0xFFA00002, 0xA5A5A5A5]


@pytest.mark.parametrize(("kind", "bad"), [("int64", -1), ("uint64", 2**64 - 1), ("int8", 4)])
def test_an_index_outside_is_reported_and_its_row_dropped(kind, bad):
    spec = scattering("float32", (2,), 4, 3, (5,), kind=kind)
    arrays = operands(spec)
    arrays[1][1, 2] = bad
    (found,), status = run(spec, arrays, prepared=True)
    assert status.tolist() == [3 if kind == "uint64" else 1, -1 if bad > 4 else bad, 4, 0]
    kept = [arrays[0], arrays[1][:, :2], arrays[2][:, :2]]
    (wanted,), _ = run(scattering("float32", (2,), 4, 2, (5,), kind=kind), kept, prepared=True)
    np.testing.assert_array_equal(found[1], wanted[1])


def test_refusals():
    for dtype, reduce, kind, reason in (
        ("float32", "none", "float32", "scatter by float32"),
        ("bool", "max", "int64", "max of bool"),
        ("bfloat16", "add", "int64", "add of bfloat16, which is rounded once"),
    ):
        spec = scattering(dtype, (), 4, 3, (5,), reduce, kind)
        assert find("scatter", "cpu").supports(spec) == reason
