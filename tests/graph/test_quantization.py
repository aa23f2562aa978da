"""quantized_matmul: what its integers mean, and every mistake while building."""

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, ops
from heddle.graph.dialect import context
from heddle.graph.ops.row import ROWS
from heddle.runtime.errors import GraphError

F32, F16, BF16 = DType.float32, DType.float16, DType.bfloat16
I8, U8, U32 = DType.int8, DType.uint8, DType.uint32


def test_one_scale_for_each_group():
    x = np.eye(64, dtype=np.float32)
    weight = np.arange(128, dtype=np.int8).reshape(2, 64) - 64
    scales = np.array([[1, 10], [100, 1000]], np.float32)
    result = ROWS["quantized_matmul"].reference(x, weight, scales, bits=8, group=32)
    np.testing.assert_array_equal(result.T, weight * np.repeat(scales, 32, axis=1))


def test_four_bits_lie_with_the_even_element_lower():
    weight = np.full((1, 16), 0x88, np.uint8)
    weight[0, :2] = 0x0F, 0x97
    scales = np.full((1, 1), 2, np.float32)
    x = np.eye(32, dtype=np.float32)
    result = ROWS["quantized_matmul"].reference(x, weight, scales, bits=4, group=32)
    assert result[:6, 0].tolist() == [14, -16, -2, 2, 0, 0]


def test_minimums_are_beside_integers_without_a_sign():
    x = np.eye(64, dtype=np.float32)
    scales, minimums = np.array([[2, 3]], np.float32), np.array([[-7, 100]], np.float32)
    bytes_ = np.arange(64, dtype=np.uint8)[None] * 4
    compute = ROWS["quantized_matmul"].reference
    found = compute(x, bytes_, scales, minimums, bits=8, group=32)
    wanted = np.where(np.arange(64) < 32, 2.0 * bytes_ - 7, 3.0 * bytes_ + 100)
    np.testing.assert_array_equal(found.T, wanted)
    halves = np.full((1, 32), 0xF1, np.uint8)
    found = compute(x, halves, scales, minimums, bits=4, group=32)
    assert found[[0, 1, 32, 33], 0].tolist() == [-5, 23, 103, 145]


def test_rounded_rows_meet_minimums_as_they_were():
    x = np.linspace(-1, 1, 32, dtype=np.float32)[None] ** 3
    scales, minimums = np.ones((1, 1), np.float32), np.full((1, 1), 1000, np.float32)
    compute = ROWS["quantized_matmul"].reference
    attrs = {"bits": 8, "group": 32, "activations": "int8"}
    middle = np.full((1, 32), 128, np.uint8)
    found = compute(x + 0.25, middle, scales, minimums, **attrs)
    np.testing.assert_allclose(found, (x + 0.25).sum(keepdims=True) * 1128, rtol=1e-6)


def test_scales_in_float16_leave_the_result_as_it_is():
    x = np.full((1, 32), 1 / 3, np.float32)
    weight, scales = np.ones((1, 32), np.int8), np.full((1, 1), 3, np.float16)
    found = ROWS["quantized_matmul"].reference(x, weight, scales, bits=8, group=32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 32, rtol=1e-6)


def types(x=(2, 64), weight=(5, 64), scales=(5, 2), dtypes=(F32, I8, F32)):
    return [TensorType(d, s) for d, s in zip(dtypes, (x, weight, scales), strict=True)]


