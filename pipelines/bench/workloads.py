"""What can be benched: each workload is an op with operands, sizes and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.graph import DType, Graph, TensorType
    from heddle.graph.ops.row import Cost, OpRow

Sizes = Mapping[str, int]
Attrs = Callable[[Sizes, "DType"], dict[str, Any]]


@dataclass(frozen=True)
class Operand:
    """An operand: `dtype` where it is not the workload's, and its dims, `"m k"`.

    `weight`: bound at load, where its kernel may pack it. `values`: how its elements are drawn
    (see `heddle.pipelines.bench.data`); the indices of `index` are below that size.
    """

    dims: str
    dtype: str = ""
    weight: bool = False
    values: str = "normal"
    below: str = ""


@dataclass(frozen=True)
class Workload:
    """A kernel to time: the op, its operands, and the default sizes (each may have several)."""

    name: str
    op: str
    operands: tuple[Operand, ...]
    sizes: Mapping[str, tuple[int, ...]]
    attrs: Attrs = field(default=lambda sizes, dtype: {})

    @property
    def row(self) -> OpRow:
        """The op's row."""
        from heddle.graph.ops.row import ROWS

        return ROWS[self.op]

    def types(self, sizes: Sizes, dtype: DType) -> list[TensorType]:
        """The operands' types."""
        from heddle.graph import DType, TensorType

        return [
            TensorType(
                DType[operand.dtype] if operand.dtype else dtype,
                [sizes[name] for name in operand.dims.split()],
            )
            for operand in self.operands
        ]

    def result(self, sizes: Sizes, dtype: DType) -> TensorType:
        """The result's type; raises GraphError where the op does not take the dtype or a size."""
        return self.row.infer(self.types(sizes, dtype), self.canonical(sizes, dtype))

    def canonical(self, sizes: Sizes, dtype: DType) -> dict[str, Any]:
        """All attributes in the form that the dialect holds."""
        given = {attr.name: attr.default for attr in self.row.attrs} | self.attrs(sizes, dtype)
        return self.row.canonical(self.types(sizes, dtype), given) if self.row.canonical else given

    def cost(self, sizes: Sizes, dtype: DType) -> Cost:
        """What the op moves and computes, in numbers."""
        types, attrs = self.types(sizes, dtype), self.canonical(sizes, dtype)
        return self.row.cost(types, attrs, self.row.infer(types, attrs))

    def graph(self, sizes: Sizes, dtype: DType) -> Graph:
        """The graph with this one op; weights are called `w0`, `w1`, ..."""
        from heddle.graph import Graph, Weight
        from heddle.graph.ops.build import build

        types = self.types(sizes, dtype)
        pairs = list(zip(self.operands, types, strict=True))
        with Graph(self.name, [type for operand, type in pairs if not operand.weight]) as graph:
            inputs = iter(graph.inputs)
            weights = (
                graph.add_weight(Weight(f"w{i}", type.dtype, type.shape))
                for i, (_, type) in enumerate(p for p in pairs if p[0].weight)
            )
            values = [next(weights if operand.weight else inputs) for operand, _ in pairs]
            graph.output(build(self.row, tuple(values), self.attrs(sizes, dtype)))
        return graph

    def dtypes(self) -> list[str]:
        """The names of the dtypes that the op takes."""
        from heddle.graph import DType
        from heddle.runtime.errors import GraphError

        found = []
        for dtype in DType:
            try:
                self.result({name: values[0] for name, values in self.sizes.items()}, dtype)
            except GraphError:
                continue
            found.append(dtype.name)
        return found


