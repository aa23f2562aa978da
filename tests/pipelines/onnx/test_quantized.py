"""ONNX Runtime's operators of quantized tensors, beside NumPy and, where it is, ONNX Runtime."""

import numpy as np
import pytest
from onnx_texts import computed, imported, parsed, text
from quantized_cases import CASES, columns, integers, node, quantized, real, tensor

from heddle.runtime.errors import GraphError

EIGHT = ["uint8", "int8"]


def check(found, wanted):
    """Integers are the same, floats within what their last bits mean."""
    assert found.dtype == wanted.dtype
    tolerance = 0 if wanted.dtype.kind in "iu" else 2**-20
    largest = np.abs(wanted.astype(np.float64)).max()
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * largest
    )


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("name", CASES)
def test_what_its_text_says(name, dtype):
    kind, given, wanted = CASES[name](np.random.default_rng(0), dtype)
    (found,) = computed(text(kind, given, wanted), *given)
    check(found, wanted)


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("name", CASES)
def test_what_onnx_runtime_says(name, dtype):
    onnxruntime = pytest.importorskip("onnxruntime")
    kind, given, wanted = CASES[name](np.random.default_rng(0), dtype)
    model = parsed(text(kind, given, wanted)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {f"x{at}": np.asarray(array) for at, array in enumerate(given)})
    check(found, wanted)


