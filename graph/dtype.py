"""Element types."""

from __future__ import annotations

import builtins
from enum import Enum
from string import ascii_lowercase
from typing import Any

import numpy as np

from heddle.kernels.mlir import ir


class DType(Enum):
    """The type of a tensor's elements; its value is the name used in specs and artifacts."""

    bool = "bool"
    int8 = "int8"
    int16 = "int16"
    int32 = "int32"
    int64 = "int64"
    uint8 = "uint8"
    uint16 = "uint16"
    uint32 = "uint32"
    uint64 = "uint64"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"

    def __str__(self) -> str:
        return self.name

    __hash__ = object.__hash__  # members are singletons; Enum's own hashes the name each time

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return _SIZE[self]

    @property
    def is_float(self) -> builtins.bool:
        """Whether this is a floating-point type."""
        return _CATEGORY[self] == _FLOAT

    @property
    def is_integer(self) -> builtins.bool:
        """Whether this is a signed or unsigned integer type (bool is not)."""
        return _CATEGORY[self] in (_UNSIGNED, _SIGNED)

    @property
    def is_signed(self) -> builtins.bool:
        """Whether negative values exist."""
        return _CATEGORY[self] >= _SIGNED

    @property
    def category(self) -> int:
        """The rank in promotion: bool 0, unsigned 1, signed 2, float 3."""
        return _CATEGORY[self]

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest finite value (exact ints for integers)."""
        if self is DType.bfloat16:
            return -BFLOAT16_MAX, BFLOAT16_MAX
        if self is DType.bool:
            return 0, 1
        info: Any = (np.finfo if self.is_float else np.iinfo)(self.to_numpy())
        cast = float if self.is_float else int
        return cast(info.min), cast(info.max)

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds values of this type.

        NumPy has no bfloat16: such values are held in float32, rounded to bfloat16
        (`round_bfloat16`).
        """
        return np.dtype("float32" if self is DType.bfloat16 else self.value)

    @staticmethod
    def from_numpy(dtype: Any) -> DType:
        """The type for a NumPy dtype, or ml_dtypes' bfloat16.

        Raises:
            TypeError: Heddle has no such type.
        """
        name = np.dtype(dtype).name
        if name not in DType.__members__:
            raise TypeError(f"dtype: wanted one of {', '.join(DType.__members__)}, got {name}")
        return DType[name]

    def to_mlir(self) -> Any:
        """The MLIR element type, in the current context: `i32`, `ui32`, `bf16`."""
        kind, bits = _CATEGORY[self], 8 * self.size
        if kind == _FLOAT:
            return _FLOATS[self].get()
        if kind == _UNSIGNED:
            return ir.IntegerType.get_unsigned(bits)
        return ir.IntegerType.get_signless(1 if self is DType.bool else bits)

    @staticmethod
    def from_mlir(element: Any) -> DType:
        """The inverse of `to_mlir`.

        Raises:
            TypeError: Not the type of any `DType`.
        """
        text = str(element)
        if text not in _FROM_TEXT:
            raise TypeError(f"element type: wanted one of {', '.join(_FROM_TEXT)}, got {text}")
        return _FROM_TEXT[text]


BFLOAT16_MAX = float.fromhex("0x1.fep127")

_BOOL, _UNSIGNED, _SIGNED, _FLOAT = range(4)
_CATEGORIES = {"bool": _BOOL, "uint": _UNSIGNED, "int": _SIGNED, "float": _FLOAT, "bfloat": _FLOAT}
_CATEGORY = {dtype: _CATEGORIES[dtype.name.rstrip("0123456789")] for dtype in DType}
_SIZE = {
    dtype: 1 if dtype is DType.bool else int(dtype.name.lstrip(ascii_lowercase)) // 8
    for dtype in DType
}
_FLOATS = {
    DType.float16: ir.F16Type,
    DType.bfloat16: ir.BF16Type,
    DType.float32: ir.F32Type,
    DType.float64: ir.F64Type,
}
_FROM_TEXT = {
    "i1": DType.bool,
    "bf16": DType.bfloat16,
    **{f"i{bits}": DType[f"int{bits}"] for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": DType[f"uint{bits}"] for bits in (8, 16, 32, 64)},
    **{f"f{bits}": DType[f"float{bits}"] for bits in (16, 32, 64)},
}


def round_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Float32 values rounded to the nearest bfloat16 (ties to even), still as float32."""
    return widen_bfloat16(bfloat16_bits(values))


def bfloat16_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of float32 values rounded to bfloat16, as uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    quiet = (bits >> 16) | 0x40  # adding to a NaN's bits could carry it over to infinity
    kept: np.ndarray[Any, Any] = np.where(np.isnan(values), quiet, rounded).astype(np.uint16)
    shaped: np.ndarray[Any, Any] = kept.reshape(np.shape(values))
    return shaped


def widen_bfloat16(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The float32 values of bfloat16 bits."""
    values: np.ndarray[Any, Any] = (bits.astype(np.uint32) << 16).view(np.float32)
    return values
