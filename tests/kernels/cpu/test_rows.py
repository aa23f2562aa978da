"""softmax, layer_norm, rms_norm and reduce."""

import numpy as np
import pytest
from native import ARCHS, DOTS, check, run
from reference import numpy_dtype

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint16", "int32", "uint32", "int64", "uint64")


def normalization(op, dtype, shape, prologue=None, epilogue=None):
    x, parameter = Operand(dtype, shape), Operand(dtype, shape[-1:])
    count = {"softmax": 0, "rms_norm": 1, "layer_norm": 2}[op]
    attrs = (("epsilon", 1e-5),) if count else ()
    return Spec(op, (x, *[parameter] * count), x, (x,), attrs, prologue, epilogue)


def reduction(kind, dtype, shape, axis, prologue=None, epilogue=None):
    x = Operand(dtype, shape)
    result = Operand(dtype, (*shape[:axis], 1, *shape[axis + 1 :]))
    attrs = (("axis", axis), ("kind", kind))
    return Spec("reduce", (x,), result, (result,), attrs, prologue, epilogue)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
def test_normalization(op, dtype, arch):
    spec = normalization(op, dtype, ("d0", "d1"))
    for length in (1, 7, 31, 33, 100, 384):
        # One element has no spread: its normal form is as good as the cancellation in x - mean.
        check(spec, {"d0": 3, "d1": length}, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [1, 16, 33, 384, 5000])
