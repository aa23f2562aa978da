"""What an op has to read when of its result only a slice is wanted: a rule for each op.

A rule takes the op and the cut of its result, and returns the cuts of its operands (None: all of
it) and the attributes that change; or None where the slice has to stay behind the op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from heddle.graph.bounds import bounds
from heddle.graph.compiler import module as m
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.types import Shape


@dataclass(frozen=True)
class Axis:
    """`size` elements of an axis of `of`, from `start` on, each `step`-th."""

    start: Dim
    step: int
    size: Dim
    of: Dim

    @property
    def whole(self) -> bool:
        """Whether it is all of the axis, in order."""
        return self.step == 1 and self.start == 0 and self.size == self.of

    @property
    def halves(self) -> bool:
        """Whether at most half of the axis is left, as far as is known."""
        size, of = self.size.static, self.of.static
        return size is not None and (of is None or 2 * size <= of)

    @staticmethod
    def all(dim: Dim) -> Axis:
        """All of an axis."""
        return Axis(Dim(0), 1, dim, dim)


Cut = tuple[Axis, ...]
Found = tuple[list["Cut | None"], dict[str, Any]]
Rule = Callable[[Any, Cut], "Found | None"]


def cut_of(operation: Any) -> Cut:
    """The cut that a slice is."""
    attrs, shape = m.attrs(operation), m.tensor(operation.operands[0]).shape
    axes = zip(attrs["starts"], attrs["steps"], attrs["sizes"], shape, strict=True)
    return tuple(Axis(*axis) for axis in axes)


def whole(cut: Iterable[Axis]) -> bool:
    """Whether a cut leaves nothing out."""
    return all(axis.whole for axis in cut)


def sliced(like: Any, value: Any, cut: Cut | None, location: Any) -> Any:
    """The slice of `value`, before `like`, at the line of the slice that it stands for."""
    if cut is None or whole(cut):
        return value
    starts, sizes = Shape(axis.start for axis in cut), Shape(axis.size for axis in cut)
    steps = tuple(axis.step for axis in cut)
    made = m.create(like, "slice", [value], starts=starts, steps=steps, sizes=sizes)
    made.owner.location = location
    return made


def needed(operation: Any, cut: Cut) -> Found | None:
    """What the op's rule finds for a cut of its result; None where no rule is known, too."""
    rule = _elementwise if m.elementwise(operation) else RULES.get(m.name(operation))
    return rule(operation, cut) if rule else None


def _shape(value: Any) -> Shape:
    return m.tensor(value).shape


def _sizes(cut: Sequence[Axis]) -> Shape:
    return Shape(axis.size for axis in cut)


def _along(value: Any, cut: Sequence[Axis]) -> Cut:
    """The cut of an operand that is broadcast to what `cut` is of."""
    shape = _shape(value)
    ends = cut[len(cut) - len(shape) :]
    pairs = zip(shape, ends, strict=True)
    return tuple(axis if dim == axis.of else Axis.all(dim) for dim, axis in pairs)


def _elementwise(operation: Any, cut: Cut) -> Found | None:
    return [_along(value, cut) for value in operation.operands], {}


def _broadcast(operation: Any, cut: Cut) -> Found | None:
    return [_along(operation.operands[0], cut)], {"shape": _sizes(cut)}


def _transpose(operation: Any, cut: Cut) -> Found | None:
    order = m.attrs(operation)["permutation"]
    return [tuple(cut[order.index(axis)] for axis in range(len(order)))], {}


def _reshape(operation: Any, cut: Cut) -> Found | None:
    """Axes in front and behind that stay, and one that several are made of, cut along the first."""
    before, after = _shape(operation.operands[0]), _shape(operation.results[0])
    front = _alike(before, after)
    behind = min(_alike(before[::-1], after[::-1]), len(before) - front, len(after) - front)
    inner = cut[front : len(cut) - behind]
    middle = before[front : len(before) - behind]
    if whole(inner):
        axes = [Axis.all(dim) for dim in middle]
    elif len(middle) == 1 and inner[0].step == 1 and whole(inner[1:]):
        each = prod((axis.of for axis in inner[1:]), start=Dim(1))
        if inner[0].of * each != middle[0]:
            return None  # there are no elements
        axes = [Axis(inner[0].start * each, 1, inner[0].size * each, middle[0])]
    else:
        return None
    last = cut[len(cut) - behind :] if behind else ()
    return [(*cut[:front], *axes, *last)], {"shape": _sizes(cut)}


