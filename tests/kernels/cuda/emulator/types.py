"""MLIR types and attributes as NumPy sees them."""

import ml_dtypes
import numpy as np

from heddle.kernels.mlir import ir

FLOATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}


def dtype_of(kind: ir.Type) -> np.dtype:
    """The NumPy dtype of a scalar type; pointers and `index` are int64, i1 is bool."""
    text = str(kind)
    if text in FLOATS:
        return np.dtype(FLOATS[text])
    if text.startswith(("index", "!llvm.ptr")):
        return np.dtype(np.int64)
    return np.dtype(bool if text == "i1" else f"int{kind.width}")


def shape_of(kind: ir.Type) -> tuple[np.dtype, tuple[int, ...]]:
    """The element dtype and the shape behind the lanes."""
    if isinstance(kind, ir.VectorType):
        return dtype_of(kind.element_type), tuple(kind.shape)
    return dtype_of(kind), ()


def size_of(kind: ir.Type) -> int:
    """Bytes of a type in memory, arrays included."""
    text = str(kind)
    if text.startswith("!llvm.array<"):
        count, element = text[len("!llvm.array<") : -1].split(" x ", 1)
        return int(count) * size_of(ir.Type.parse(element, kind.context))
    dtype, shape = shape_of(kind)
    return dtype.itemsize * int(np.prod(shape, dtype=int))


def result_dtype(op: ir.Operation) -> np.dtype:
    return shape_of(op.results[0].type)[0]


def space_of(pointer: ir.Value) -> int:
    text = str(pointer.type)
    return int(text[len("!llvm.ptr<") : -1]) if "<" in text else 0


def number(op: ir.Operation, name: str, default: int = 0) -> int:
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else default


def numbers(op: ir.Operation, name: str) -> list[int]:
    return list(op.attributes[name])


def count_of(kind: ir.Type) -> int:
    """The number of scalars in a structure that has no structures inside."""
    return str(kind).count(",") + 1
