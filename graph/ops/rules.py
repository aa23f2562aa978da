"""The dtype and shape rules that rows share; the first line of each is its entry in docs/ops.md."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops.row import Attrs, Types
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError


def one_dtype(types: Types) -> DType:
    """The dtype that all operands have."""
    dtype = types[0].dtype
    for type in types:
        if type.dtype is not dtype:
            got = ", ".join(str(t.dtype) for t in types)
            raise GraphError(f"wanted operands of one dtype, got {got}")
    return dtype


def same(types: Types, attrs: Attrs) -> DType:
    """Any dtype; the operands' own."""
    return one_dtype(types)


def computed_dtype(types: Types) -> DType:
    """The dtype that all operands have, which is no float of 8 bits."""
    dtype = one_dtype(types)
    if dtype.is_float8:
        raise GraphError(f"wanted a dtype to compute in, got {dtype}; cast it first")
    return dtype


def numeric(types: Types, attrs: Attrs) -> DType:
    """Integers and floats; the operands' own."""
    dtype = computed_dtype(types)
    if dtype is DType.bool:
        raise GraphError("wanted a numeric dtype, got bool; cast it first")
    return dtype


def signed(types: Types, attrs: Attrs) -> DType:
    """Signed integers and floats; the operands' own."""
    dtype = computed_dtype(types)
    if not dtype.is_signed:
        raise GraphError(f"wanted a dtype with negative values, got {dtype}; cast it first")
    return dtype


def floating(types: Types, attrs: Attrs) -> DType:
    """Floats; the operands' own."""
    dtype = computed_dtype(types)
    if not dtype.is_float:
        raise GraphError(f"wanted a floating-point dtype, got {dtype}; cast it first")
    return dtype


def compared(types: Types, attrs: Attrs) -> DType:
    """Any dtype; the result is bool."""
    one_dtype(types)
    return DType.bool


def ordered(types: Types, attrs: Attrs) -> DType:
    """Integers and floats; the result is bool."""
    numeric(types, attrs)
    return DType.bool


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The common shape by NumPy's rule; of unequal dims, only a static 1 stretches."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    dims: list[Dim] = []
    for index in range(-max(map(len, shapes)), 0):
        result = Dim(1)
        for dim in (shape[index] for shape in shapes if len(shape) >= -index):
            if result != dim and dim != 1:
                if result != 1:
                    texts = " and ".join(map(str, shapes))
                    raise GraphError(
                        f"wanted shapes that broadcast, got {texts}: {result} and {dim} differ"
                    )
                result = dim
        dims.append(result)
    return Shape(dims)


def broadcast(types: Types, attrs: Attrs) -> Shape:
    """The operands' shapes, broadcast."""
    return broadcast_shapes([type.shape for type in types])


def unchanged(types: Types, attrs: Attrs) -> Shape:
    """The shape of the first operand."""
    return types[0].shape


def check_rank(name: str, type: TensorType, least: int) -> None:
    """Raises GraphError unless `type` has `least` dims or more."""
    if type.rank < least:
        raise GraphError(f"{name}: wanted rank {least} or more, got rank {type.rank} ({type})")


def check_indices(type: TensorType) -> None:
    """Raises GraphError unless the operand `indices` has integers."""
    if not type.dtype.is_integer:
        raise GraphError(f"indices: wanted an integer dtype, got {type.dtype}")


def indexed(types: Types, attrs: Attrs) -> DType:
    """Any dtype, with integer indices; the first operand's."""
    check_indices(types[1])
    return types[0].dtype


def check_axis(axis: int, rank: int) -> int:
    """`axis` itself; raises GraphError unless it is 0 to rank - 1."""
    if not 0 <= axis < rank:
        raise GraphError(f"wanted an axis from 0 to {rank - 1}, got {axis}")
    return axis


def positive_axis(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form of `axis`: counted from the front."""
    axis, rank = attrs["axis"], types[0].rank
    if not -rank <= axis < rank:
        raise GraphError(f"wanted an axis from {-rank} to {rank - 1}, got {axis}")
    return {**attrs, "axis": axis % rank}


def kept(types: Types, attrs: Attrs) -> Shape:
    """The operand's, with size 1 at the axis."""
    axis = check_axis(attrs["axis"], types[0].rank)
    shape = types[0].shape
    return Shape((*shape[:axis], Dim(1), *shape[axis + 1 :]))


def kept_of_some(types: Types, attrs: Attrs) -> Shape:
    """The operand's, with size 1 at the axis, which has at least one element."""
    shape = kept(types, attrs)
    if types[0].shape[attrs["axis"]] == 0:
        raise GraphError(f"wanted at least one element along axis {attrs['axis']}, got {types[0]}")
    return shape
