"""top_k, cumsum, iota and take_along."""

import numpy as np
import pytest
from native import ARCHS, check, random, run
from reference import numpy_dtype

from heddle.kernels.emit import ITEM_SIZE
from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step

NUMBERS = [dtype for dtype in ITEM_SIZE if dtype != "bool"]


def best(dtype, shape, k, smallest=False, epilogue=None):
    x, result = Operand(dtype, shape), Operand("int64", (*shape[:-1], k))
    outputs = (Operand("float32", result.shape),) if epilogue else (result,)
    return Spec("top_k", (x,), result, outputs, (("smallest", smallest),), None, epilogue)


def sums(dtype, shape, prologue=None, epilogue=None):
    x = Operand(dtype, shape)
    axis = (("axis", len(shape) - 1),)
    return Spec("cumsum", (x,), x, (x,), axis, prologue, epilogue)


def count(dtype, size, first=0):
    scalar, result = Operand(dtype, ()), Operand(dtype, (size,))
    return Spec("iota", (scalar, scalar), result, (result,), starts=(first,))


def picking(dtype, shape, k, kind="int64"):
    result = Operand(dtype, (*shape[:-1], k))
    operands = (Operand(dtype, shape), Operand(kind, result.shape))
    return Spec("take_along", operands, result, (result,))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_top_k(dtype, smallest, arch):
    """Few different values, so that there are ties, and rows of one to many chunks."""
    spec = best(dtype, ("d0", "d1"), 7, smallest)
    kind = numpy_dtype(dtype)
    for length in (7, 64, 301, 5000):
        rng = np.random.default_rng(length)
        values = rng.choice(random(rng, (length // 3 + 1,), dtype), (3, length)).astype(kind)
        if dtype == "float32":
            values[0, 5], values[0, 6], values[1, 2:5] = np.nan, -np.nan, (0.0, -0.0, np.inf)
        if kind.kind in "iu":
            values[2, :] = np.iinfo(kind).min
        check(spec, {"d0": 3, "d1": length}, [values], arch=arch)


@pytest.mark.parametrize(
    ("dtype", "arch"),
    [
        *((dtype, ARCHS[-1]) for dtype in ("int8", "uint64", "bfloat16")),
        *((dtype, ARCHS[0]) for dtype in ("float32", "uint32", "float64")),
    ],
)
def test_the_best_of_a_row(dtype, arch):
    """The first of equal ones, in rows of any number of pieces, blocks, vectors and lanes.

    Some are read in four places at once, others alone.
    """
    for smallest in (False, True):
        spec = best(dtype, ("d0", "d1"), 1, smallest)
        for length in (1, 5, 64, 301, 2048, 5000):
            rng = np.random.default_rng(length)
            few = random(rng, (length // 3 + 1,), dtype)
            values = rng.choice(few, (4, length)).astype(numpy_dtype(dtype))
            values[2] = min(values[2])
            values[3] = max(values[3])
            values[0, length // 2 :] = values[0, length // 2]
            values = np.concatenate([values, values[::-1], values[:1]])
            check(spec, {"d0": 9, "d1": length}, [values], arch=arch)
    x = np.full((5, 1300), -np.inf, np.float32)
    x[1, [777, 1250]] = np.nan
    (found,) = check(best("float32", (5, 1300), 1), {}, [x], arch=arch)
    assert found.tolist() == [[0], [777], [0], [0], [0]]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("dtype", "k"), [("float32", 90), ("float64", 90), ("float32", 2500)])
def test_many_of_a_row(dtype, k, arch):
    """Lists that are cut: rows that rise or fall, ties, NaN and infinities, pieces and batches."""
    for smallest in (False, True):
        spec = best(dtype, ("d0", "d1"), k, smallest)
        for length in (k, 20_000):
            rng = np.random.default_rng(length)
            values = rng.standard_normal((5, length))
            values[1].sort()
            values[2] = np.round(values[2])
            values[3] = rng.choice([np.nan, np.inf, -np.inf, 0, -0.0], length)
            values[4] = values[1, ::-1]
            check(spec, {"d0": 5, "d1": length}, [values.astype(dtype)], arch=arch)


@pytest.mark.parametrize("smallest", [False, True])
def test_one_nan_anywhere(smallest):
    """Of vectors that are looked at together, the best one of a lane may be the NaN of any."""
    x = np.random.default_rng(0).standard_normal((80, 3000)).astype(np.float32)
    places = 1000 + np.arange(80)
    x[np.arange(80), places] = np.nan
    (found,) = check(best("float32", (80, 3000), 5, smallest), {}, [x])
    np.testing.assert_array_equal(found[:, 0], places)


@pytest.mark.parametrize("k", [1, 40])
def test_all_of_a_row(k):
    x = np.random.default_rng(0).standard_normal((5, k)).astype(np.float32)
    check(best("float32", (5, k), k), {}, [x])


def test_rows_of_one_value():
    for value in (-np.inf, np.inf, np.nan, 0):
        (found,), _ = run(best("float32", (2, 2000), 300), [np.full((2, 2000), value, np.float32)])
        np.testing.assert_array_equal(found, np.tile(np.arange(300), (2, 1)))


def test_an_index_as_a_number():
    """An epilogue, as a cast after argmax."""
    epilogue = Body((), (Step("cast", (0,), "float32"),), (1,))
    check(best("float16", (4, 100), 1, epilogue=epilogue))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_cumsum(dtype, arch):
    for length in (1, 31, 32, 200):
        check(sums(dtype, ("d0", "d1")), {"d0": 3, "d1": length}, arch=arch, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_cumsum_keeps_the_sign_of_zero(dtype, arch):
    """As NumPy does: -0.0 until the first other number."""
    x = np.full((2, 77), -0.0, dtype)
    x[1, 40] = 0.0
    (found,), _ = run(sums(dtype, x.shape), [x], arch=arch)
    assert found.tobytes() == np.cumsum(x, axis=1).tobytes()


def test_cumsum_between_bodies():
    x = Operand("float32", (6, 50))
    body = Body((x,), (Step("mul", (0, 0), "float32"),), (1,))
    check(sums("float32", x.shape, body, body), {}, rtol=1e-5)


def test_nothing_to_add_up():
    assert run(sums("int32", (3, "d0")), [np.zeros((3, 0), np.int32)], {"d0": 0})[0][0].size == 0


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_iota(dtype, arch):
    kind = numpy_dtype(dtype)
    arrays = [np.array(3).astype(kind), np.array(2).astype(kind)]
    for length in (1, 40, 9001) if ITEM_SIZE[dtype] > 2 else (1, 40):
        check(count(dtype, "d0", ("sub", "d0", 1)), {"d0": length}, arrays, arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_take_along(dtype, kind, arch):
    spec, dims = picking(dtype, ("d0", 50), "d1", kind), {"d0": 3, "d1": 2000}
    rng = np.random.default_rng(0)
    arrays = [random(rng, (3, 50), dtype), rng.integers(0, 50, (3, 2000)).astype(kind)]
    check(spec, dims, arrays, arch=arch)
    assert run(spec, arrays, dims, arch)[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("bad", [-1, 50, 2**40])
def test_an_index_outside_is_reported_and_clamped(bad):
    spec, rng = picking("float32", (3, 50), 21), np.random.default_rng(1)
    arrays = [random(rng, (3, 50), "float32"), rng.integers(0, 50, (3, 21))]
    arrays[1][1, 4] = bad
    check(spec, {}, arrays)
    assert run(spec, arrays)[1].tolist() == [1, bad, 50, 0]


def test_an_empty_row_is_not_read():
    spec = picking("float32", (3, "d0"), 5)
    arrays = [np.zeros((3, 0), np.float32), np.zeros((3, 5), np.int64)]
    assert run(spec, arrays, {"d0": 0})[1].tolist() == [1, 0, 0, 0]


def test_refusals():
    for spec, reason in (
        (best("bool", (3, 4), 1), "no order of bool"),
        (sums("bool", (3, 4)), "no sum of bool"),
        (count("bool", 4), "no steps of bool"),
    ):
        assert find(spec.op, "cpu").supports(spec) == reason
    body = Body((), (Step("neg", (0,), "int32"),), (1,))
    spec = picking("int32", (3, 4), 2)
    spec = Spec(spec.op, spec.operands, spec.result, spec.outputs, (), None, body)
    assert find("take_along", "cpu").supports(spec) == "it takes no prologue and no epilogue"
