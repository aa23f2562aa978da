"""Numbers as signed integers in the same order, so that comparing them is comparing integers."""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.emit import bitcast, compare, select
from heddle.kernels.mlir import dialect

arith = dialect("arith")


def key_dtype(dtype: str) -> str:
    """The dtype of the keys of `dtype`: int32, or int64 for the dtypes of 8 bytes."""
    return "int64" if emit.ITEM_SIZE[dtype] == 8 else "int32"


def key(dtype: str, x: Any, reverse: bool = False) -> Any:
    """The register value `x` of `dtype` as an integer that orders it; `reverse`: the other way.

    Both zeros are equal, and NaN is the greatest either way.
    """
    kind = key_dtype(dtype)
    element = emit.register_type(kind)
    bits = emit.bits_of(element)
    if not emit.is_float(dtype):
        wide = convert.cast(x, dtype, kind)
        if emit.is_unsigned(dtype) and 8 * emit.ITEM_SIZE[dtype] == bits:
            wide = wide ^ (1 << (bits - 1))
        return wide ^ -1 if reverse else wide
    # -0 + 0 is 0.
    pattern = bitcast((-x if reverse else x) + 0.0, element)
    signs = arith.shrsi(pattern, emit.like(pattern, bits - 1))
    # Larger patterns are smaller numbers where the sign is set.
    ordered = pattern ^ (signs & (2 ** (bits - 1) - 1))
    return select(compare("not_equal", x, x), emit.like(ordered, 2 ** (bits - 1) - 1), ordered)


def number(dtype: str, key: Any) -> Any:
    """The float of a key; one that is no float's gives a NaN."""
    element = emit.register_type(dtype)
    bits = emit.bits_of(element)
    signs = arith.shrsi(key, emit.like(key, bits - 1))
    return bitcast(key ^ (signs & (2 ** (bits - 1) - 1)), element)
