"""How operands of different dtypes meet: the rule is written out in docs/ops.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops.row import ROWS, Promotion
from heddle.graph.types import TensorType
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError


def promote_dtypes(a: DType, b: DType) -> DType:
    """The dtype of the higher category; within a category, the wider one.

    Raises:
        GraphError: The result could not hold every value of the other dtype (floats may round),
            or one of them is a float of 8 bits, which nobody means to compute in.
    """
    if a is b:
        return a
    if a.is_float8 or b.is_float8:
        raise GraphError(f"wanted one dtype where one is a float of 8 bits, got {a} and {b}; cast")
    result = max(a, b, key=lambda dtype: (dtype.category, dtype.size))
    (low, high), (least, greatest) = (dtype.range for dtype in (a if result is b else b, result))
    if (a.size == b.size and a.category == b.category) or low < least or high > greatest:
        raise GraphError(f"wanted dtypes of which one holds the other, got {a} and {b}; cast one")
    return result


def promote(graph: Any, operands: list[Any], promotion: Promotion) -> list[TensorValue]:
    """The operands as values of one dtype, with casts and constants added to `graph`.

    Python numbers take the dtype that the tensors have, and among themselves that of constants;
    NumPy arrays are constants of their own.
    """
    fixed = {"all": 0, "values": 1, "none": len(operands)}[promotion]
    dtype = None
    mixed = False
    for index, operand in enumerate(operands):
        if not isinstance(operand, TensorValue):
            if isinstance(operand, (np.ndarray, np.generic)):
                operands[index] = operand = graph.constant(operand, device=_device(operands))
            else:
                mixed = True
                continue
        if index >= fixed and operand.dtype is not dtype:
            if dtype is not None:
                dtype, mixed = promote_dtypes(dtype, operand.dtype), True
            else:
                dtype = operand.dtype
    if not mixed:
        return operands
    if dtype is None:
        dtype = _dtype_of(operands[fixed:])
    for index, operand in enumerate(operands):
        if not isinstance(operand, TensorValue):
            if dtype is None or index < fixed or not isinstance(operand, (bool, int, float)):
                hint = "; see ops.size" if isinstance(operand, Dim) else ""
                raise GraphError(
                    f"operand {index}: wanted a tensor value, got {type(operand).__name__}{hint}"
                )
            check_fits(operand, dtype)
            operands[index] = graph.constant(operand, dtype, _device(operands))
        elif index >= fixed and operand.dtype is not dtype:
            assert dtype is not None
            cast, result = ROWS["cast"], TensorType(dtype, operand.shape, operand.device)
            operands[index] = graph.emit(cast, [operand], {"dtype": dtype}, result)
    return operands


def _dtype_of(numbers: Sequence[Any]) -> DType | None:
    """The dtype that Python numbers have as constants; None where there are none."""
    kinds = {float: DType.float32, int: DType.int64, bool: DType.bool}
    found = [dtype for kind, dtype in kinds.items() if any(type(n) is kind for n in numbers)]
    return found[0] if found else None


def check_fits(number: bool | int | float, dtype: DType) -> None:
    """Raises GraphError unless `dtype` holds the Python number; a float may round."""
    if isinstance(number, bool) is not (dtype is DType.bool):
        raise GraphError(f"wanted a number of dtype {dtype}, got {number}; cast first")
    if isinstance(number, float) and not dtype.is_float:
        raise GraphError(f"wanted a number of dtype {dtype}, got the float {number}; cast first")
    low, high = dtype.range
    finite = isinstance(number, int) or math.isfinite(number)  # an int may be beyond any float
    if finite and not low <= number <= high:
        raise GraphError(f"wanted a number from {low} to {high} ({dtype}), got {number}")


def _device(operands: list[Any]) -> Any:
    return next(operand.device for operand in operands if isinstance(operand, TensorValue))