@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
def test_static_length(op, length, dtype):
    """Parameters of float16 are widened first, up to 4096 of them."""
    check(normalization(op, dtype, (5, length)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
def test_prologue_and_epilogue(op, arch):
    shape = (2, "d0", 50)
    inputs = (Operand("float16", shape), Operand("float32", (2, 1, 50)))
    steps = (Step("cast", (0,), "float32"), Step("add", (2, 1), "float32"))
    prologue = Body(inputs, steps, (3,))
    epilogue = Body((Operand("float32", ("d0", 1)),), (Step("mul", (0, 1), "float32"),), (2,))
    spec = normalization(op, "float32", shape, prologue, epilogue)
    check(spec, {"d0": 7}, arch=arch, rtol=1e-5, atol=1e-5)


def test_mean_far_from_zero_keeps_the_variance():
    x = (1e4 + np.random.default_rng(0).standard_normal((4, 384))).astype(np.float32)
    ones, zeros = np.ones(384, np.float32), np.zeros(384, np.float32)
    check(normalization("layer_norm", "float32", (4, 384)), {}, [x, ones, zeros], atol=3e-3)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("place", [0, 5, 300, 4095])
def test_one_outlier_keeps_the_variance(place, arch):
    """Also where it lies among the numbers that the distances are taken from."""
    x = np.random.default_rng(0).standard_normal((3, 4096)).astype(np.float32)
    x[:, place] = 1e5
    ones, zeros = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    spec = normalization("layer_norm", "float32", (3, 4096))
    check(spec, {}, [x, ones, zeros], arch=arch, rtol=5e-5, atol=1e-6)


@pytest.mark.parametrize("length", [127, 128, 600])
@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
def test_a_row_does_not_depend_on_its_neighbours(op, length):
    """Each row alone, where all passes take turns without neighbours, and among others."""
    spec, rng = normalization(op, "float32", ("d0", length)), np.random.default_rng(0)
    x, *parameters = [
        rng.standard_normal((4, length) if n == 0 else length).astype(np.float32)
        for n in range(len(spec.operands))
    ]
    (together,), _ = run(spec, [x, *parameters], {"d0": 4})
    for row in range(4):
        (alone,), _ = run(spec, [x[row : row + 1], *parameters], {"d0": 1})
        assert alone.tobytes() == together[row].tobytes()


@pytest.mark.parametrize("length", [5, 100, 600])
@pytest.mark.parametrize(("kind", "dtype"), [("sum", "float32"), ("max", "bfloat16")])
def test_rows_that_are_reduced_in_four_places(kind, dtype, length):
    """As well alone, where a part of the tasks has fewer rows: the bits are the same."""
    for count in (0, 3, 9, 16):
        check(reduction(kind, dtype, ("d0", length), 1), {"d0": count}, arch=ARCHS[0])


@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
def test_no_rows(op):
    check(normalization(op, "float32", ("d0", 100)), {"d0": 0})


def test_softmax_of_minus_infinity_is_zero():
    x = np.full((2, 20), -np.inf, np.float32)
    x[1, 3] = 0
    check(normalization("softmax", "float32", (2, 20)), {}, [x])


@pytest.mark.parametrize("op", ["softmax"])
def test_softmax_of_large_numbers(op):
    x = np.float32([[1e4, 1e4 + 1, -1e30, 3e38]])
    check(normalization(op, "float32", (1, 4)), {}, [x])


SHAPES = {2: (3, "d0", 100), 1: (3, "d0", 100), 0: ("d0", 5, 33)}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("axis", SHAPES)
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min"])
def test_reduce_float32(kind, axis, arch):
    spec = reduction(kind, "float32", SHAPES[axis], axis)
    for count in (1, 7, 65):
        check(spec, {"d0": count}, arch=arch, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", *INTEGERS])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reduce_dtypes(kind, dtype):
    check(reduction(kind, dtype, ("d0", 33), 1), {"d0": 5}, rtol=1e-5, atol=1e-4)
    check(reduction(kind, dtype, ("d0", 33), 0), {"d0": 5}, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("columns", [1, 17, 33, 130])
def test_softmax_of_16_bits(columns, dtype, arch):
    """The last vector, which is not whole, is kept like the others: two registers of bfloat16."""
    operand = Operand(dtype, (3, columns))
    check(Spec("softmax", (operand,), operand, (operand,)), {}, arch=arch)


BITS = {"float16": [65504.0, 65472.0], "bfloat16": [3.3e38, 1e6, 9e4]}


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("dtype", BITS)
def test_softmax_of_the_greatest_of_16_bits(dtype, arch):
    """Beside the next smaller number, of either sign, and beside zeros and infinities."""
    kind = numpy_dtype(dtype)
    rows = []
    for number in np.array([*BITS[dtype], 3.0, 1e-30, 0.0], kind):
        smaller = (number.view(np.uint16) - 1).view(kind) if number > 0 else -number
        rows += [[number, smaller, -number], [-number, -number, -np.inf], [-number, -smaller, 0]]
        rows += [[-number, -smaller, -np.inf]]
    x = np.repeat(np.array(rows, kind), 45, axis=1)
    operand = Operand(dtype, x.shape)
    check(Spec("softmax", (operand,), operand, (operand,)), {}, [x], arch=arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("number", [np.nan, -np.nan, np.inf])
def test_softmax_of_16_bits_finds_nan(number, dtype, arch):
    """A NaN of either sign, at any place, among numbers of either."""
    x = np.full((8, 130), [[-1.0], [2.0]] * 4, numpy_dtype(dtype))
    places = [0, 1, 40, 41, 128, 129]
    x[range(6), places] = number
    operand = Operand(dtype, x.shape)
    got = run(Spec("softmax", (operand,), operand, (operand,)), [x], arch=arch)[0][0]
    assert np.isnan(got[:6]).all()
    np.testing.assert_array_equal(got[6:], np.full((2, 130), 1 / 130).astype(got.dtype))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("place", [0, 40, 129])
def test_softmax_of_a_row_with_nan_is_nan(place, arch):
    """The greatest number is found without it."""
    x = np.zeros((3, 130), np.float32)
    x[1, place], x[2, place] = np.nan, np.inf
    operand = Operand("float32", x.shape)
    got = run(Spec("softmax", (operand,), operand, (operand,)), [x], arch=arch)[0][0]
    assert np.isnan(got[1:]).all()
    assert not np.isnan(got[0]).any()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("place", [0, 40, 129])
def test_layer_norm_of_a_row_with_infinity_is_nan(place, arch):
    x = np.random.default_rng(0).standard_normal((3, 130)).astype(np.float32)
    x[1, place], x[2, place] = -np.inf, np.nan
    ones = np.ones(130, np.float32)
    (got,) = check(normalization("layer_norm", "float32", x.shape), {}, [x, ones, ones], arch)
    assert np.isnan(got[1:]).all()


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reduce_finds_nan(kind, axis):
    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    x[17, 23] = np.nan
    check(reduction(kind, "float32", (40, 40), axis), {}, [x])


def test_sum_of_nothing_is_zero():
    for axis, shape in ((1, (3, "d0")), (0, ("d0", 3))):
        (total,), _ = run(
            reduction("sum", "int32", shape, axis),
            [np.zeros((0, 3), np.int32) if axis == 0 else np.zeros((3, 0), np.int32)],
            {"d0": 0},
        )
        assert total.tolist() == ([[0, 0, 0]] if axis == 0 else [[0], [0], [0]])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("kind", "dtype", "wanted"),
    [
        ("max", "float32", -np.inf),
        ("min", "float32", np.inf),
        ("max", "int8", -128),
        ("min", "uint16", 65535),
        ("mean", "float32", np.nan),
    ],
)
def test_others_of_nothing(kind, dtype, wanted, axis):
    """What a reduction starts from; NumPy raises for max and min."""
    shape = ("d0", 3) if axis == 0 else (3, "d0")
    empty = np.zeros((0, 3) if axis == 0 else (3, 0), dtype)
    (got,), _ = run(reduction(kind, dtype, shape, axis), [empty], {"d0": 0})
    np.testing.assert_array_equal(got.reshape(3), np.full(3, wanted, dtype))


@pytest.mark.parametrize("axis", [0, 1])
def test_mean_pooling(axis):
    """The sum of squares over its count, scaled: a prologue and an epilogue around a reduction."""
    shape = ("d0", 40)
    prologue = Body((Operand("float32", shape),), (Step("mul", (0, 0), "float32"),), (1,))
    epilogue = Body((Operand("float32", (1, 1)),), (Step("mul", (0, 1), "float32"),), (2,))
    check(reduction("mean", "float32", shape, axis, prologue, epilogue), {"d0": 9}, rtol=1e-5)


def test_refusals():
    flags = Operand("bool", (3, 4))
    spec = Spec("reduce", (flags,), flags, (flags,), (("axis", 1), ("kind", "sum")))
    assert find("reduce", "cpu").supports(spec) == "no sum of bool"
    numbers = Operand("int32", (3, 4))
    spec = Spec("softmax", (numbers,), numbers, (numbers,))
    assert find("softmax", "cpu").supports(spec) == "wanted floats, got int32"
    x = Operand("float32", (3, 4))
    body = Body((x,), (Step("frobnicate", (0,), "float32"),), (1,))
    spec = Spec("softmax", (x,), x, (x,), (), body)
    assert find("softmax", "cpu").supports(spec) == "no elementwise code for 'frobnicate'"
