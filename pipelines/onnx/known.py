"""What is computed of sizes while a file is read: shapes that go into Reshape, Expand or Slice.

A size that is not known is a dim, so NumPy computes with arrays of objects. ONNX's integers divide
towards zero and dims towards the smaller number, which is the same where neither is negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from heddle.graph import Dim, DType
from heddle.graph.bounds import bounds, never_negative
from heddle.graph.value import current_graph
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.values import Known, Value, sizes

Compute: TypeAlias = "Callable[[Node, Sequence[Known]], Known | None]"


def of_sizes(node: Node) -> list[Value] | None:
    """The outputs of a node that asks for sizes or computes with them; None for another node."""
    if node.domain:
        return None
    if node.kind in ("Shape", "Size"):
        return [Value(known=_shape(node))]
    given = [value for value in node.values if value is not None]
    if not any(value.has_dims for value in given) or any(value.known is None for value in given):
        return None
    compute = _COMPUTED.get(node.kind)
    if compute is None or (node.kind in _CHOSEN and any(value.has_dims for value in given[1:])):
        return None
    result = compute(node, [_known(value) for value in given])
    if result is None:
        return None
    dtype = given[1 if node.kind == "Where" else 0].dtype
    if node.kind == "Cast":
        dtype = node.dtype("to")
    if result.dtype != object and result.dtype != bool:
        result = result.astype(dtype.to_numpy())
    return [Value(known=result, dtype=dtype)]


def _known(value: Value) -> Known:
    assert value.known is not None
    return value.known


def _shape(node: Node) -> Known:
    """The dims of the input, all of them or from `start` to `end`."""
    value = node.values[0]
    assert value is not None
    dims = value.known.shape if value.known is not None else value.tensor.shape
    if node.kind == "Size":
        total: Any = 1
        for dim in dims:
            total = dim * total
        return sizes([total], ())
    return sizes(list(dims[slice(node["start"], node["end"])]))


def _gather(node: Node, given: Sequence[Known]) -> Known:
    return sizes(np.take(given[0], given[1].astype(np.int64), axis=node["axis"]))


def _concat(node: Node, given: Sequence[Known]) -> Known:
    return sizes(np.concatenate([each.astype(object) for each in given], axis=node["axis"]))


def _unsqueeze(node: Node, given: Sequence[Known]) -> Known:
    axes = node.setting("axes")
    return np.expand_dims(given[0], tuple(axes))


def _squeeze(node: Node, given: Sequence[Known]) -> Known:
    axes = node.setting("axes")
    return np.squeeze(given[0], None if axes is None else tuple(axes))


def _reshape(node: Node, given: Sequence[Known]) -> Known:
    shape = [int(size) for size in given[1]]
    if not node["allowzero"]:
        shape = [given[0].shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return given[0].reshape(shape)


def _slice(node: Node, given: Sequence[Known]) -> Known:
    x = given[0]
    if node.version < 10:
        starts, ends, axes, steps = node["starts"], node["ends"], node["axes"], None
    else:
        starts, ends = node.ints(1, "starts"), node.ints(2, "ends")
        axes, steps = node.ints(3, "axes"), node.ints(4, "steps")
    axes = axes or range(len(starts))
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        before = end < -x.shape[axis] and step < 0
        index[axis] = slice(start, None if before else end, step)
    return x[tuple(index)]


def _cast(node: Node, given: Sequence[Known]) -> Known | None:
    return given[0] if node.dtype("to") in (DType.int32, DType.int64) else None


def _where(node: Node, given: Sequence[Known]) -> Known:
    return sizes(np.where(given[0].astype(bool), *given[1:]))


def _elementwise(function: Callable[[Any, Any], Any]) -> Compute:
    """A function of two sizes, of each element; None from it means that it cannot be told."""

    def compute(node: Node, given: Sequence[Known]) -> Known | None:
        total = given[0]
        for other in given[1:]:
            a, b = np.broadcast_arrays(total, other)
            items = [function(*pair) for pair in zip(a.ravel(), b.ravel(), strict=True)]
            if any(item is None for item in items):
                return None
            total = sizes(items, a.shape)
        return total.astype(bool) if node.kind == "Equal" else total

    return compute


def _divided(a: Any, b: Any) -> Any:
    """ONNX rounds towards zero, dims towards the smaller number: the same without a sign."""
    symbols = current_graph().symbols
    signed = not all(never_negative(_dim(side), symbols) for side in (a, b))
    return None if signed or b == 0 else a // b


def _equal(a: Any, b: Any) -> Any:
    """Whether two sizes are equal, where that is so, or not so, for all that they may be."""
    if a == b:
        return True
    low, high = bounds(_dim(a) - _dim(b), current_graph().symbols)
    return False if low > 0 or high < 0 else None


def _chosen(op: str) -> Callable[[Any, Any], Any]:
    """The larger or the smaller of two sizes."""
    return lambda a, b: Dim.from_expr((op, _dim(a).expr, _dim(b).expr))


def _dim(size: Any) -> Dim:
    return size if isinstance(size, Dim) else Dim(0) + int(size)


def _reduced(node: Node, given: Sequence[Known]) -> Known | None:
    """The product of all sizes."""
    axes = node.setting("axes")
    if given[0].ndim != 1 or axes not in (None, [0], [-1]):
        return None
    total: Any = 1
    for item in given[0]:
        total = item * total
    return sizes([total], (1,) if node["keepdims"] else ())


_CHOSEN = ("Gather", "Slice", "Reshape", "Squeeze", "Unsqueeze")
"""What takes places or axes beside the sizes, which have to be numbers."""

_COMPUTED: dict[str, Compute] = {
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Cast": _cast,
    "Identity": lambda node, given: given[0],
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(_divided),
    "Neg": lambda node, given: sizes(-given[0]),
    "Min": _elementwise(_chosen("min")),
    "Max": _elementwise(_chosen("max")),
    "Equal": _elementwise(_equal),
    "Where": _where,
    "ReduceProd": _reduced,
}
