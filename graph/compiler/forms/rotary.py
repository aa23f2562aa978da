"""Rotary position embedding, written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from heddle.graph.attributes import constant_array, constant_attr
from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.reading import Found, Product, product
from heddle.graph.compiler.specs import source
from heddle.graph.dim import Dim
from heddle.graph.types import Shape, TensorType
from heddle.kernels.mlir import ir

Maker = Callable[[], Any]
"""Makes a value that rope reads."""

MOST_OPS = 8
"""Ops between where a table gets two like halves and where it is read."""


def of_whole(operation: Any, kind: str) -> Found | None:
    """`x * cos + concat(-b, a) * sin`, a and b the halves of x, tables of two like halves.

    Or `stack(-b, a)` put in rows, of pairs (a, b) of x, and tables of pairs of like elements.
    """
    terms = [_pairs(value) for value in operation.operands]
    for first, second in permutations(terms):
        for (x, cos), (turned, sin) in ((f, s) for f in first for s in second):
            window, (turn, interleaved) = _window(x), _turned(turned)
            if not window or not turn or window != turn.outermost:
                continue
            if not _fit(x, cos, sin):
                continue
            first_table, second_table = (
                _half(operation, source(table), interleaved, MOST_OPS) for table in (cos, sin)
            )
            if first_table and second_table:
                makers = partial(source, x), first_table, second_table
                leaves = x, window.base, cos, sin
                return _found(operation, leaves, makers, interleaved=interleaved)
    return None


def of_halves(operation: Any, kind: str) -> Found | None:
    """`concat(a * cos - b * sin, b * cos + a * sin)`, a and b the halves of x."""
    last = m.tensor(operation.results[0]).rank - 1
    if len(operation.operands) != 2 or m.attrs(operation)["axis"] != last:
        return None
    return _of_parts(operation, *operation.operands, interleaved=False)


def of_pairs(operation: Any, kind: str) -> Found | None:
    """`stack(a * cos - b * sin, b * cos + a * sin)` put in rows, of pairs (a, b) of x."""
    parts = _stacked(operation)
    if parts is None or m.tensor(parts[0]).shape[:-1] != m.tensor(operation.results[0]).shape[:-1]:
        return None
    return _of_parts(operation, *parts, interleaved=True)


def of_part(operation: Any, kind: str) -> Found | None:
    """`concat(rope(a), b)`, a the first elements of x and b those behind them."""
    rope = m.owner(operation.operands[0])
    if rope is None or m.name(rope) != "rope" or len(operation.operands) != 2:
        return None
    a, cos, sin = rope.operands
    first, rest = _window(a), _window(operation.operands[1])
    if first is None or rest is None:
        return None
    x = _Window(first.base, first.start, first.size + rest.size)
    if x.size % 2 or (first, rest) != x.split(first.size):
        return None
    if x.type != m.tensor(operation.results[0]):
        return None  # it is put together along another axis
    makers = partial(x.made, operation), lambda: cos, lambda: sin
    return _found(operation, (x.base, cos, sin), makers, **m.attrs(rope))


def _of_parts(operation: Any, first: Any, second: Any, *, interleaved: bool) -> Found | None:
    """Rope from the two parts of its result."""
    minus, plus = m.owner(first), m.owner(second)
    if minus is None or plus is None or (m.name(minus), m.name(plus)) != ("sub", "add"):
        return None
    kept, taken = (_pairs(value) for value in minus.operands)
    sums = {frozenset(pair) for value in plus.operands for pair in _pairs(value)}
    for (a, cos), (b, sin) in ((k, t) for k in kept for t in taken):
        x = _joined(_window(a), _window(b), interleaved)
        if x is None or not {frozenset((b, cos)), frozenset((a, sin))} <= sums:
            continue
        if _fit(a, cos, sin) and x.type == m.tensor(operation.results[0]):
            makers = partial(x.made, operation), partial(source, cos), partial(source, sin)
            return _found(operation, (x.base, cos, sin), makers, interleaved=interleaved)
    return None


def _found(
    operation: Any, leaves: tuple[Any, ...], makers: tuple[Maker, ...], *, interleaved: bool
) -> Found:
    def make() -> Any:
        operands = [maker() for maker in makers]
        return m.create(operation, "rope", operands, interleaved=interleaved)

    return Found(tuple(map(source, leaves)), make)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """The two factors of `value` in both orders; none where it is something else."""
    found = product(value)
    if len(found.above) != 2 or found != Product(1.0, found.above):
        return []
    return list(permutations(found.above))


def _fit(x: Any, cos: Any, sin: Any) -> bool:
    """Whether the tables, which are alike, are as wide as x, and have no more rows."""
    x, cos, sin = (m.tensor(source(v)) for v in (x, cos, sin))
    alike = cos == sin and cos.dtype is x.dtype and 0 < cos.rank <= x.rank
    rows = zip(cos.shape[-2::-1], x.shape[-2::-1], strict=False)
    fit = all(table in (1, each) for table, each in rows)
    return alike and fit and cos.shape[-1:] == x.shape[-1:]


@dataclass(frozen=True)
class _Window:
    """`size` elements of the last axis of `base`, from `start` on, each `step`-th."""

    base: Any
    start: int
    size: int
    step: int = 1

    @property
    def type(self) -> TensorType:
        """Its type."""
        type = m.tensor(self.base)
        return TensorType(type.dtype, (*type.shape[:-1], self.size), type.device)

    def split(self, size: int) -> tuple[_Window, _Window]:
        """Its first `size` elements, and the others."""
        others = replace(self, start=self.start + size, size=self.size - size)
        return replace(self, size=size), others

    @property
    def outermost(self) -> _Window:
        """The same window of what `base` is a window of."""
        outer = _window(self.base)
        if outer is None or outer.step != 1:
            return self
        return replace(self, base=outer.base, start=outer.start + self.start)

    def made(self, like: Any) -> Any:
        """Its elements, one after another, before `like`."""
        shape, rank = self.type.shape, self.type.rank
        if shape == m.tensor(self.base).shape:
            return self.base
        starts = Shape((*[0] * (rank - 1), self.start))
        return m.create(like, "slice", [self.base], starts=starts, steps=(1,) * rank, sizes=shape)


def _window(value: Any) -> _Window | None:
    """What `value` is a window of, which may be itself."""
    operation, size = m.owner(value), (m.tensor(value).shape or (Dim("none"),))[-1].static
    name = m.name(operation) if operation is not None else ""
    if size is None:
        return None
    if name == "slice":
        return _sliced(operation) or _Window(value, 0, size)
    column = operation.operands[0] if name == "reshape" else None  # type: ignore[union-attr]
    if column is not None and m.tensor(column).shape == (*m.tensor(value).shape, 1):
        return _column(column) or _Window(value, 0, size)
    return _Window(value, 0, size)


def _column(value: Any) -> _Window | None:
    """The window that `value` [..., size, 1] is of what is put in pairs [..., size, 2]."""
    operation = m.owner(value)
    pairs = _sliced(operation) if operation is not None and m.name(operation) == "slice" else None
    above = m.owner(pairs.base) if pairs and pairs.size == 1 else None
    if pairs is None or above is None or m.name(above) != "reshape":
        return None
    x, (*leading, size, two) = above.operands[0], m.tensor(pairs.base).shape
    if two != 2 or size.static is None or m.tensor(x).shape != (*leading, 2 * size):
        return None
    return _Window(x, pairs.start, size.static, 2)


def _sliced(operation: Any) -> _Window | None:
    """The window that a slice of the last axis alone is."""
    attrs, base = m.attrs(operation), operation.operands[0]
    *others, step = attrs["steps"]
    start, size = attrs["starts"][-1].static, attrs["sizes"][-1].static
    whole = attrs["sizes"][:-1] == m.tensor(base).shape[:-1] and set(others) <= {1}
    if not whole or start is None or size is None or step < 1:
        return None
    return _Window(base, start, size, step)


def _joined(first: _Window | None, second: _Window | None, interleaved: bool) -> _Window | None:
    """The window whose halves they are, or whose pairs."""
    if first is None or second is None:
        return None
    step, apart = (2, 1) if interleaved else (1, first.size)
    if first.step != step or second != _Window(first.base, first.start + apart, first.size, step):
        return None
    return _Window(first.base, first.start, 2 * first.size)


def _stacked(reshape: Any) -> list[Any] | None:
    """The first and the second elements of the pairs that lie in the rows of a reshape's result.

    They are [..., size], or columns [..., size, 1] where they are not made of such rows.
    """
    result, stack = m.tensor(reshape.results[0]).shape, m.owner(reshape.operands[0])
    if stack is None or m.name(stack) not in ("concat", "broadcast_to"):
        return None
    wide = m.tensor(stack.results[0]).shape
    if not result or len(wide) < 2 or wide[-1] != 2 or result[-1] != wide[-2] * 2:
        return None
    columns = list(stack.operands)
    if any(m.tensor(value).shape != (*wide[:-1], 1) for value in columns):
        return None
    values = []
    for column in columns:
        above = m.owner(column)
        row = above.operands[0] if above is not None and m.name(above) == "reshape" else column
        values.append(row if m.tensor(row).shape == wide[:-1] else column)
    if m.name(stack) == "broadcast_to":
        return 2 * values
    return values if len(values) == 2 and m.attrs(stack)["axis"] == len(wide) - 1 else None


def _turned(value: Any) -> tuple[_Window | None, bool]:
    """The x of `concat(-b, a)`, or of `stack(-b, a)` put in rows, and which of them it is."""
    operation = m.owner(value)
    name, interleaved = m.owner_name(value), m.owner_name(value) == "reshape"
    parts = _stacked(operation) if interleaved else None
    if name == "concat" and m.attrs(operation)["axis"] == m.tensor(value).rank - 1:
        parts = list(operation.operands)  # type: ignore[union-attr]
    if parts is None or len(parts) != 2:
        return None, interleaved
    negative = product(parts[0])
    if negative != Product(-1.0, negative.above[:1]) or not negative.above:
        return None, interleaved
    first, second = (_column(value) or _window(value) for value in (parts[1], negative.above[0]))
    return _joined(first, second, interleaved), interleaved


def _half(like: Any, value: Any, interleaved: bool, most: int) -> Maker | None:
    """Makes one of two like halves of `value` along its last axis, or one of each like pair."""
    operation, type = m.owner(value), m.tensor(value)
    if operation is None or not most or not type.rank:
        return None
    name, size = m.name(operation), type.shape[-1].static
    if size is None or size % 2:
        return None
    if name == "constant":
        return _half_of_constant(like, operation, interleaved)
    operands = list(operation.operands)
    pairs = _stacked(operation) if interleaved and name == "reshape" else None
    if pairs and pairs[0] == pairs[1]:
        shape = Shape((*type.shape[:-1], size // 2))
        return lambda: m.create(like, "reshape", pairs[:1], shape=shape)
    if name == "concat":
        same = len(operands) == 2 and operands[0] == operands[1]
        along = m.attrs(operation)["axis"] == type.rank - 1
        return partial(source, operands[0]) if same and along and not interleaved else None
    attrs = m.attrs(operation)
    if not m.elementwise(operation) and not _keeps_last_axis(operation):
        return None
    several = operands if m.elementwise(operation) else operands[:1]
    wide = [m.tensor(v).rank and m.tensor(v).shape[-1] != 1 for v in several]
    halves = [
        _half(like, source(v), interleaved, most - 1) if w else partial(source, v)
        for v, w in zip(several, wide, strict=True)
    ]
    if None in halves:
        return None
    if name == "reshape":
        attrs["shape"] = Shape((*type.shape[:-1], size // 2))

    def make() -> Any:
        made = [half() for half in halves if half]
        return m.create(like, name, made + operands[len(made) :], **attrs)

    return make


def _keeps_last_axis(operation: Any) -> bool:
    """Whether the last axis of what an op moves is that of its result."""
    name, attrs = m.name(operation), m.attrs(operation)
    before, after = (m.tensor(v) for v in (operation.operands[0], operation.results[0]))
    if name == "reshape":
        return before.shape[-1:] == after.shape[-1:]
    if name == "transpose":
        return bool(attrs["permutation"][-1] == after.rank - 1)
    return name == "gather" and bool(attrs["axis"] != before.rank - 1)


def _half_of_constant(like: Any, operation: Any, interleaved: bool) -> Maker | None:
    dense, type = operation.attributes["value"], m.tensor(operation.results[0])
    if not isinstance(dense, ir.DenseElementsAttr):
        return None
    array = constant_array(dense)
    size = array.shape[-1] // 2
    first, second = array[..., :size], array[..., size:]
    if interleaved:
        first, second = array[..., ::2], array[..., 1::2]
    if not np.array_equal(first, second):
        return None
    half = TensorType(type.dtype, (*type.shape[:-1], size), type.device)
    attribute = constant_attr(np.ascontiguousarray(first), type.dtype)
    return lambda: m.insert(like, "constant", [], half, {"value": attribute})
