"""CPU: a matmul reads its right side in panels of 32 columns, made by an op of its own.

Where the right side is a weight, the packing runs once, when the model is loaded. bfloat16 is
packed in pairs and multiplied as it is. Another left side of 16 bits is widened to float32 by a
cast, which joins the kernel that computes it: a matmul reads each of its elements once for each
panel. One row by a right side that is not known before reads that as it lies, as a sum of products.
So do small products of float32 and float64, which stay a matmul: to pack it takes longer than to
multiply it, or its panels would be partly empty.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import folded_transpose
from heddle.graph.compiler.stages import known_at_init
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops.integer import FOURS
from heddle.graph.ops.linear import PAIRS, panels
from heddle.graph.ops.rounded import GROUPS, TOGETHER
from heddle.graph.types import Shape
from heddle.kernels.cpu import matmul
from heddle.kernels.mlir import passmanager

NARROW = (2, 4, 8)
"""Channels of groups that `depthwise_conv` takes: as many as each has results."""

NARROW_DTYPES = (DType.float32, DType.bfloat16)


def pack(module: Any, kind: str) -> None:
    """Rewrites each product as one of panels."""
    if kind != "cpu":
        return
    casts: dict[Any, Any] = {}
    early = known_at_init(module)
    # All before the first one: a new value may be where an erased one was, and equal it.
    chosen = [(operation, _rewrite(operation, early)) for operation in m.operations(module)]
    for operation, rewrite in chosen:
        if rewrite:
            a, above = operation.operands[0], m.owner(operation.operands[1])
            if m.tensor(a).dtype is DType.float16 and a not in casts:
                casts[a] = m.create(operation, "cast", [a], dtype=DType.float32)
            m.replace(operation, rewrite(operation, casts.get(a, a)))
            if above is not None and folded_transpose(above) and not m.users(above.results[0]):
                above.erase()
    # Products with one operand in common pack it once.
    passmanager.PassManager.parse("builtin.module(func.func(cse))").run(module.operation)


def _rewrite(operation: Any, early: set[Any]) -> Callable[[Any, Any], Any] | None:
    rewrite = REWRITES.get(m.name(operation))
    if rewrite is _matmul:
        known = operation.operands[1] in early
        if not known and _is_row(operation):
            return _sum_of_products
        if (turned := _turned_left(operation, early)) is not None:
            return turned
        if _lies_well(operation, early):
            rows, _, columns = _sizes(operation)
            many = rows is None or rows > matmul.FEW
            few = many and columns is not None and columns <= matmul.LINES
            return _along_k if few else _by_rows if known else None
    return rewrite


def _matmul(operation: Any, a: Any) -> Any:
    source, transposed = _behind(operation.operands[1])
    group = PAIRS if m.tensor(a).dtype is DType.bfloat16 else 1
    packed = m.create(operation, "pack_b", [source], transposed=transposed, group=group)
    columns = m.tensor(operation.results[0]).shape[-1]
    return m.create(operation, "matmul_packed", [a, packed], columns=columns)


def _is_row(operation: Any) -> bool:
    """Whether each right side is multiplied by one row."""
    a, b = map(m.tensor, operation.operands)
    return a.rank == b.rank and a.shape[-2] == 1


def _lies_well(operation: Any, early: set[Any]) -> bool:
    """Whether a right side is multiplied where it lies.

    One that is known early stays packed beside others of its left side: they share a kernel.
    """
    a, b = operation.operands
    known, others = b in early, [each for each in m.users(a) if each != operation]
    beside = known and any(
        m.name(each) == "matmul" and each.operands[0] == a and each.operands[1] in early
        for each in others
    )
    turned = not known and folded_transpose(m.owner(operation.operands[1]))
    pays = matmul.pays(_sizes(operation), turned, known)
    return pays and not beside and _are_wide(operation)


def _are_wide(operation: Any) -> bool:
    """Whether both sides are of a dtype that is multiplied where it lies."""
    a, b = (m.tensor(operand).dtype for operand in operation.operands)
    return a is b and a.name in matmul.DTYPES


def _sizes(operation: Any) -> tuple[int | None, int | None, int | None]:
    """Rows by one right side, elements of a row, and columns, where they are known."""
    a, b = map(m.tensor, operation.operands)
    rows = Shape(a.shape[-2:-1] if a.rank == b.rank else a.shape[:-1]).static
    return None if rows is None else prod(rows), a.shape[-1].static, b.shape[-1].static


def _turned_left(operation: Any, early: set[Any]) -> Callable[[Any, Any], Any] | None:
    """How to multiply a transposed left side that is not known before the call; None: it is turned.

    As the right side of a product of few rows, or as it lies.
    """
    a, b = operation.operands
    if a in early or not folded_transpose(m.owner(a)) or m.tensor(a).rank != m.tensor(b).rank:
        return None
    count, k, n = _sizes(operation)
    if count is None or k is None or n is None or not _are_wide(operation):
        return None
    if n <= matmul.FLAT < count and matmul.pays((n, k, count), False, False):
        return _turned
    return _by_columns if count * k * n <= matmul.LATE_LEFT else None


def _turned(operation: Any, a: Any) -> Any:
    """The transposed product of both sides transposed, in turns: a few rows by a as it lies."""
    b, attrs = operation.operands[1], m.attrs(operation)
    above = m.owner(a).operands[0]  # type: ignore[union-attr]
    product = m.create(operation, "matmul", [m.turned(operation, b), above], **attrs)
    return m.turned(operation, product)


def _by_columns(operation: Any, a: Any) -> Any:
    """By a left side as it lies: a row of the product is a column of it."""
    above = m.owner(a).operands[0]  # type: ignore[union-attr]
    return m.create(operation, "turned_matmul", [above, operation.operands[1]])


def _along_k(operation: Any, a: Any) -> Any:
    """By the few columns of a right side as lines, which a product sees behind a transpose.

    No pass behind this one takes two transposes for none.
    """
    b = operation.operands[1]
    if not folded_transpose(m.owner(b)):
        b = m.turned(operation, m.turned(operation, b))
    return m.create(operation, "matmul", [a, b], **m.attrs(operation))


def _by_rows(operation: Any, a: Any) -> Any:
    """By the rows of a right side, which a product does not see behind a reshape."""
    b = operation.operands[1]
    if folded_transpose(m.owner(b)):
        b = m.create(operation, "reshape", [b], shape=m.tensor(b).shape)
    return m.create(operation, "matmul", [a, b], **m.attrs(operation))


def _sum_of_products(operation: Any, a: Any) -> Any:
    source, transposed = _behind(operation.operands[1])
    result = m.tensor(operation.results[0])
    *leading, _, k = m.tensor(a).shape
    wide = DType.float64 if result.dtype is DType.float64 else DType.float32
    if not transposed:
        a = m.create(operation, "reshape", [a], shape=Shape((*leading, k, 1)))
    products = m.create(operation, "mul", [m.cast(operation, value, wide) for value in (a, source)])
    axis = len(leading) + (1 if transposed else 0)
    total = m.create(operation, "sum", [products], axis=axis)
    if transposed:
        total = m.create(operation, "reshape", [total], shape=result.shape)
    return m.cast(operation, total, result.dtype)


def _grouped_matmul(operation: Any, a: Any) -> Any:
    _, b, offsets = operation.operands
    source, transposed = _behind(b)
    group = PAIRS if m.tensor(a).dtype is DType.bfloat16 else 1
    packed = m.create(operation, "pack_b", [source], transposed=transposed, group=group)
    columns = m.tensor(operation.results[0]).shape[-1]
    return m.create(operation, "grouped_matmul_packed", [a, packed, offsets], columns=columns)


def _window_matmul(operation: Any, a: Any) -> Any:
    """By panels; narrow groups, which would leave most of a panel empty, channel by channel."""
    weights, attrs = operation.operands[1], m.attrs(operation)
    groups, n, k = m.tensor(weights).shape
    dtype, taps = m.tensor(a).dtype, prod(attrs["kernel"])
    alike = m.tensor(weights).dtype is dtype  # not float16, whose other side is float32 by now
    if alike and groups != 1 and k == n * taps and n.static in NARROW and dtype in NARROW_DTYPES:
        pairs = (k // PAIRS, PAIRS) if dtype is DType.bfloat16 else (k,)
        lines = m.create(operation, "reshape", [weights], shape=Shape((groups * n, *pairs)))
        order = (1, 0, *range(2, 1 + len(pairs)))
        lines = m.create(operation, "transpose", [lines], permutation=order)
        return m.create(operation, "depthwise_conv", [a, lines], **attrs)
    group = PAIRS if dtype is DType.bfloat16 else 1
    packed = m.create(operation, "pack_b", [weights], transposed=True, group=group)
    return m.create(operation, "window_matmul_packed", [a, packed], columns=n, **attrs)


def _quantized_matmul(operation: Any, a: Any) -> Any:
    """Of one matrix, or of one for each group of rows, whose offsets come behind."""
    _, weight, scales, *offsets = operation.operands
    attrs = m.attrs(operation)
    if attrs["bits"] == 4:
        packed = m.create(operation, "pack_int4", [weight])
    else:
        packed = m.create(operation, "pack_b", [weight], transposed=True, group=TOGETHER)
    shares = m.create(operation, "pack_b", [scales], transposed=True, group=1)
    result, group = m.tensor(operation.results[0]), attrs["group"]
    name = f"{m.name(operation)}_packed"
    if attrs["activations"] == "int8":
        name = name.replace("quantized", "rounded")
        a = m.create(operation, "round_rows", [a], bits=attrs["bits"], group=group)
    operands, said = [a, packed, shares, *offsets], {"group": group, "dtype": result.dtype}
    return m.create(operation, name, operands, columns=result.shape[-1], **said)


def _integer_matmul(operation: Any, a: Any) -> Any:
    """By uint8 alone: int8 is raised by 128, which adds 128 times b's columns to the product."""
    source, transposed = _behind(operation.operands[1])
    packed = m.create(operation, "pack_b", [source], transposed=transposed, group=FOURS)
    columns = m.tensor(operation.results[0]).shape[-1]
    raised = m.tensor(a).dtype is DType.int8
    if raised:
        bits = m.create(operation, "cast", [a], dtype=DType.uint8)
        a = m.create(operation, "add", [bits, m.number(operation, 128, DType.uint8)])
    product = m.create(operation, "integer_matmul_packed", [a, packed], columns=columns)
    if not raised:
        return product
    wide = m.create(operation, "cast", [source], dtype=DType.int32)
    rank = m.tensor(source).rank
    sums = m.create(operation, "sum", [wide], axis=rank - (1 if transposed else 2))
    if transposed:
        *leading, n, _ = m.tensor(sums).shape
        sums = m.create(operation, "reshape", [sums], shape=Shape((*leading, 1, n)))
    excess = m.create(operation, "mul", [sums, m.number(operation, 128, DType.int32)])
    return m.create(operation, "sub", [product, excess])