MISTAKES = [
    (types(), {"group": 32, "bits": 2}, "bits: wanted 8 or 4, got 2"),
    (types(), {"group": 32, "activations": "int4"},
     "activations: wanted 'float' or 'int8', got 'int4'"),
    (types(dtypes=(F32, DType.float8_e5m2, F32)), {"group": 32, "activations": "int8"},
     "activations: wanted 'float' for a weight of float8_e5m2, got 'int8'"),
    (types(), {"group": 65568, "activations": "int8"},
     "group: wanted at most 65536 with activations='int8', got 65568"),
    (types(), {"group": 48}, "group: wanted a positive multiple of 32, got 48"),
    (types(), {"group": 0}, "group: wanted a positive multiple of 32, got 0"),
    (types(dtypes=(DType.float64, I8, F32)), {"group": 32},
     "x: wanted float32, float16 or bfloat16, got float64"),
    (types(dtypes=(F32, U8, F32)), {"group": 32},
     "weight: wanted int8 or float8_e4m3fn or float8_e5m2 for 8 bits, got uint8"),
    (types(), {"group": 32, "bits": 4}, "weight: wanted uint8 for 4 bits, got int8"),
    (types(dtypes=(F32, I8, BF16)), {"group": 32},
     "scales: wanted float32, as x, or float16, got bfloat16"),
    (types(dtypes=(F16, I8, F32)), {"group": 32}, "scales: wanted float16, as x, got float32"),
    ([*types(), TensorType(F32, (5, 2))], {"group": 32},
     "weight: wanted uint8 for 8 bits and minimums, got int8"),
    ([*types(dtypes=(F32, U8, F32)), TensorType(F16, (5, 2))], {"group": 32},
     "minimums: wanted float32, as scales, got float16"),
    ([*types(dtypes=(F32, U8, F32)), TensorType(F32, (5, 1))], {"group": 32},
     "minimums: wanted [5, 2], as scales, got [5, 1]"),
    (types(x=(64,)), {"group": 32},
     "x: wanted rank 2 or more, got rank 1 (float32[64] on cpu:0)"),
    (types(weight=(1, 5, 64)), {"group": 32},
     "weight: wanted rank 2, got rank 3 (int8[1, 5, 64] on cpu:0)"),
    (types(scales=(5,)), {"group": 32},
     "scales: wanted rank 2, got rank 1 (float32[5] on cpu:0)"),
    (types(scales=(5, "n")), {"group": 32},
     "scales: wanted a static number of groups, got [5, n]"),
    (types(), {}, "x: wanted k = 256, 2 groups of 128, got [2, 64]"),
    (types(weight=(5, 32)), {"group": 32},
     "weight: wanted [5, 64] for scales [5, 2], got [5, 32]"),
    (types(dtypes=(F32, U8, F32)), {"group": 32, "bits": 4},
     "weight: wanted [5, 32] for scales [5, 2], got [5, 64]"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "attrs", "message"), MISTAKES)
def test_mistakes(operands, attrs, message):
    with (
        pytest.raises(GraphError) as caught,
        Graph("wrong", operands) as graph,
    ):
        graph.output(ops.quantized_matmul(*graph.inputs, **attrs))
    assert str(caught.value).endswith(f": quantized_matmul: {message}")


def test_activations_of_8_bits_are_127ths_of_the_largest_of_their_group():
    x = np.zeros((1, 64), np.float32)
    x[0, :4] = 127, -63.4, 0.5, 1.5  # halves go to the even integer
    x[0, 32:35] = 0.254, 0.001, -0.254
    weight = np.eye(64, dtype=np.int8)
    scales = np.ones((64, 2), np.float32)
    attrs = {"bits": 8, "group": 32, "activations": "int8"}
    (found,) = ROWS["quantized_matmul"].reference(x, weight, scales, **attrs)
    np.testing.assert_allclose(found[:4], [127, -63, 0, 2], rtol=1e-6)
    np.testing.assert_allclose(found[32:35], [0.254, 0, -0.254], rtol=1e-6)
    assert not found[35:].any()


def test_packed_rows_say_the_same_as_plain_ones():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 128)).astype(np.float32)
    for bits in (4, 8):
        weight = rng.integers(0, 256, (40, 16 * bits)).astype(np.uint8)
        scales = rng.random((40, 2)).astype(np.float32)
        if bits == 4:
            packed = ROWS["pack_int4"].compute(weight)
        else:
            weight = weight.view(np.int8)
            packed = ROWS["pack_b"].compute(weight, transposed=True, group=4)
        rows = ROWS["round_rows"].compute(x, bits=bits, group=64)
        shares = ROWS["pack_b"].compute(scales, transposed=True, group=1)
        product = ROWS["rounded_matmul_packed"].compute(
            rows, packed, shares, columns=Dim(40), group=64, dtype=F32
        )
        attrs = {"bits": bits, "group": 64, "activations": "int8"}
        wanted = ROWS["quantized_matmul"].compute(x, weight, scales, **attrs)
        np.testing.assert_allclose(product, wanted, rtol=1e-5, atol=1e-4)


