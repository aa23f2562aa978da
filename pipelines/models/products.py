"""The weights of a model's graph, and products with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from heddle.graph import DeviceRef, DType, Graph, TensorValue, Weight, ops
from heddle.runtime.errors import GraphError


@dataclass(frozen=True)
class Quantization:
    """How the weights of products are held.

    Attributes:
        bits: Those of an element: 8 or 4.
        group: Elements along k with one scale.
        activations: What they are multiplied by: `"float"` or `"int8"` (see `quantized_matmul`).
        floats: What 8 bits are where they are no integers: float8_e4m3fn or float8_e5m2.
        minimums: Whether each group has a minimum, and its integers no sign.
        scales: The dtype of scales and minimums; None: what products multiply.
        ordered: Whether the weight has the order of its elements along k beside it.
    """

    bits: int
    group: int
    activations: str = "float"
    floats: DType | None = None
    minimums: bool = False
    scales: DType | None = None
    ordered: bool = False

    @staticmethod
    def parse(text: str, group: int = 128, activations: str = "float") -> Quantization:
        """The quantization called `"int8"` or `"int4"`."""
        if text not in ("int8", "int4"):
            raise GraphError(f"quantization: wanted int8 or int4, got {text!r}")
        return Quantization(int(text[3:]), group, activations)

    @property
    def dtype(self) -> DType:
        """What the integers, or floats of 8 bits, are held in."""
        return self.floats or (DType.uint8 if self.minimums or self.bits == 4 else DType.int8)

    @property
    def attrs(self) -> dict[str, int | str]:
        """The attributes of a product with such a weight."""
        return {"bits": self.bits, "group": self.group, "activations": self.activations}


@dataclass(frozen=True)
class AsStored:
    """Weights of products are held as a checkpoint has them.

    Attributes:
        activations: What integers are multiplied by: `"float"` or `"int8"`.
    """

    activations: str = "float"


AS_STORED = AsStored()
"""And multiplied by floats."""

Asked: TypeAlias = Quantization | AsStored | Literal["float"]
"""How somebody wants weights held: so, as they are stored, or all in floats."""


@dataclass(frozen=True)
class Rows:
    """Those rows of a weight that are a product's: `chosen` of `total`."""

    chosen: slice
    total: int