def _axis(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    return {"axis": sizes["axis"]}


def _other_dtype(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    from heddle.graph import DType

    return {"dtype": DType.bfloat16 if dtype is DType.float32 else DType.float32}


def _every_other(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    from heddle.graph import Shape

    shape = Shape((sizes["m"], sizes["n"] // 2))
    return {"starts": (0, 0), "steps": (1, 2), "sizes": shape}


def _rows(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    from heddle.graph import Shape

    return {"shape": Shape((sizes["m"], sizes["n"]))}


_MATRIX = {"m": (4096,), "n": (4096,)}
_HEADS = {"b": (1,), "h": (12,), "s": (128,), "t": (128,), "d": (64,)}


def _tables() -> Iterator[Workload]:
    x, row = Operand("m n"), Operand("n")
    positive = replace(x, values="positive")
    for op in ("neg", "abs", "exp", "tanh", "erf", "relu", "gelu", "silu", "sigmoid"):
        yield Workload(op, op, (x,), _MATRIX)
    for op in ("sqrt", "rsqrt", "log"):
        yield Workload(op, op, (positive,), _MATRIX)
    tanh = Workload("gelu_tanh", "gelu", (x,), _MATRIX, lambda s, d: {"approximate": "tanh"})
    yield tanh
    for op in ("add", "sub", "mul", "maximum", "minimum"):
        yield Workload(op, op, (x, x), _MATRIX)
    yield Workload("div", "div", (x, positive), _MATRIX)
    for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        yield Workload(op, op, (x, x), _MATRIX)
    yield Workload("where", "where", (Operand("m n", "bool"), x, x), _MATRIX)
    yield Workload("cast", "cast", (x,), _MATRIX, _other_dtype)
    for op in ("sum", "mean", "max", "min"):
        yield Workload(op, op, (x,), {**_MATRIX, "axis": (1,)}, _axis)
    yield Workload("softmax", "softmax", (x,), {**_MATRIX, "axis": (1,)}, _axis)
    yield Workload("layer_norm", "layer_norm", (x, row, row), _MATRIX)
    yield Workload("rms_norm", "rms_norm", (x, row), _MATRIX)
    square = {"m": (1, 64, 512), "k": (2048,), "n": (2048,)}
    left = Operand("m k")
    yield Workload("matmul", "matmul", (left, Operand("k n", weight=True)), square)
    yield Workload("matmul_inputs", "matmul", (left, Operand("k n")), square)
    batch = {"b": (12,), "m": (128,), "k": (64,), "n": (128,)}
    yield Workload("matmul_batch", "matmul", (Operand("b m k"), Operand("b k n")), batch)
    heads = (Operand("b h s d"), Operand("b h t d"), Operand("b h t d"))
    yield Workload("attention", "attention", heads, _HEADS)
    yield Workload("attention_causal", "attention", heads, _HEADS, lambda s, d: {"causal": True})
    swap = Workload("transpose", "transpose", (x,), _MATRIX, lambda s, d: {"permutation": (1, 0)})
    yield swap
    yield Workload("broadcast_to", "broadcast_to", (Operand("n"),), _MATRIX, _rows)
    yield Workload("concat", "concat", (x, x), _MATRIX, lambda s, d: {"axis": 1})
    yield Workload("slice", "slice", (x,), _MATRIX, _every_other)
    indices = Operand("m", "int64", values="index", below="rows")
    table = {"rows": (32768,), "m": (4096,), "n": (1024,)}
    yield Workload(
        "gather", "gather", (Operand("rows n"), indices), table, lambda s, d: {"axis": 0}
    )


WORKLOADS = {workload.name: workload for workload in _tables()}
"""Every workload by name."""


def find(name: str) -> Workload:
    """The workload called `name`.

    Raises:
        InputError: There is none; the message lists those that exist.
    """
    if name not in WORKLOADS:
        raise InputError(f"kernel: wanted one of {', '.join(WORKLOADS)}; got {name!r}")
    return WORKLOADS[name]


def grid(workload: Workload, given: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Every combination of sizes, `given` in the place of the defaults.

    Raises:
        InputError: A parameter that the workload does not have; the message lists its own.
    """
    for name in given:
        if name not in workload.sizes:
            own = ", ".join(workload.sizes)
            raise InputError(f"{workload.name}: --set: wanted one of {own}; got {name!r}")
    values = {name: given.get(name, default) for name, default in workload.sizes.items()}
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def dtype_of(workload: Workload, name: str) -> DType:
    """The dtype called `name`.

    Raises:
        InputError: The op does not take it; the message lists those that it takes.
    """
    from heddle.graph import DType

    taken = workload.dtypes()
    if name not in taken:
        wanted = ", ".join(taken)
        raise InputError(f"{workload.name}: --dtype: wanted one of {wanted}; got {name!r}")
    return DType[name]