PACKED = {"columns": Dim(40), "group": 32, "dtype": F32}
ROUNDED_ROWS = types((2, 80), (2, 16, 32, 4), (2, 2, 32), (U8, I8, F32))
PACKED_MISTAKES = [
    ("round_rows", [TensorType(F16, (2, 64))], {"bits": 8, "group": 32},
     "x: wanted float32 or bfloat16, got float16"),
    ("round_rows", [TensorType(F32, (2, 64))], {"bits": 3, "group": 32},
     "bits: wanted 8 or 4, got 3"),
    ("round_rows", [TensorType(F32, (2, 65))], {"bits": 8, "group": 32},
     "x: wanted whole groups of 32, got [2, 65]"),
    ("rounded_matmul_packed", [TensorType(I8, (2, 80)), *ROUNDED_ROWS[1:]], PACKED,
     "a: wanted uint8, got int8"),
    ("rounded_matmul_packed", types((2, 80), (2, 16, 32, 4), (2, 2, 32), (U8, U8, F32)), PACKED,
     "weight: wanted int8 or uint32, got uint8"),
    ("rounded_matmul_packed", types((2, 80), (2, 16, 32, 4), (2, 2, 32), (U8, I8, I8)), PACKED,
     "scales: wanted float32, float16 or bfloat16, got int8"),
    ("rounded_matmul_packed", ROUNDED_ROWS, {**PACKED, "dtype": I8},
     "dtype: wanted float32, float16 or bfloat16, got int8"),
    ("rounded_matmul_packed", types((2, 81), (2, 16, 32, 4), (2, 2, 32), (U8, I8, F32)), PACKED,
     "a: wanted whole groups of 40 bytes, got [2, 81]"),
    ("rounded_matmul_packed", types((2, 80), (2, 8, 32, 4), (2, 2, 32), (U8, I8, F32)), PACKED,
     "weight: wanted panels [2, 16, 32, 4] for n = 40, got [2, 8, 32, 4]"),
    ("pack_int4", [TensorType(I8, (4, 8))], {}, "weight: wanted uint8, got int8"),
    ("pack_int4", [TensorType(U8, (8,))], {},
     "weight: wanted rank 2 or more, got rank 1 (uint8[8] on cpu:0)"),
    ("pack_int4", [TensorType(U8, (4, 6))], {},
     "weight: wanted [..., n, a multiple of 4], got [4, 6]"),
    ("quantized_matmul_packed", types((2, 64), (2, 16, 32, 4), (2, 2, 32), (F16, I8, F32)), PACKED,
     "a: wanted float32 or bfloat16, got float16"),
    ("quantized_matmul_packed", types((2, 64), (2, 64, 32), (2, 2, 32), (F32, U8, F32)), PACKED,
     "weight: wanted int8 or float8_e4m3fn or float8_e5m2 or uint32, got uint8"),
    ("quantized_matmul_packed", types((2, 64), (2, 16, 32, 4), (2, 2, 32), (F32, I8, I8)), PACKED,
     "scales: wanted float32, float16 or bfloat16, got int8"),
    ("quantized_matmul_packed", types((2, 40), (2, 10, 32, 4), (2, 1, 32)), PACKED,
     "a: wanted whole groups of 32, got [2, 40]"),
    ("quantized_matmul_packed", types((2, 64), (2, 64, 32), (2, 8, 32), (F32, U32, F32)), PACKED,
     "weight: wanted panels [2, 8, 32] for n = 40, got [2, 64, 32]"),
    ("quantized_matmul_packed", types((2, 64), (2, 16, 32, 4), (2, 1, 32)), PACKED,
     "scales: wanted panels [2, 2, 32] for n = 40, got [2, 1, 32]"),
    ("matmul_packed", [TensorType(F16, (2, 8)), TensorType(F16, (2, 8, 32))], {"columns": Dim(40)},
     "a: wanted float32 for b of float16, got float16"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "attrs", "message"), PACKED_MISTAKES)
def test_mistakes_in_what_the_compiler_makes(name, operands, attrs, message):
    with context(), pytest.raises(GraphError) as caught:
        ROWS[name].infer(operands, attrs)
    assert str(caught.value) == message
