"""Types of the values in a graph, and their MLIR form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from heddle.graph.dim import Dim, DimLike
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.kernels.mlir import ir


@dataclass(frozen=True)
class DeviceRef:
    """A logical device of the graph; which code is made for it is the compile target's matter."""

    kind: str
    id: int = 0

    @staticmethod
    def CPU(id: int = 0) -> DeviceRef:  # noqa: N802 - the name that users of MAX know
        """The host, or its NUMA node `id`."""
        return DeviceRef("cpu", id)

    @staticmethod
    def GPU(id: int = 0) -> DeviceRef:  # noqa: N802
        """The accelerator `id`."""
        return DeviceRef("gpu", id)

    @staticmethod
    def parse(text: str) -> DeviceRef:
        """The inverse of `str`: `"gpu:1"`."""
        kind, _, number = text.partition(":")
        if kind not in ("cpu", "gpu") or not number.isdecimal():
            raise graph_error(f"device: wanted 'cpu:N' or 'gpu:N', got {text!r}")
        return DeviceRef(kind, int(number))

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


class Shape(tuple[Dim, ...]):
    """The dims of a tensor, outermost first; made of ints, names and `Dim`s."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[DimLike] = ()) -> Shape:
        """A shape of `dims`.

        Raises:
            GraphError: They are no sizes, or no list of them.
        """
        if isinstance(dims, str) or not isinstance(dims, Iterable):
            raise graph_error(f"shape: wanted a list of ints, names and Dims, got {dims!r}")
        return tuple.__new__(cls, [dim if isinstance(dim, Dim) else Dim(dim) for dim in dims])

    @property
    def static(self) -> tuple[int, ...] | None:
        """The sizes as numbers, or None where one of them is not known."""
        sizes = tuple(dim.static for dim in self)
        return None if None in sizes else sizes  # type: ignore[return-value]

    @property
    def elements(self) -> Dim:
        """How many elements a tensor of this shape has."""
        total = Dim(1)
        for dim in self:
            total = total * dim
        return total

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"

    __repr__ = __str__


@dataclass(frozen=True, init=False)
class TensorType:
    """The type of a tensor value: `TensorType(DType.float32, ("batch", 384), DeviceRef.CPU())`."""

    dtype: DType
    shape: Shape
    device: DeviceRef

    def __init__(
        self,
        dtype: DType,
        shape: Iterable[DimLike],
        device: DeviceRef | None = None,
    ) -> None:
        if not isinstance(dtype, DType):
            raise graph_error(f"tensor type: wanted a DType, got {dtype!r}")
        if device is not None and not isinstance(device, DeviceRef):
            raise graph_error(f"tensor type: wanted a DeviceRef, got {device!r}")
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape if isinstance(shape, Shape) else Shape(shape))
        object.__setattr__(self, "device", device or DeviceRef("cpu", 0))

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape} on {self.device}"

    def to_mlir(self) -> Any:
        """`tensor<?x384xf32, {device = "cpu:0", dims = ["batch", "384"]}>` in the current context.

        Fully static types carry the device alone.
        """
        encoding = {"device": ir.StringAttr.get(str(self.device))}
        sizes: Any = self.shape.static
        if sizes is None:
            unknown = ir.ShapedType.get_dynamic_size()
            sizes = [unknown if dim.static is None else dim.static for dim in self.shape]
            texts = [ir.StringAttr.get(str(dim)) for dim in self.shape]
            encoding["dims"] = ir.ArrayAttr.get(texts)
        element = self.dtype.to_mlir()
        here = ir.Location.unknown()
        return ir.RankedTensorType.get(sizes, element, ir.DictAttr.get(encoding), loc=here)

    @staticmethod
    def from_mlir(mlir_type: Any) -> TensorType:
        """The inverse of `to_mlir`.

        Raises:
            GraphError: Another type, or an encoding that is missing or says something else.
        """
        text = str(mlir_type)
        found = _known.get(text)
        if found is None:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            found = _known[text] = TensorType._read(mlir_type)
        return found

    @staticmethod
    def _read(mlir_type: Any) -> TensorType:
        form = "tensor<..., {device = ..., dims = [...]}>"
        if not isinstance(mlir_type, ir.RankedTensorType):
            raise graph_error(f"type: wanted {form}, got {mlir_type}")
        encoding = mlir_type.encoding
        if not isinstance(encoding, ir.DictAttr) or "device" not in encoding:
            raise graph_error(f"type: wanted {form}, got {mlir_type}")
        sizes = mlir_type.shape
        dims = [Dim(text.value) for text in encoding["dims"]] if "dims" in encoding else None
        unknown = ir.ShapedType.get_dynamic_size()
        if dims is None:
            dims = [Dim(size) for size in sizes if size != unknown]
        if len(dims) != len(sizes) or any(
            size != (unknown if dim.static is None else dim.static)
            for dim, size in zip(dims, sizes, strict=True)
        ):
            raise graph_error(
                f"type: wanted dims that say the sizes of the tensor, got {mlir_type}"
            )
        try:
            dtype = DType.from_mlir(mlir_type.element_type)
        except TypeError as error:
            raise graph_error(error) from None
        return TensorType(dtype, Shape(dims), DeviceRef.parse(encoding["device"].value))


_known: dict[str, TensorType] = {}
"""What `from_mlir` found by the text: passes ask for the same types again and again."""

_MOST_KNOWN = 4096


class BufferType(TensorType):
    """A tensor that the caller owns as memory; as an input, a graph reads it like any tensor."""


@dataclass(frozen=True, init=False)
class Weight:
    """A tensor that is supplied when the model is loaded; its shape is static."""

    name: str
    dtype: DType
    shape: Shape
    device: DeviceRef

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: Iterable[DimLike],
        device: DeviceRef | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise graph_error(f"weight: wanted a name, got {name!r}")
        type = TensorType(dtype, shape, device)
        object.__setattr__(self, "name", name)
        for field in ("dtype", "shape", "device"):
            object.__setattr__(self, field, getattr(type, field))

    @property
    def type(self) -> TensorType:
        """The type of the weight's value."""
        return TensorType(self.dtype, self.shape, self.device)
