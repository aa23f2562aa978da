import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import DType
from heddle.graph.dtype import bfloat16_bits, round_bfloat16, widen_bfloat16
from heddle.kernels import mlir
from heddle.kernels.mlir import ir


@pytest.mark.parametrize("dtype", DType)
def test_numpy_and_mlir_round_trip(dtype):
    with mlir.context():
        assert DType.from_mlir(dtype.to_mlir()) is dtype
    numpy = ml_dtypes.bfloat16 if dtype is DType.bfloat16 else dtype.value
    assert DType.from_numpy(numpy) is dtype
    assert dtype.size == np.dtype(numpy).itemsize
    if dtype is not DType.bfloat16:
        assert dtype.to_numpy() == np.dtype(numpy)


def test_categories_and_ranges():
    assert [d.category for d in (DType.bool, DType.uint8, DType.int64, DType.float16)] == [
        0,
        1,
        2,
        3,
    ]
    assert DType.int8.range == (-128, 127)
    assert DType.bool.range == (0, 1)
    assert DType.bfloat16.range[1] == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert DType.float16.range == (-65504, 65504)
    assert DType.bfloat16.is_float
    assert DType.uint8.is_integer
    assert not DType.bool.is_integer
    assert not DType.uint8.is_signed
    assert str(DType.uint8) == "uint8"


@settings(deadline=None, database=None)
@given(st.integers(0, 2**32 - 1))
def test_bfloat16_rounds_to_nearest_even(bits):
    value = np.array([bits], np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = value.astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(round_bfloat16(value), expected.astype(np.float32))
    if not np.isnan(value[0]):
        assert bfloat16_bits(value)[0] == expected.view(np.uint16)[0]
    assert widen_bfloat16(bfloat16_bits(np.float32(1.5))) == 1.5


def test_unknown_types_invalid():
    with pytest.raises(TypeError, match=r"wanted one of bool, int8, .*got complex64"):
        DType.from_numpy(np.complex64)
    with mlir.context(), pytest.raises(TypeError, match=r"wanted one of .*got i7"):
        DType.from_mlir(ir.IntegerType.get_signless(7))
