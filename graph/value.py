"""What the ops of a graph take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import heddle.graph.ops as ops
from heddle.graph.dim import DimLike
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.types import DeviceRef, Shape, TensorType

if TYPE_CHECKING:
    from heddle.graph.graph import Graph

open_graphs: ContextVar[tuple[Graph, ...]] = ContextVar("heddle_open_graphs", default=())
"""The graphs whose `with` blocks are running, the innermost last."""


def current_graph() -> Graph:
    """The graph of the innermost `with` block.

    Raises:
        GraphError: There is none.
    """
    graphs = open_graphs.get()
    if not graphs:
        raise graph_error("wanted a graph, got none: call this in 'with Graph(...)'")
    return graphs[-1]


def _listed(values: Any) -> Any:
    """What can be iterated as a tuple; the op refuses other things."""
    return tuple(values) if isinstance(values, Iterable) else values


class TensorValue:
    """A tensor in a graph: one MLIR value, which alone knows its type.

    Attributes:
        graph: The graph that it belongs to.
        mlir: The MLIR value.
    """

    __slots__ = ("graph", "mlir")

    def __init__(self, graph: Graph, mlir: Any) -> None:
        self.graph = graph
        self.mlir = mlir

    @property
    def type(self) -> TensorType:
        """The dtype, shape and device."""
        return self.graph.type_of(self.mlir)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The dims, outermost first."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.type.shape)

    @property
    def device(self) -> DeviceRef:
        """The device that the tensor lives on."""
        return self.type.device

    @property
    def tensor(self) -> TensorValue:
        """This value: a graph's inputs are read as tensors."""
        return self

    @property
    def T(self) -> TensorValue:  # noqa: N802 - NumPy's name
        """The last two dims exchanged."""
        return ops.transpose(self, -1, -2)

    def transpose(self, dim1: int, dim2: int) -> TensorValue:
        """The dims `dim1` and `dim2` exchanged."""
        return ops.transpose(self, dim1, dim2)

    def permute(self, dims: Iterable[int]) -> TensorValue:
        """The dims in the order of `dims`."""
        return ops.permute(self, _listed(dims))

    def reshape(self, shape: Iterable[DimLike]) -> TensorValue:
        """The same elements in another shape; one size may be -1."""
        return ops.reshape(self, _listed(shape))

    def broadcast_to(self, shape: Iterable[DimLike]) -> TensorValue:
        """The tensor stretched to `shape`."""
        return ops.broadcast_to(self, _listed(shape))

    def cast(self, dtype: DType) -> TensorValue:
        """The tensor in another dtype."""
        return ops.cast(self, dtype)

    def __getitem__(self, index: Any) -> TensorValue:
        return ops.slice_tensor(self, index if isinstance(index, tuple) else (index,))

    def __add__(self, other: Any) -> TensorValue:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> TensorValue:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> TensorValue:
        return ops.sub(self, other)

    def __rsub__(self, other: Any) -> TensorValue:
        return ops.sub(other, self)

    def __mul__(self, other: Any) -> TensorValue:
        return ops.mul(self, other)

    def __rmul__(self, other: Any) -> TensorValue:
        return ops.mul(other, self)

    def __truediv__(self, other: Any) -> TensorValue:
        return ops.div(self, other)

    def __rtruediv__(self, other: Any) -> TensorValue:
        return ops.div(other, self)

    def __floordiv__(self, other: Any) -> TensorValue:
        return ops.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> TensorValue:
        return ops.floor_divide(other, self)

    def __mod__(self, other: Any) -> TensorValue:
        return ops.mod(self, other)

    def __rmod__(self, other: Any) -> TensorValue:
        return ops.mod(other, self)

    def __pow__(self, other: Any) -> TensorValue:
        return ops.pow(self, other)

    def __rpow__(self, other: Any) -> TensorValue:
        return ops.pow(other, self)

    def __and__(self, other: Any) -> TensorValue:
        return self._bitwise_or_logical("and")(self, other)

    def __rand__(self, other: Any) -> TensorValue:
        return self._bitwise_or_logical("and")(other, self)

    def __or__(self, other: Any) -> TensorValue:
        return self._bitwise_or_logical("or")(self, other)

    def __ror__(self, other: Any) -> TensorValue:
        return self._bitwise_or_logical("or")(other, self)

    def __xor__(self, other: Any) -> TensorValue:
        return self._bitwise_or_logical("xor")(self, other)

    def __rxor__(self, other: Any) -> TensorValue:
        return self._bitwise_or_logical("xor")(other, self)

    def _bitwise_or_logical(self, name: str) -> Callable[..., TensorValue]:
        """The op of that name on the bits of integers, or on bools."""
        kind = "bitwise" if self.dtype.is_integer else "logical"
        op: Callable[..., TensorValue] = getattr(ops, f"{kind}_{name}")
        return op

    def __lshift__(self, other: Any) -> TensorValue:
        return ops.left_shift(self, other)

    def __rlshift__(self, other: Any) -> TensorValue:
        return ops.left_shift(other, self)

    def __rshift__(self, other: Any) -> TensorValue:
        return ops.right_shift(self, other)

    def __rrshift__(self, other: Any) -> TensorValue:
        return ops.right_shift(other, self)

    def __matmul__(self, other: Any) -> TensorValue:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> TensorValue:
        return ops.matmul(other, self)

    def __neg__(self) -> TensorValue:
        return ops.neg(self)

    def __invert__(self) -> TensorValue:
        return self._bitwise_or_logical("not")(self)

    def __abs__(self) -> TensorValue:
        return ops.abs(self)

    def __eq__(self, other: Any) -> TensorValue:  # type: ignore[override]
        return ops.equal(self, other)

    def __ne__(self, other: Any) -> TensorValue:  # type: ignore[override]
        return ops.not_equal(self, other)

    def __lt__(self, other: Any) -> TensorValue:
        return ops.less(self, other)

    def __le__(self, other: Any) -> TensorValue:
        return ops.less_equal(self, other)

    def __gt__(self, other: Any) -> TensorValue:
        return ops.greater(self, other)

    def __ge__(self, other: Any) -> TensorValue:
        return ops.greater_equal(self, other)

    __hash__ = object.__hash__
    __array_ufunc__ = None  # `array + value` reaches __radd__ instead of NumPy's element loop

    def __bool__(self) -> bool:
        raise graph_error(
            "a TensorValue has no value while the graph is built: use ops.where instead of 'if'"
        )

    def __array__(self, *_: object, **options: object) -> Any:
        # NumPy would make an array of one object.
        raise TypeError(
            "a TensorValue has no value while the graph is built: use heddle.graph.ops, not NumPy"
        )

    def __iter__(self) -> Any:
        raise graph_error("tensor value: wanted an index or a slice, got an iteration")

    def __repr__(self) -> str:
        return f"TensorValue({self.type})"