@pytest.mark.parametrize("dtype", [*EIGHT, "uint16", "int16"])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_there_and_back(dtype, axis):
    """By operators that ONNX Runtime has for dtypes which older opsets of ONNX lack."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    shape = {None: (), 1: (3,), -1: (4,)}[axis]
    scale = (2.0 ** rng.integers(-4, 0, shape)).astype(np.float32)
    zero = np.asarray(integers(rng, dtype, *shape))
    x = (rng.integers(-4 * limits.max, 4 * limits.max, (2, 3, 4)) / 16).astype(np.float32)
    x[0, 0, :2] = -1e9, 1e9
    settings = {} if axis is None else {"axis": axis}
    row = [-1, 1] if axis == 1 else [-1]
    s, z = (each if axis is None else each.reshape(row) for each in (scale, zero))
    q = quantized(x / s.astype(np.float64), z)
    (found,) = computed(
        text(node("QuantizeLinear", 3, **settings), [x, scale, zero], q), x, scale, zero, opset=13
    )
    check(found, q)
    y = real(q, s, z).astype(np.float32)
    (found,) = computed(
        text(node("DequantizeLinear", 3, **settings), [q, scale, zero], y), q, scale, zero, opset=13
    )
    check(found, y)


def test_zeros_are_quantized():
    model = """m (float[2] x) => (uint8[2] y, float scale, uint8 zero)
    { y, scale, zero = DynamicQuantizeLinear(x) }"""
    y, scale, zero = computed(model, np.zeros(2, np.float32))
    assert (y.tolist(), scale, zero) == ([0, 0], np.float32(1 / 255), 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_last_block_that_is_shorter(axis):
    rng, size = np.random.default_rng(0), 3
    x = integers(rng, "int8", 7, 5)
    blocks = (3, 5) if axis == 0 else (7, 2)
    scale, zero = rng.uniform(0.1, 1, blocks).astype(np.float32), integers(rng, "int8", *blocks)
    given, settings = f"<axis = {axis}, block_size = {size}> (x0, x1, x2)", (scale, zero)
    s, z = (np.repeat(each, size, axis)[:7, :5] for each in settings)
    y = real(x, s, z).astype(np.float32)
    (found,) = computed(text(f"DequantizeLinear {given}", [x, *settings], y), x, *settings)
    check(found, y)
    (found,) = computed(text(f"QuantizeLinear {given}", [y, *settings], x), y, *settings)
    check(found, x)


def test_a_zero_point_that_is_left_out():
    model = """m (int8[2] x, float s) => (int8[2] y, float[2] z) {
    y = com.microsoft.QLinearLeakyRelu <alpha = 0.5> (x, s, "", s)
    z = com.microsoft.DequantizeLinear (x, s) }"""
    y, z = computed(model, np.array([-6, 5], np.int8), np.float32(0.5))
    assert (y.tolist(), z.tolist()) == ([-3, 5], [-3, 2.5])


def test_a_scale_for_each_row():
    rng = np.random.default_rng(0)
    a, b = (columns(rng, "uint8", 40, 6) for _ in range(2))
    given = [np.ascontiguousarray(a[0].T), *a[1:], *b, np.float32(0.2), np.uint8(99)]
    wanted = quantized(real(*a).T @ real(*b) / np.float64(given[6]), given[7])
    (found,) = computed(
        text(f"QLinearMatMul ({', '.join(f'x{i}' for i in range(8))})", given, wanted), *given
    )
    check(found, wanted)


def test_weights_of_4_bits_from_before_onnx_had_them():
    model = """m (float[2] x) => (float[2] y) <int4 q = {-7}, float s = {0.5}>
    { w = com.microsoft.DequantizeLinear (q, s)  y = Add(x, w) }"""
    assert computed(model, np.zeros(2, np.float32), opset=17)[0].tolist() == [-3.5, -3.5]


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("dtype", EIGHT)
def test_attention_of_quantized_rows(dtype, past):
    """Is that of what they stand for."""
    rng, heads, size = np.random.default_rng(0), 2, 4
    x, w = tensor(rng, dtype, (2, 5, 10), 0.02), columns(rng, dtype, 10, 3 * heads * size)
    bias = rng.standard_normal(3 * heads * size).astype(np.float32)
    mask = np.array([[1] * (past + 5), [1] * (past + 3) + [0, 0]], np.int32)
    before = rng.standard_normal((2, 2, heads, past, size)).astype(np.float32)
    given = [x[0], w[0], bias, x[1], w[1], mask, x[2], w[2], before]
    floats = [real(*x).astype(np.float32), real(*w).astype(np.float32), bias, mask, before]
    wanted = np.zeros((2, 5, heads * size), np.float32)
    settings = {"num_heads": heads, "unidirectional": 1}
    (wanted,) = computed(text(node("Attention", 5, **settings), floats, wanted), *floats)
    (found,) = computed(text(node("QAttention", 9, **settings), given, wanted), *given)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_table_in_blocks(bits, has_zeros):
    rng, rows, size, blocks, each = np.random.default_rng(0), 6, 40, 3, 16
    q, zeros = (rng.integers(0, 2**bits, (rows, n)).astype(np.uint8) for n in (size, blocks))
    scales, indices = rng.uniform(0.1, 1, (rows, blocks)).astype(np.float32), np.array([[5, -6, 2]])

    def packed(x):
        x = np.pad(x, [(0, 0), (0, x.shape[1] % 2)])
        return x[:, ::2] | x[:, 1::2] << 4

    shift = np.repeat(zeros.astype(int), each, 1)[:, :size] if has_zeros else 2 ** (bits - 1)
    wanted = ((q.astype(int) - shift) * np.repeat(scales, each, 1)[:, :size]).astype(np.float32)[
        indices
    ]
    q, zeros = (packed(x) if bits == 4 else x for x in (q, zeros))
    given = [q, indices, scales, zeros][: 4 if has_zeros else 3]
    settings = {"bits": bits, "block_size": each, "quantize_axis": 1, "gather_axis": 0}
    (found,) = computed(
        text(node("GatherBlockQuantized", len(given), **settings), given, wanted), *given
    )
    check(found, wanted)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "QLinearSigmoid (x, s, z, s, z)",
            r"QLinearSigmoid 'y': wanted one element of input 1, got \[2\]",
        ),
        (
            "GatherBlockQuantized <bits = 2> (x, i, s)",
            "'y': wanted uint8 of 4 or 8 bits, .* got uint8 of 2",
        ),
        ("GatherBlockQuantized <quantize_axis = 0> (x, i, s)", "a quantize_axis of 1, .* 0 and 0"),
    ],
)
def test_what_is_not_built_is_named(kind, message):
    model = f"""m (uint8[4, 2] x, float[2] s, uint8 z, int64[3] i) => (float[n] y)
    {{ y = com.microsoft.{kind} }}"""
    with pytest.raises(GraphError, match=message):
        imported(model)
