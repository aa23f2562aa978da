"""Rewrites what no kernel takes as it stands into what the kernels do take."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.minimums import without_minimums
from heddle.graph.compiler.specs import folded_transpose
from heddle.graph.dtype import DType
from heddle.graph.ops.rounded import LARGEST, LEAST
from heddle.graph.ops.windows import MOVES
from heddle.graph.types import Shape
from heddle.kernels.mlir import passmanager

MOST_PARTS = 128
"""Operands of one concat; a kernel has at most 256 buffers, those of an epilogue among them."""

QUANTIZED = ("quantized_matmul", "quantized_grouped_matmul")
"""Products by weights in 8 or 4 bits."""


def legalize(module: Any, kind: str) -> None:
    """One rewrite for each op that needs one; the others stay."""
    rewrites = {**REWRITES, **REWRITES_OF.get(kind, {})}
    for operation in m.operations(module):
        rewrite = rewrites.get(m.name(operation))
        value = rewrite(operation) if rewrite else None
        if value is not None:
            m.replace(operation, value)
    # What several of them read in front of them, as products of one left side do, is there once.
    passmanager.PassManager.parse("builtin.module(func.func(cse))").run(module.operation)


def _along_last(operation: Any) -> Any:
    """Along another axis than the last: moved there and back."""
    (x,) = operation.operands
    axis, rank = m.attrs(operation)["axis"], m.tensor(x).rank
    if axis == rank - 1:
        return None
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    moved = m.create(operation, "transpose", [x], permutation=tuple(order))
    value = m.create(operation, m.name(operation), [moved], axis=rank - 1)
    return m.create(operation, "transpose", [value], permutation=tuple(order))


def _concat(operation: Any) -> Any:
    """Of more operands than a kernel has buffers: of several of them each, and those together."""
    parts, axis = list(operation.operands), m.attrs(operation)["axis"]
    if len(parts) <= MOST_PARTS:
        return None
    while len(parts) > 1:
        several = [parts[i : i + MOST_PARTS] for i in range(0, len(parts), MOST_PARTS)]
        parts = [m.create(operation, "concat", together, axis=axis) for together in several]
    return parts[0]


def _matmul(operation: Any) -> Any:
    """B gets a's leading dims or none: kernels do not broadcast them."""
    a, b = operation.operands
    leading = m.tensor(operation.results[0]).shape[:-2]
    shape_a, shape_b = m.tensor(a).shape, m.tensor(b).shape
    wide_a = Shape((*leading, *shape_a[-2:]))
    wide_b = Shape((*leading, *shape_b[-2:]))
    if all(size == 1 for size in shape_b[:-2]):
        wide_b = Shape(shape_b[-2:])
    if (wide_a, wide_b) == (shape_a, shape_b):
        return None
    a, b = (_spread(operation, value, wide) for value, wide in ((a, wide_a), (b, wide_b)))
    return m.create(operation, m.name(operation), [a, b], **m.attrs(operation))


def _matmul_of_panels(operation: Any) -> Any:
    """One column is a sum of products, of which a panel would have 32, and k of 1 products alone.

    Others are as `_matmul` says. Beside other products of its left side it stays one: they share a
    kernel, and a norm in it.
    """
    a, b = operation.operands
    shape, result = m.tensor(b).shape, m.tensor(operation.results[0])
    beside = any(user != operation and m.name(user) == "matmul" for user in m.users(a))
    if 1 not in shape[-2:] or beside:
        return _matmul(operation)
    wide = result.dtype if result.dtype.size > 4 else DType.float32
    above = m.owner(a)
    downwards = shape[-2] != 1 and folded_transpose(above)  # sums, of columns as they lie
    if downwards:
        a = above.operands[0]  # type: ignore[union-attr]
    elif shape[-1] == 1:
        b = m.create(operation, "reshape", [b], shape=Shape((*shape[:-2], 1, shape[-2])))
    terms = m.create(operation, "mul", [m.cast(operation, side, wide) for side in (a, b)])
    if shape[-2] != 1:
        axis = m.tensor(terms).rank - (2 if downwards else 1)
        terms = m.create(operation, "sum", [terms], axis=axis)
    if downwards:
        terms = m.create(operation, "reshape", [terms], shape=result.shape)
    return m.cast(operation, terms, result.dtype)


def _spread(operation: Any, value: Any, shape: Shape) -> Any:
    """`value` in a shape that it broadcasts to, not copied where it lacks dims of 1 alone."""
    if m.tensor(value).shape == shape:
        return value
    alike = m.tensor(value).shape.elements == shape.elements
    return m.create(operation, "reshape" if alike else "broadcast_to", [value], shape=shape)