def _alike(first: Sequence[Dim], second: Sequence[Dim]) -> int:
    """How many dims both begin with."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _along_axis(operation: Any, cut: Cut) -> Found | None:
    """Ops that need all of one axis; other operands are for each element along it."""
    axis = m.attrs(operation).get("axis", len(cut) - 1)
    others: list[Cut | None] = [None] * (len(operation.operands) - 1)
    return ([cut, *others], {}) if cut[axis].whole else None


def _reduce(operation: Any, cut: Cut) -> Found | None:
    axis, shape = m.attrs(operation)["axis"], _shape(operation.operands[0])
    if not cut[axis].whole:
        return None
    return [(*cut[:axis], Axis.all(shape[axis]), *cut[axis + 1 :])], {}


def _concat(operation: Any, cut: Cut) -> Found | None:
    axis = m.attrs(operation)["axis"]
    if not cut[axis].whole:
        return None
    dims = [_shape(value)[axis] for value in operation.operands]
    return [(*cut[:axis], Axis.all(dim), *cut[axis + 1 :]) for dim in dims], {}


def _rope(operation: Any, cut: Cut) -> Found | None:
    """Of the last axis all that is turned is left, in front of what is not."""
    half = Axis.all(_shape(operation.operands[1])[-1])
    start, step, size = cut[-1].start, cut[-1].step, cut[-1].size.static
    if start != 0 or step != 1 or size is None or size % 2 or size < 2 * int(half.size):
        return None
    tables = [_along(value, (*cut[:-1], half)) for value in list(operation.operands)[1:]]
    return [cut, *tables], {}


def _matmul(operation: Any, cut: Cut) -> Found | None:
    a, b = operation.operands
    *leading, row, column = cut
    inner = Axis.all(_shape(a)[-1])
    return [_along(a, (*leading, row, inner)), _along(b, (*leading, inner, column))], {}


def _quantized_matmul(operation: Any, cut: Cut) -> Found | None:
    x, *sides = operation.operands
    *rows, column = cut
    columns = [(column, Axis.all(_shape(value)[-1])) for value in sides]
    return [(*rows, Axis.all(_shape(x)[-1])), *columns], {}


def _gather(operation: Any, cut: Cut) -> Found | None:
    axis, count = m.attrs(operation)["axis"], len(_shape(operation.operands[1]))
    others = (*cut[:axis], *cut[axis + count :])
    return ([None, cut[axis : axis + count]], {}) if whole(others) else None


def _attention(operation: Any, cut: Cut) -> Found | None:
    """Of batches, and of queries: if causal, those at the end, as keys are counted from there."""
    attrs, (_, key, _, *mask) = m.attrs(operation), operation.operands
    head, sequence = (1, 2) if attrs["layout"] == "bhsd" else (2, 1)
    batch, heads, queries = cut[0], cut[head], cut[sequence]
    at_end = queries.step == 1 and queries.start + queries.size == queries.of
    if not heads.whole or not cut[3].whole or (attrs["causal"] and not at_end):
        return None
    keys = (batch, *(Axis.all(dim) for dim in _shape(key)[1:]))
    every = Axis.all(_shape(key)[sequence])
    masks = [_along(each, (batch, heads, queries, every)) for each in mask]
    return [cut, keys, keys, *masks], {}


_EXACT = {
    DType.bfloat16: 1 << 8,
    DType.float16: 1 << 11,
    DType.float32: 1 << 24,
    DType.float64: 1 << 53,
}
"""Up to where a float is each integer: what counts further depends on where it began."""


def _iota(operation: Any, cut: Cut) -> Found | None:
    attrs, (axis,) = m.attrs(operation), cut
    step = m.splat(operation.operands[1])
    if axis.step != 1 or step is None or step != 1:
        return None
    first, dtype = attrs["first"] + axis.start, m.tensor(operation.results[0]).dtype
    last = bounds(first + axis.size, m.ranges(operation.results[0]))[1]
    if dtype.is_float and last > _EXACT[dtype]:
        return None
    return [None, None], {"size": axis.size, "first": first}


RULES: dict[str, Rule] = {
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm", "cumsum"), _along_axis),
    **dict.fromkeys(("sum", "mean", "max", "min", "argmax", "argmin"), _reduce),
    **dict.fromkeys(("matmul", "integer_matmul", "float8_matmul"), _matmul),
    "attention": _attention,
    "broadcast_to": _broadcast,
    "concat": _concat,
    "gather": _gather,
    "iota": _iota,
    "quantized_matmul": _quantized_matmul,
    "reshape": _reshape,
    "rope": _rope,
    "transpose": _transpose,
}
