"""From the ops of a group to the `Spec` of the kernel that computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.collapse import collapse
from heddle.graph.compiler.parts import FREE, Parts
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.kernels import registry
from heddle.kernels.spec import Attr, Body, Expr, Operand, Spec, Step

PRODUCTS = ("matmul", "turned_matmul", "integer_matmul", "float8_matmul", "grouped_matmul")
"""Ops whose kernels read a transposed b as it is."""

STREAMED = ("matmul_packed", "integer_matmul_packed")
"""Ops whose kernels keep results in the cache for who reads them next, if a kernel does."""

SCALED = (
    *("quantized_matmul_packed", "quantized_grouped_matmul_packed"),
    *("rounded_matmul_packed", "rounded_grouped_matmul_packed"),
)
"""Products by panels of weights in 8 or 4 bits, of which each group is scaled."""

WIDE = ("matmul_packed", "grouped_matmul_packed", "quantized_matmul", "quantized_grouped_matmul")
"""Other products that have their sums in float32, for an epilogue that asks for that."""


@dataclass(frozen=True)
class Request:
    """What is asked of a kernel: its spec, the size behind each of `spec.dims`, what it reads.

    `buffers` are the numbers of the spec's buffers among those of the op. `condition` is a size of
    the spec that is 1 for the calls in which it is asked, 0 for others.
    """

    spec: Spec
    dims: tuple[Expr, ...]
    inputs: tuple[Any, ...]
    buffers: tuple[int, ...]
    condition: Expr = 1


def request(parts: Parts) -> Request:
    """The request that computes `parts`."""
    if parts.root is None:
        prologue, inputs = _body(parts.before, parts.results)
        outputs = tuple(_operand(value) for value in parts.results)
        spec = Spec("map", outputs[:1], outputs[0], outputs, (), prologue)
    elif parts.after and m.name(parts.after[0]) == "paged_write":
        spec, inputs = _rotated(parts, parts.root, parts.after[0])
    else:
        spec, inputs = _gated(parts)
    for other in parts.beside:
        joined, more = _gated(other)
        spec = replace(spec, beside=(*spec.beside, joined))
        inputs += more[1:]
    if parts.source:
        feeding, others = _rooted(parts.source, parts.source.root)
        spec = replace(spec, source=feeding)
        inputs = others + inputs[1:]
    spec, dims = _rename(collapse(spec))
    return Request(spec, dims, tuple(inputs), tuple(range(len(spec.buffers))))


def has_kernel(spec: Spec, kind: str) -> bool:
    """Whether a kernel of that kind of target computes it."""
    row = registry.find(spec.op, kind)
    return row is not None and row.supports(spec) is None


def _gated(parts: Parts) -> tuple[Spec, list[Any]]:
    spec, inputs = _rooted(parts, parts.root)
    if parts.gate:
        gate, more = _rooted(parts.gate, parts.gate.root)
        spec = replace(spec, gate=gate)
        inputs += more[1:]
    return spec, inputs


def _rooted(parts: Parts, root: Any) -> tuple[Spec, list[Any]]:
    op, attributes = _ROOTS.get(m.name(root), _without())(root)
    if parts.leaves and op in STREAMED:
        attributes = {**attributes, "leaves": True}
    operands, result = [seen(value, root) for value in root.operands], root.results[0]
    inputs: list[Any] = []
    prologue = epilogue = None
    if parts.before:
        prologue, inputs = _body(parts.before, (operands[0],))
    inputs += operands[1:] if prologue else operands
    outputs = tuple(_operand(value) for value in parts.results)
    if parts.after or parts.results != (result,):
        computed = parts.gate.results if parts.gate else ()
        epilogue, more = _body(parts.after, parts.results, result, computed)
        inputs += more
    made = _operand(result)
    if op in (*WIDE, *SCALED) and result not in parts.results and _widened(result):
        made = replace(made, dtype="float32")
    spec = Spec(
        op,
        tuple(_operand(value) for value in operands),
        made,
        outputs,
        tuple(sorted(attributes.items())),
        prologue,
        epilogue,
        starts=_starts(root),
    )
    return spec, inputs


def _rotated(parts: Parts, keys: Any, values: Any) -> tuple[Spec, list[Any]]:
    """What `passes.join` has put together: two writes, behind rope of keys, then of queries."""
    key, query = (op for op in parts.before if m.name(op) == "rope")
    caches, tables = [keys.operands[0], values.operands[0]], list(keys.operands)[2:]
    new = [key.operands[0], values.operands[1], query.operands[0]]
    inputs = [*caches, *new, *list(key.operands)[1:], *tables]
    outputs = tuple(map(_operand, parts.results))
    attributes = tuple(sorted(m.attrs(key).items()))
    operands = tuple(map(_operand, inputs))
    return Spec("rotate_and_write", operands, outputs[0], outputs, attributes), inputs


def _widened(product: Any) -> bool:
    """Whether it has 16 bits and is only cast to float32: its sums are not rounded on the way."""
    readers = m.users(product)
    return m.tensor(product).dtype.size == 2 and all(
        m.name(reader) == "cast" and m.tensor(reader.results[0]).dtype is DType.float32
        for reader in readers
    )


def _operand(value: Any) -> Operand:
    kind = m.tensor(value)
    return Operand(kind.dtype.name, tuple(dim.expr for dim in kind.shape))


def source(value: Any) -> Any:
    """What a body reads for `value`: broadcasts are seen through."""
    while m.owner_name(value) == "broadcast_to":
        value = m.owner(value).operands[0]  # type: ignore[union-attr]
    return value


def _body(
    ops: Sequence[Any],
    results: Sequence[Any],
    first: Any | None = None,
    last: Sequence[Any] = (),
) -> tuple[Body, list[Any]]:
    """The body of `ops`, and the values that are its inputs.

    `first` is value 0 of an epilogue, `last` are inputs that others compute.
    """
    ops = [op for op in ops if m.name(op) not in FREE]
    start = [] if first is None else [first]
    computed = {op.results[0] for op in ops}
    inputs: list[Any] = []
    for value in [*(operand for op in ops for operand in op.operands), *results]:
        value = source(value)
        known = any(value in values for values in (start, computed, inputs, last))
        if not known and m.splat(value) is None:
            inputs.append(value)
    numbers = {value: i for i, value in enumerate([*start, *inputs, *last])}
    steps: list[Step] = []
    base = len(numbers)

    def number(value: Any) -> int:
        value = source(value)
        if value not in numbers:
            attributes = (("value", m.splat(value)),)
            numbers[value] = base + len(steps)
            steps.append(Step("constant", (), m.tensor(value).dtype.name, attributes))
        return numbers[value]

    for op in ops:
        args = tuple(number(operand) for operand in op.operands)
        numbers[op.results[0]] = base + len(steps)
        steps.append(Step(m.name(op), args, m.tensor(op.results[0]).dtype.name, _step_attrs(op)))
    outputs = tuple(number(value) for value in results)
    return Body(tuple(map(_operand, [*inputs, *last])), tuple(steps), outputs), inputs


def _step_attrs(op: Any) -> tuple[tuple[str, Attr], ...]:
    """The step's attributes; the dtype of a cast is the step's own."""
    found = {key: value for key, value in m.attrs(op).items() if key != "dtype"}
    return tuple(sorted(found.items()))


def _rename(spec: Spec) -> tuple[Spec, tuple[Expr, ...]]:
    """`spec` over `d0`, `d1`, ... in order of first appearance, and what each of them is."""
    dims: dict[Dim, str] = {}

    def size(expr: Expr) -> Expr:
        if isinstance(expr, int):
            return expr
        return dims.setdefault(Dim.from_expr(expr), f"d{len(dims)}")

    def operand(value: Operand) -> Operand:
        return replace(value, shape=tuple(map(size, value.shape)))

    def body(value: Body | None) -> Body | None:
        return value and replace(value, inputs=tuple(map(operand, value.inputs)))

    def renamed(spec: Spec) -> Spec:
        return replace(
            spec,
            operands=tuple(map(operand, spec.operands)),
            result=operand(spec.result),
            starts=tuple(map(size, spec.starts)),
            prologue=body(spec.prologue),
            epilogue=body(spec.epilogue),
            outputs=tuple(map(operand, spec.outputs)),
            beside=tuple(map(renamed, spec.beside)),
            source=spec.source and renamed(spec.source),
            gate=spec.gate and renamed(spec.gate),
        )

    return renamed(spec), tuple(dim.expr for dim in dims)


# The registry's name and attributes of each op that is no step.


def folded_transpose(operation: Any) -> bool:
    """Whether the op exchanges the last two axes, which a matmul can do while reading b."""
    if operation is None or m.name(operation) != "transpose":
        return False
    *leading, second, first = m.attrs(operation)["permutation"]
    rank = len(leading) + 2
    return (*leading, second, first) == (*range(rank - 2), rank - 1, rank - 2)


def seen(value: Any, root: Any) -> Any:
    """The buffer behind operand `value` of `root`: matmuls see through the transpose of b alone."""
    if m.name(root) in PRODUCTS and value == root.operands[1] != root.operands[0]:
        above = m.owner(value)
        if folded_transpose(above):
            return above.operands[0]  # type: ignore[union-attr]
    return value


def _reduce(op: Any) -> tuple[str, dict[str, Attr]]:
    return "reduce", {"kind": m.name(op), **m.attrs(op)}


def _arg(op: Any) -> tuple[str, dict[str, Attr]]:
    return "top_k", {"smallest": m.name(op) == "argmin"}


def _group_offsets(op: Any) -> tuple[str, dict[str, Attr]]:
    return "group_rows", {"kind": "offsets", **m.attrs(op)}


def _group_order(op: Any) -> tuple[str, dict[str, Attr]]:
    attrs = m.attrs(op)
    kind = "places" if attrs["places"] else "order"
    return "group_rows", {"kind": kind, "groups": attrs["groups"]}


def _window(op: Any) -> tuple[str, dict[str, Attr]]:
    kind = {"max_pool": "max", "avg_pool": "mean", "depthwise_conv": "product"}[m.name(op)]
    attrs = {key: value for key, value in m.attrs(op).items() if key != "layout"}
    kernel = attrs.pop("window", None) or attrs.pop("kernel")
    return "window_reduce", {"kind": kind, "kernel": kernel, **attrs}


def _starts(op: Any) -> tuple[Expr, ...]:
    attrs = m.attrs(op) if m.name(op) in ("slice", "iota") else {}
    begins = (attrs["first"],) if "first" in attrs else attrs.get("starts", ())
    return tuple(dim.expr for dim in begins)


def _without(*names: str) -> Callable[[Any], tuple[str, dict[str, Attr]]]:
    """An op whose attributes `names` are already in its shapes."""

    def root(op: Any) -> tuple[str, dict[str, Attr]]:
        return m.name(op), {k: v for k, v in m.attrs(op).items() if k not in names}

    return root


def _ragged(op: Any) -> tuple[str, dict[str, Attr]]:
    """Values may be those that are keys: then they need not be read."""
    latent = {"latent": True} if op.operands[1] == op.operands[2] else {}
    return m.name(op), {**_without("value_size")(op)[1], **latent}


def _matmul(op: Any) -> tuple[str, dict[str, Attr]]:
    fewer = {"precision": "tf32"} if m.attrs(op).get("precision") == "tf32" else {}
    return m.name(op), {"transposed": seen(op.operands[1], op) != op.operands[1], **fewer}


_ROOTS: dict[str, Callable[[Any], tuple[str, dict[str, Attr]]]] = {
    **dict.fromkeys(("sum", "mean", "max", "min"), _reduce),
    **dict.fromkeys(("argmax", "argmin", "top_k_indices"), _arg),  # k is the result's last size
    "softmax": _without("axis"),  # legalize makes it the last
    "iota": _without("size", "first"),
    "random_uniform": _without("size"),
    "slice": _without("sizes", "starts"),
    "group_offsets": _group_offsets,
    "group_order": _group_order,
    "matmul_packed": _without("columns"),
    "grouped_matmul_packed": _without("columns"),
    "window_matmul_packed": _without("columns"),
    **dict.fromkeys(("max_pool", "avg_pool", "depthwise_conv"), _window),
    "integer_matmul_packed": _without("columns"),
    # A kernel takes activations as floats.
    **dict.fromkeys(("quantized_matmul", "quantized_grouped_matmul"), _without("activations")),
    **dict.fromkeys(SCALED, _without("columns", "dtype")),
    "attention": lambda op: ("attention", {**m.attrs(op), "masked": len(op.operands) == 4}),
    **dict.fromkeys(("ragged_attention", "paged_attention"), _ragged),
    **dict.fromkeys(PRODUCTS, _matmul),
    "turned_matmul": lambda op: ("matmul", {**_matmul(op)[1], "turned": True}),
}