def _conv(operation: Any) -> Any:
    """Channels last, and as a product: of x itself, channel by channel, or of its windows."""
    x, weights = operation.operands
    attrs = m.attrs(operation)
    if attrs["layout"] == "channels_first":
        return _channels_last(operation)
    groups = attrs["groups"]
    moves = {name: attrs[name] for name in MOVES}
    static = m.tensor(weights).shape.static
    if static is None:
        raise m.RefusalError(operation, f"wanted static weights, got {m.tensor(weights)}")
    n, depth, *kernel = static
    taps = prod(kernel)
    plain = taps == groups == 1 and not any(moves["padding"]) and set(moves["strides"]) == {1}
    if plain:
        matrix = m.create(operation, "reshape", [weights], shape=Shape((n, depth)))
        right = m.turned(operation, matrix)
        return m.create(operation, "matmul", [x, right], precision="full")
    if groups == n and depth == 1:
        matrix = m.create(operation, "reshape", [weights], shape=Shape((n, taps)))
        right = m.turned(operation, matrix)
        return m.create(operation, "depthwise_conv", [x, right], kernel=tuple(kernel), **moves)
    order = (0, *range(2, 2 + len(kernel)), 1)
    if taps > 1:
        weights = m.create(operation, "transpose", [weights], permutation=order)
    shape = Shape((groups, n // groups, taps * depth))
    matrix = m.create(operation, "reshape", [weights], shape=shape)
    return m.create(operation, "window_matmul", [x, matrix], kernel=tuple(kernel), **moves)


def _channels_last(operation: Any) -> Any:
    """The same with channels last, between two transposes; None where they are last."""
    attrs = m.attrs(operation)
    if attrs["layout"] == "channels_last":
        return None
    x, *others = operation.operands
    axes = range(m.tensor(x).rank)
    attrs["layout"] = "channels_last"
    moved = m.create(operation, "transpose", [x], permutation=(0, *axes[2:], 1))
    value = m.create(operation, m.name(operation), [moved, *others], **attrs)
    rewritten = REWRITES[m.name(operation)](m.owner(value))
    if rewritten is not None:
        m.replace(m.owner(value), rewritten)
        value = rewritten
    return m.create(operation, "transpose", [value], permutation=(0, axes[-1], *axes[1:-1]))


def _quantized_matmul(operation: Any) -> Any:
    """Minimums are a product of their own."""
    return _of_nothing(operation) or without_minimums(operation, lambda _: None)


def _quantized_matmul_of_floats(operation: Any) -> Any:
    """Where no kernel multiplies rows in 8 bits; of other rows kernels take minimums."""
    if m.attrs(operation)["activations"] == "float":
        return _of_nothing(operation)
    return _of_nothing(operation) or without_minimums(operation, _rows_as_floats)


def _of_nothing(operation: Any) -> Any:
    """Where k is 0 there are no groups to scale: a product of floats, which writes zeros."""
    x, weight, _, *others = operation.operands
    type = m.tensor(x)
    if type.shape[-1] != 0:
        return None
    right = m.turned(operation, m.cast(operation, weight, type.dtype))
    if m.name(operation) == "quantized_grouped_matmul":
        return m.create(operation, "grouped_matmul", [x, right, others[0]])
    return m.create(operation, "matmul", [x, right], precision="full")


def _rows_as_floats(operation: Any) -> Any:
    """Rows in 8 bits become what they stand for: no kernel multiplies them as integers."""
    x, *others = operation.operands
    attrs, type = m.attrs(operation), m.tensor(x)
    *leading, k = type.shape
    group = attrs["group"]

    def made(op: str, *operands: Any, **attributes: Any) -> Any:
        return m.create(operation, op, operands, **attributes)

    def number(value: float) -> Any:
        return m.number(operation, value, DType.float32)

    x = m.cast(operation, x, DType.float32)
    groups = made("reshape", x, shape=Shape((*leading, k // group, group)))
    largest = made("max", made("abs", groups), axis=len(leading) + 1)
    known = made("greater_equal", largest, number(LEAST))
    inverse = made("where", known, made("div", number(LARGEST), largest), number(0.0))
    # The product in float64, where it is exact: it is rounded once, as on a CPU, halves too.
    wide = (m.cast(operation, side, DType.float64) for side in (groups, inverse))
    integers = m.cast(operation, made("round", made("mul", *wide)), DType.float32)
    scale = made("mul", largest, number(1 / LARGEST))
    scale = made("add", scale, made("mul", largest, number(0.0)))  # NaN where it is not finite
    x = made("reshape", made("mul", integers, scale), shape=type.shape)
    x = m.cast(operation, x, type.dtype)
    return made(m.name(operation), x, *others, **{**attrs, "activations": "float"})


def _scatter(operation: Any) -> Any:
    """Sums and products of 16 bits are computed in 32, and rounded once."""
    x, indices, updates = operation.operands
    attrs, dtype = m.attrs(operation), m.tensor(x).dtype
    if attrs["reduce"] not in ("add", "mul") or not dtype.is_float or dtype.size > 2:
        return None
    wide = [m.cast(operation, value, DType.float32) for value in (x, updates)]
    value = m.create(operation, "scatter", [wide[0], indices, wide[1]], **attrs)
    return m.cast(operation, value, dtype)


REWRITES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("softmax", "argmax", "argmin"), _along_last),
    **dict.fromkeys(("matmul", "integer_matmul", "float8_matmul"), _matmul),
    **dict.fromkeys(("max_pool", "avg_pool"), _channels_last),
    "concat": _concat,
    "conv": _conv,
    "scatter": _scatter,
}

REWRITES_OF: dict[str, dict[str, Callable[[Any], Any]]] = {
    "cpu": {"matmul": _matmul_of_panels, **dict.fromkeys(QUANTIZED, _quantized_matmul)},
    "cuda": dict.fromkeys(QUANTIZED, _quantized_matmul_of_floats),
}
"""Those of one kind of target."""
