"""The attributes of ops, between Python and MLIR; the kinds are the annotations in the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.rounding import held, loaded, stored
from heddle.graph.types import Shape
from heddle.kernels.mlir import ir
from heddle.runtime.errors import GraphError


@dataclass(frozen=True)
class Kind:
    """How an attribute is checked (`accepts`), written (`encode`) and read (`decode`)."""

    accepts: Callable[[Any], bool]
    encode: Callable[[Any], Any]
    holds: type
    decode: Callable[[Any], Any]


def _i64(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _shape(value: Shape) -> Any:
    return ir.ArrayAttr.get([ir.StringAttr.get(str(dim)) for dim in value])


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_i64(value: Any) -> bool:
    return _is_int(value) and -(2**63) <= value < 2**63


KINDS = {
    "int": Kind(_is_i64, _i64, ir.IntegerAttr, lambda attr: attr.value),
    "float": Kind(
        lambda value: isinstance(value, float) or _is_int(value),
        lambda value: ir.FloatAttr.get_f64(float(value)),
        ir.FloatAttr,
        lambda attr: attr.value,
    ),
    "bool": Kind(
        lambda value: isinstance(value, bool), ir.BoolAttr.get, ir.BoolAttr, lambda attr: attr.value
    ),
    "str": Kind(
        lambda value: isinstance(value, str), ir.StringAttr.get, ir.StringAttr, lambda a: a.value
    ),
    "tuple[int, ...]": Kind(
        lambda value: isinstance(value, (tuple, list)) and all(map(_is_i64, value)),
        ir.DenseI64ArrayAttr.get,
        ir.DenseI64ArrayAttr,
        tuple,
    ),
    "Dim": Kind(
        lambda value: isinstance(value, (Dim, str)) or _is_int(value),
        lambda value: ir.StringAttr.get(str(Dim(value))),
        ir.StringAttr,
        lambda attr: Dim(attr.value),
    ),
    "Shape": Kind(
        lambda value: isinstance(value, (tuple, list)),
        lambda value: _shape(Shape(value)),
        ir.ArrayAttr,
        lambda attr: Shape(Dim(text.value) for text in attr),
    ),
    "DType": Kind(
        lambda value: isinstance(value, DType),
        lambda value: ir.TypeAttr.get(value.to_mlir()),
        ir.TypeAttr,
        lambda attr: DType.from_mlir(attr.value),
    ),
}


def check(name: str, kind: str, value: Any) -> None:
    """Raises GraphError unless `value` is of this kind."""
    if not KINDS[kind].accepts(value):
        raise GraphError(f"{name}: wanted {kind}, got {value!r}")


def encode(kind: str, value: Any) -> Any:
    """The MLIR attribute for a value of this kind, in the current context."""
    return KINDS[kind].encode(value)


def decode(op: Any, name: str, kind: str) -> Any:
    """The attribute `name` of an op: the inverse of `encode`.

    Raises:
        GraphError: There is none, or it is of another kind.
    """
    attr = op.attributes.get(name)
    if not isinstance(attr, KINDS[kind].holds):
        raise GraphError(f"{name}: wanted {kind}, got {'nothing' if attr is None else attr}")
    return KINDS[kind].decode(attr)


def symbols_attr(symbols: dict[str, tuple[int, int]]) -> Any:
    """`{batch = [1, 128]}`: each symbolic dim with its inclusive range."""
    limits = {
        name: ir.ArrayAttr.get([_i64(low), _i64(high)]) for name, (low, high) in symbols.items()
    }
    return ir.DictAttr.get(limits)


def read_symbols(attr: Any) -> dict[str, tuple[int, int]]:
    """The inverse of `symbols_attr`."""
    return {item.name: (item.attr[0].value, item.attr[1].value) for item in attr}


def constant_attr(array: np.ndarray[Any, Any], dtype: DType) -> Any:
    """Dense elements of `dtype`, in the current context."""
    element = dtype.to_mlir()
    data = stored(array, dtype)
    tensor = ir.RankedTensorType.get(array.shape, element, loc=ir.Location.unknown())
    return ir.DenseElementsAttr.get(np.ascontiguousarray(data).reshape(array.shape), type=tensor)


def element_dtype(attr: Any) -> DType:
    """The dtype of dense elements.

    Raises:
        GraphError: Heddle has no such type.
    """
    try:
        return DType.from_mlir(ir.ShapedType(attr.type).element_type)
    except TypeError as error:
        raise GraphError(str(error)) from None


def constant_array(attr: Any) -> np.ndarray[Any, Any]:
    """The inverse of `constant_attr`, in an array of `DType.to_numpy`."""
    dtype = element_dtype(attr)
    if dtype.in_numpy:
        return np.array(attr)
    shape = ir.ShapedType(attr.type).shape
    return np.array(
        np.broadcast_to(_values(attr, dtype).reshape(() if attr.is_splat else shape), shape)
    )


def _values(attr: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """The elements, or the one that all are, from the text: the bindings do not read them."""
    body = str(attr).removeprefix("dense<").rpartition("> : ")[0]
    if body.startswith('"0x'):
        little = dtype.to_bits().newbyteorder("<")
        return loaded(np.frombuffer(bytes.fromhex(body[3:-1]), little), dtype)
    texts = body.replace("[", "").replace("]", "").split(", ") if body else []
    return held(np.array([_value(text, dtype) for text in texts], np.float32), dtype)


def _value(text: str, dtype: DType) -> float:
    """A number as MLIR prints it, in six digits: infinities and NaN are the bits in hex."""
    if text.startswith("0x"):
        return float(loaded(np.array(int(text, 16), dtype.to_bits()), dtype))
    return float(text)
