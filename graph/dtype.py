"""Element types."""

from __future__ import annotations

import builtins
import re
from enum import Enum
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
    float8_e4m3fn = "float8_e4m3fn"
    float8_e5m2 = "float8_e5m2"

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
    def is_float8(self) -> builtins.bool:
        """Whether this is a float of 8 bits.

        Such tensors are moved, cast and multiplied; other arithmetic wants a cast first.
        """
        return self.is_float and self.size == 1

    @property
    def in_numpy(self) -> builtins.bool:
        """Whether NumPy has this type; see `to_numpy`."""
        return self not in _BITS

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
        if self in _LARGEST:
            return -_LARGEST[self], _LARGEST[self]
        if self is DType.bool:
            return 0, 1
        info: Any = (np.finfo if self.is_float else np.iinfo)(self.to_numpy())
        cast = float if self.is_float else int
        return cast(info.min), cast(info.max)

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds values of this type.

        NumPy has no bfloat16 and no floats of 8 bits: their values are held in float32, rounded
        (`heddle.graph.rounding`).
        """
        return np.dtype(self.value if self.in_numpy else "float32")

    def to_bits(self) -> np.dtype[Any]:
        """The NumPy dtype of elements as they lie in memory: `to_numpy`, or unsigned integers."""
        return np.dtype(_BITS.get(self, self.value))

    @staticmethod
    def from_numpy(dtype: Any) -> DType:
        """The type for a NumPy dtype, or one of ml_dtypes.

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


_BOOL, _UNSIGNED, _SIGNED, _FLOAT = range(4)
_CATEGORIES = {"bool": _BOOL, "uint": _UNSIGNED, "int": _SIGNED, "float": _FLOAT, "bfloat": _FLOAT}
_PARTS = {dtype: re.split(r"(\d+)", dtype.name, maxsplit=1) for dtype in DType}
_CATEGORY = {dtype: _CATEGORIES[parts[0]] for dtype, parts in _PARTS.items()}
_SIZE = {dtype: int(parts[1]) // 8 if parts[1:] else 1 for dtype, parts in _PARTS.items()}
_BITS = {DType.bfloat16: "uint16", DType.float8_e4m3fn: "uint8", DType.float8_e5m2: "uint8"}
_LARGEST = {
    DType.bfloat16: float.fromhex("0x1.fep127"),
    DType.float8_e4m3fn: 448.0,
    DType.float8_e5m2: 57344.0,
}
_FLOATS = {
    DType.float8_e4m3fn: ir.Float8E4M3FNType,
    DType.float8_e5m2: ir.Float8E5M2Type,
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
    "f8E4M3FN": DType.float8_e4m3fn,
    "f8E5M2": DType.float8_e5m2,
}
