import ml_dtypes
import numpy as np
import pytest

from heddle.graph import DType
from heddle.kernels import mlir
from heddle.kernels.mlir import ir


@pytest.mark.parametrize("dtype", DType)
def test_numpy_and_mlir_round_trip(dtype):
    with mlir.context():
        assert DType.from_mlir(dtype.to_mlir()) is dtype
    numpy = np.dtype(getattr(ml_dtypes, dtype.value, dtype.value))
    assert DType.from_numpy(numpy) is dtype
    assert dtype.size == numpy.itemsize == dtype.to_bits().itemsize
    assert dtype.in_numpy is (numpy.isbuiltin == 1)
    assert dtype.to_numpy() == (numpy if dtype.in_numpy else np.float32)


def test_categories_and_ranges():
    assert [d.category for d in (DType.bool, DType.uint8, DType.int64, DType.float16)] == [
        0,
        1,
        2,
        3,
    ]
    assert DType.int8.range == (-128, 127)
    assert DType.bool.range == (0, 1)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        assert DType[name].range[1] == float(ml_dtypes.finfo(name).max)
        assert DType[name].category == DType.float16.category
    assert [dtype.name for dtype in DType if dtype.is_float8] == ["float8_e4m3fn", "float8_e5m2"]
    assert DType.float16.range == (-65504, 65504)
    assert DType.bfloat16.is_float
    assert DType.uint8.is_integer
    assert not DType.bool.is_integer
    assert not DType.uint8.is_signed
    assert str(DType.uint8) == "uint8"


def test_unknown_types_invalid():
    with pytest.raises(TypeError, match=r"wanted one of bool, int8, .*got complex64"):
        DType.from_numpy(np.complex64)
    with mlir.context(), pytest.raises(TypeError, match=r"wanted one of .*got i7"):
        DType.from_mlir(ir.IntegerType.get_signless(7))