class Products:
    """Adds weights to a graph, by their names in the checkpoint, and products with them.

    Args:
        graph: The graph that the weights are added to.
        dtype: What products multiply.
        quantization: How the weights of products are held; None: as they are stored.
        stored: The dtype of each weight in the checkpoint, by name; of others it is `dtype`.
        held: The quantization of products that have one of their own, by name.
        unstored: The dtype of weights that `stored` does not name; None: `dtype`.
    """

    def __init__(
        self,
        graph: Graph,
        dtype: DType,
        quantization: Quantization | None = None,
        stored: Mapping[str, DType] | None = None,
        held: Mapping[str, Quantization] | None = None,
        unstored: DType | None = None,
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self.quantization = quantization
        self.stored = stored or {}
        self.held = held or {}
        self.unstored = unstored or dtype
        self._weights: dict[str, TensorValue] = {}

    def linear(
        self,
        name: str,
        x: TensorValue,
        outputs: int,
        biased: bool = True,
        rows: Rows | None = None,
    ) -> TensorValue:
        """The affine map of x, whose product is in the products' dtype, as float32."""
        product = self.product(name, x, outputs, rows)
        return product + self.vector(f"{name}.bias", outputs, rows) if biased else product

    def product(
        self, name: str, x: TensorValue, outputs: int, rows: Rows | None = None
    ) -> TensorValue:
        """float32 [..., outputs] of x, [..., k], and the weight `name`, or some of its rows."""
        size, total = int(x.shape[-1]), rows.total if rows else outputs
        x = ops.cast(x, self.dtype)
        if held := self.held.get(name, self.quantization):
            weight = [_rows(part, rows) for part in self._quantized(name, (total,), size, held)]
            product = ops.quantized_matmul(self._in_order(name, x, held), *weight, **held.attrs)
        else:
            product = x @ self._rounded(name, (total, size), rows).T
        return ops.cast(product, DType.float32)

    def exact(self, name: str, x: TensorValue, outputs: int, biased: bool) -> TensorValue:
        """As `linear`, with a weight that is never quantized."""
        product = ops.cast(x @ self._rounded(name, (outputs, int(x.shape[-1]))).T, DType.float32)
        return product + self.vector(f"{name}.bias", outputs) if biased else product

    def grouped(
        self,
        name: str,
        x: TensorValue,
        outputs: int,
        offsets: TensorValue,
        rows: Rows | None = None,
    ) -> TensorValue:
        """float32 [rows, outputs] of x, [rows, k], in groups of rows with a weight each."""
        size, total = int(x.shape[-1]), rows.total if rows else outputs
        groups = int(offsets.shape[0]) - 1
        if held := self.held.get(name, self.quantization):
            parts = self._quantized(name, (groups, total), size, held)
            integers, scales, *minimums = (_rows(part, rows) for part in parts)
            product = ops.quantized_grouped_matmul(
                x, integers, scales, offsets, *minimums, **held.attrs
            )
        else:
            weight = self._rounded(name, (groups, total, size), rows)
            product = ops.grouped_matmul(x, weight.T, offsets)
        return ops.cast(product, DType.float32)

    def lookup(self, name: str, places: TensorValue, rows: int, size: int) -> TensorValue:
        """float32 [..., size], the rows at `places` of the weight `name`, [rows, size]."""
        held = self.held.get(name)
        if held is None or held.ordered:
            table = self.weight(f"{name}.weight", rows, size)
            return ops.cast(ops.gather(table, places, axis=0), DType.float32)
        parts = self._quantized(name, (rows,), size, held)
        integers, *sides = (ops.gather(part, places, axis=0) for part in parts)
        scale, *minimum = (ops.unsqueeze(ops.cast(side, DType.float32), -1) for side in sides)
        groups = ops.reshape(_values(integers, held), [*scale.shape[:-1], held.group])
        found = groups * scale + minimum[0] if minimum else groups * scale
        return ops.reshape(found, [*places.shape, size])

    def vector(self, name: str, size: int, rows: Rows | None = None) -> TensorValue:
        """The weight `name`, or some of it, as float32 [size]."""
        weight = self.weight(name, rows.total if rows else size)
        return ops.cast(weight[rows.chosen] if rows else weight, DType.float32)

    def weight(self, name: str, *shape: int) -> TensorValue:
        """The weight `name` as it is stored; tied embeddings are asked for twice."""
        return self._added(name, self.stored.get(name, self.unstored), shape)

    def _rounded(self, name: str, shape: tuple[int, ...], rows: Rows | None = None) -> TensorValue:
        """The weight of the product `name` in the products' dtype."""
        return ops.cast(_rows(self.weight(f"{name}.weight", *shape), rows), self.dtype)

    def _quantized(
        self, name: str, before: tuple[int, ...], size: int, held: Quantization
    ) -> list[TensorValue]:
        """Integers, scales and, where they are held so, minimums of `name`, [*before, ...]."""
        if size % held.group:
            raise GraphError(
                f"{name}: wanted inputs in whole groups of {held.group}, got {size}; choose "
                "another group"
            )
        integers = self._added(f"{name}.integers", held.dtype, (*before, size * held.bits // 8))
        sides = ("scales", "minimums") if held.minimums else ("scales",)
        dtype, shape = held.scales or self.dtype, (*before, size // held.group)
        return [integers, *(self._added(f"{name}.{side}", dtype, shape) for side in sides)]

    def _in_order(self, name: str, x: TensorValue, held: Quantization) -> TensorValue:
        """The elements of x along k in the order that the weight's have."""
        if not held.ordered:
            return x
        order = self._added(f"{name}.order", DType.int64, (int(x.shape[-1]),))
        return ops.gather(x, order, axis=-1)

    def _added(self, name: str, dtype: DType, shape: tuple[int, ...]) -> TensorValue:
        """The weight, which the graph has once; parts of one ask for it several times."""
        if name not in self._weights:
            weight = Weight(name, dtype, shape, DeviceRef.CPU())
            self._weights[name] = self.graph.add_weight(weight)
        return self._weights[name]


def _rows(weight: TensorValue, rows: Rows | None) -> TensorValue:
    """Some rows of [n, k], or of each [n, k] of a stack."""
    return weight[..., rows.chosen, :] if rows else weight


def _values(integers: TensorValue, held: Quantization) -> TensorValue:
    """What the integers of a weight are, or its floats of 8 bits, as float32 [..., k]."""
    if held.bits == 8:
        return ops.cast(integers, DType.float32)
    halves = ops.stack([integers & 15, integers >> 4], axis=-1)
    found = ops.cast(halves, DType.float32) - (0 if held.minimums else 8)
    return ops.reshape(found, [*integers.shape[:-1], integers.shape[-1] * 2])


def scaled(x: TensorValue, factor: float) -> TensorValue:
    """`x * factor`; x where that is 1."""
    return x if factor == 1 else x * factor
