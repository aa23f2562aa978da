"""What a case is made from: an op with operands, sizes and attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from heddle.graph import Dim, DType, Graph, TensorType, Weight
from heddle.graph.ops import ROWS, OpRow
from heddle.graph.ops.build import build
from heddle.graph.ops.row import Cost
from heddle.runtime.errors import GraphError

Sizes = Mapping[str, int]
_MULTIPLES = re.compile(r"\b([a-z]\w*)//(\w+)")
"""Sizes of which a dim is a part."""

_Value = TypeVar("_Value")

Attrs = Callable[[Sizes, DType], dict[str, Any]]


@dataclass(frozen=True)
class Operand:
    """An operand: its dims, `"m k//2"`, and its `dtype` where it is not the workload's.

    `weight`: bound at load, where its kernel may pack it. `values`: how its elements are drawn
    (see `heddle.pipelines.bench.data`); indices are below the size that is named in `below`, rows
    have its length.
    """

    dims: str
    dtype: str = ""
    weight: bool = False
    values: str = "normal"
    below: str = ""


@dataclass(frozen=True)
class Workload:
    """A kernel to time: the op, its operands, and the default sizes (each may have several).

    `products` is what it multiplies, where that is not the operands' dtype. `takes` are the numbers
    of the operands that the op takes, where it takes one of them twice.
    """

    name: str
    op: str
    operands: tuple[Operand, ...]
    sizes: Mapping[str, tuple[int, ...]]
    attrs: Attrs = field(default=lambda sizes, dtype: {})
    products: str = ""
    takes: tuple[int, ...] = ()

    @property
    def row(self) -> OpRow:
        """The op's row."""
        return ROWS[self.op]

    def arguments(self, values: Sequence[_Value]) -> list[_Value]:
        """What the op takes, given something for each operand."""
        return [values[number] for number in self.takes or range(len(values))]

    def types(self, sizes: Sizes, dtype: DType) -> list[TensorType]:
        """The operands' types; raises GraphError where a size is no multiple, as a dim wants it."""
        for operand in self.operands:
            for size, divisor in _MULTIPLES.findall(operand.dims):
                by = int(Dim(divisor).evaluate(sizes))
                if by == 0:
                    raise GraphError(f"{divisor}: wanted at least 1, got 0")
                if sizes[size] % by:
                    name = divisor if divisor.isdecimal() else f"{divisor} = {by}"
                    raise GraphError(f"{size}: wanted a multiple of {name}, got {sizes[size]}")
        return [
            TensorType(
                DType[operand.dtype] if operand.dtype else dtype,
                [Dim(dim).evaluate(sizes) for dim in operand.dims.split()],
            )
            for operand in self.operands
        ]

    def canonical(self, sizes: Sizes, dtype: DType) -> dict[str, Any]:
        """All attributes in the form that the dialect holds."""
        given = {attr.name: attr.default for attr in self.row.attrs} | self.attrs(sizes, dtype)
        types = self.arguments(self.types(sizes, dtype))
        return self.row.canonical(types, given) if self.row.canonical else given

    def result(self, sizes: Sizes, dtype: DType) -> TensorType:
        """The result's type; raises GraphError where the op does not take the dtype or a size."""
        types = self.arguments(self.types(sizes, dtype))
        return self.row.infer(types, self.canonical(sizes, dtype))

    def cost(self, sizes: Sizes, dtype: DType) -> Cost:
        """What the op moves and computes."""
        types = self.arguments(self.types(sizes, dtype))
        attrs = self.canonical(sizes, dtype)
        return self.row.cost(types, attrs, self.row.infer(types, attrs))

    def graph(self, sizes: Sizes, dtype: DType) -> Graph:
        """The graph with this one op; weights are called `w0`, `w1`, ..."""
        pairs = list(zip(self.operands, self.types(sizes, dtype), strict=True))
        with Graph(self.name, [type for operand, type in pairs if not operand.weight]) as graph:
            inputs = iter(graph.inputs)
            values = []
            for operand, type in pairs:
                if operand.weight:
                    weight = Weight(f"w{len(graph.weights)}", type.dtype, type.shape)
                    values.append(graph.add_weight(weight))
                else:
                    values.append(next(inputs))
            arguments = tuple(self.arguments(values))
            graph.output(build(self.row, arguments, self.attrs(sizes, dtype)))
        return graph

    def dtypes(self) -> list[str]:
        """The names of the dtypes that the op takes; that of its operands where all are fixed."""
        if all(operand.dtype for operand in self.operands):
            return [self.operands[0].dtype]
        sizes = {name: values[0] for name, values in self.sizes.items()}
        found = []
        for dtype in DType:
            try:
                self.result(sizes, dtype)
            except GraphError:
                continue
            found.append(dtype.name)
        return found
