"""Conversions of pairs of 8-bit floats: PTX ISA 9.0, "cvt"."""

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np

from emulator.memory import EmulatorError

FLOAT8 = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}
TYPE_OF_8_BITS = re.compile(r"\((f8\w+)\)")


def to_float8(op):
    dtype = FLOAT8[TYPE_OF_8_BITS.search(str(op))[1]]
    for name, wanted in (("rnd", "<rn>"), ("sat", "<satfinite>")):
        if wanted not in str(op.attributes[name]):
            raise EmulatorError(f"wanted {name} {wanted}, got {op.attributes[name]}")
    return narrow(dtype)


def narrow(dtype: np.dtype) -> Callable:
    """cvt.rn.satfinite of pairs: the first operand in the upper byte; no infinity, one NaN."""
    largest = np.float32(ml_dtypes.finfo(dtype).max)

    def run(high, low):
        both = np.stack(np.broadcast_arrays(low, high), axis=-1).astype(np.float32)
        codes = np.clip(both, -largest, largest).astype(dtype).view(np.int8)
        return np.where(np.isnan(both), np.int8(0x7F), codes)

    return run


def from_float8(op):
    return widen(FLOAT8[TYPE_OF_8_BITS.search(str(op))[1]])


def widen(dtype: np.dtype) -> Callable:
    return lambda pair: pair.view(dtype).astype(np.float16)
