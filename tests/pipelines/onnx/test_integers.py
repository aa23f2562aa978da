"""Operators on integers: exact to the last bit, and also for the least of a dtype."""

import numpy as np
import onnx
import pytest
from onnx_texts import computed, imported, text

from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(0)
EINSUM = 'Einsum <equation = "aij,jk->aik"> (x0, x1)'


def check(node, given, wanted, opset=21):
    (y,) = computed(text(node, given, wanted), *given, opset=opset)
    assert y.dtype == wanted.dtype
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_the_smallest_of_integers(dtype):
    limits = np.iinfo(dtype)
    x = np.array([[5, limits.min, 3, limits.max, 3]], dtype)
    model = f"""m ({dtype}[1, 5] x) => ({dtype}[1, 4] y, int64[1, 4] places) <int64[1] k = {{4}}>
    {{ y, places = TopK <largest = 0> (x, k) }}"""
    y, places = computed(model, x)
    assert y.tolist() == [[limits.min, 3, 3, 5]]
    assert places.tolist() == [[1, 2, 4, 0]]


def test_a_mean_of_several_axes_is_divided_once():
    most = 2**31 - 1
    x = np.array([[[1, 2], [1, 0]], [[most, most], [most, most]], [[-1, -2], [0, 0]]], np.int32)
    means = np.array([1, most, 0], np.int32)  # 4 / 4, and -3 / 4 towards zero
    check("ReduceMean <axes = [1, 2], keepdims = 0> (x0)", [x], means, opset=13)
    most = 2**63 + 1
    check("ReduceMean (x0)", [np.array([most], np.uint64)], np.array([most], np.uint64))


@pytest.mark.parametrize(
    ("x", "zero", "scale", "wanted"),
    [
        ([32769, 65535], np.uint16(32768), 0.001, [0.001, 32.78]),
        ([-32768, 32767], np.int16(-32767), 0.001, [-0.001, 65.56]),
        ([100000, -3], np.int32(0), 1e-4, [10, -3e-4]),
    ],
)
def test_integers_that_the_dtype_of_their_scale_lacks(x, zero, scale, wanted):
    """float16 has no whole number above 65504, and not all above 2048."""
    given = [np.array(x, zero.dtype), np.array(scale, np.float16), np.array(zero)]
    wanted = np.array(wanted, np.float16)
    (y,) = computed(text("DequantizeLinear (x0, x1, x2)", given, wanted), *given)
    assert y.dtype == wanted.dtype
    np.testing.assert_allclose(y, wanted, rtol=2e-3)


def test_floats_of_another_dtype_than_their_scale():
    given = [np.array([100000, -3], np.int32), np.array(0.5, np.float16)]
    wanted = np.array([50000, -1.5], np.float32)
    check("DequantizeLinear <output_dtype = 1> (x0, x1)", given, wanted, opset=23)


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_remainders_with_the_sign_of_what_is_divided(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([low, high, low, high, -7, 7, -6, 0], dtype)
    y = np.array([3, low, low, -1, 2, -2, 3, -5], dtype)
    check("Mod <fmod = 1> (x0, x1)", [x, y], np.fmod(x, y))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32"])
def test_an_index_is_not_narrower_than_the_depth(dtype):
    x, kind = np.array([5, 127], dtype), dtype.replace("float32", "float")
    model = f"""m ({kind}[2] x) => (int32[2, 300] y)
    <int64 depth = {{300}}, int32[2] values = {{0, 1}}> {{ y = OneHot(x, depth, values) }}"""
    (y,) = computed(model, x)
    assert np.argwhere(y).tolist() == [[0, 5], [1, 127]]


@pytest.mark.parametrize(
    ("name", "wanted"), [("ReduceL2", 70000), ("ReduceLogSum", 11), ("ReduceLogSumExp", 69999)]
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_reductions_of_floats_take_integers(name, wanted, dtype):
    numbers = [69999, 529, 1] if name == "ReduceLogSumExp" else [30, 40, 70000]
    check(f"{name} <keepdims = 0> (x0)", [np.array(numbers, dtype)], np.array(wanted, dtype))


@pytest.mark.parametrize(
    ("node", "dtype"),
    [
        *(("MatMul (x0, x1)", dtype) for dtype in ("int32", "uint32", "int64", "uint64")),
        *((EINSUM, dtype) for dtype in ("int8", "uint16", "int32", "int64")),
    ],
)
def test_products_are_exact(node, dtype):
    limits = np.iinfo(dtype)
    a, b = (
        RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        for shape in ((2, 3, 5), (5, 4))
    )
    a[0], b[:, 0] = limits.min, limits.max
    check(node, [a, b], a @ b)


def test_sums_of_integers_are_as_long_as_they_are_exact():
    model = "m (int32[2, k] x, int32[k, 2] z) => (int32[2, 2] y) { y = MatMul(x, z) }"
    assert imported(model).graph.symbols == {"k": (1, 2**21)}
    with pytest.raises(GraphError, match=r"wanted sums of at most 2097152 integers .*--dim"):
        imported(model, dims={"k": 2**22})


@pytest.mark.parametrize(("exponent", "kind"), [(39, "int64"), (3, "float"), (0, "int32")])
def test_powers_are_multiplied_out(exponent, kind):
    x = np.array([3, -2, 1], np.int64)
    model = text("Pow (x0, e)", [x], x, **{f"{kind} e": exponent})
    assert computed(model, x)[0].tolist() == [3**exponent, (-2) ** exponent, 1]


def test_half_floats_become_all_integers_of_16_bits():
    """Of which float16 has neither all nor the largest."""
    model = """m (float16[4] x, float16 scale, uint16 zero) => (uint16[4] y)
    { y = QuantizeLinear(x, scale, zero) }"""
    x = np.array([1, -2, 3000, 60000], np.float16)
    (y,) = computed(model, x, np.float16(0.5), np.uint16(30001))
    assert y.tolist() == [30003, 29997, 36001, 65535]


PAIRS = [("int8", "uint8"), ("uint16", "int16"), ("int64", "uint64"), ("bool", "uint8")]


@pytest.mark.parametrize(("dtype", "other"), PAIRS)
def test_the_same_bits_as_another_integer(dtype, other):
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(other))
    x = np.array([0, 1] if dtype == "bool" else [0, 1, -1, -100, 100]).astype(dtype)
    check(f"BitCast <to = {number}> (x0)", [x], x.view(other), opset=26)


def test_the_bits_of_a_float_are_read_of_what_is_known():
    known = """m (int32[2] x) => (int32[2] y) <float[2] one = {1, -2}>
    { bits = BitCast <to = 6> (one)  y = Add(x, bits) }"""
    (y,) = computed(known, np.zeros(2, np.int32), opset=26)
    assert y.tolist() == [0x3F800000, -0x40000000]
    for given, to, message in (
        ("float", 6, "wanted integers, whose bits a cast keeps, got float32 as int32"),
        ("int16", 6, "wanted a dtype of 2 bytes, as int16, got int32"),
    ):
        with pytest.raises(GraphError, match=f"m.onnx:1: BitCast 'y': {message}"):
            imported(f"m ({given}[2] x) => (int32[2] y) {{ y = BitCast <to = {to}> (x) }}", 26)