def _float8_matmul(operation: Any, a: Any) -> Any:
    """By bfloat16, which holds both sides exactly: b is widened while it is multiplied.

    That takes whole groups along k, and one b for all; another b is widened before it is packed.
    """
    source, transposed = _behind(operation.operands[1])
    a = m.create(operation, "cast", [a], dtype=DType.bfloat16)
    columns, k = m.tensor(operation.results[0]).shape[-1], m.tensor(a).shape[-1].static
    if m.tensor(source).rank > 2 or not k or k % GROUPS:
        wide = m.create(operation, "cast", [source], dtype=DType.bfloat16)
        packed = m.create(operation, "pack_b", [wide], transposed=transposed, group=PAIRS)
        product = m.create(operation, "matmul_packed", [a, packed], columns=columns)
        return m.create(operation, "cast", [product], dtype=DType.float32)
    packed = m.create(operation, "pack_b", [source], transposed=transposed, group=TOGETHER)
    one, shares = m.number(operation, 1.0, DType.float32), panels(columns, Dim(1), 1)
    scales = m.create(operation, "broadcast_to", [one], shape=shares)
    operands, said = [a, packed, scales], {"group": k, "dtype": DType.float32}
    return m.create(operation, "quantized_matmul_packed", operands, columns=columns, **said)


def _behind(b: Any) -> tuple[Any, bool]:
    """What is packed for the right side `b`, and whether it is `b` transposed."""
    above = m.owner(b)
    transposed = folded_transpose(above)
    return (above.operands[0] if transposed else b), transposed  # type: ignore[union-attr]


REWRITES: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
    "window_matmul": _window_matmul,
    "integer_matmul": _integer_matmul,
    "float8_matmul": _float8_matmul,
    **dict.fromkeys(("quantized_matmul", "quantized_grouped_matmul"), _quantized_matmul),
}
