"""Conditions that depend on positions alone: which keys come too late, or are too far behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.graph.attributes import constant_array
from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.reading import made, number
from heddle.graph.compiler.specs import source
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.types import Shape
from heddle.kernels.mlir import ir

HIDDEN = -1e9
"""A number in the place of a score, or added to it, that hides it: no score comes near."""

MOST_TERMS = 6
"""How deep positions are looked for in sums."""


@dataclass(frozen=True)
class Band:
    """Keys that come no later than a query, and of these the last `window`, if that is not 0."""

    causal: bool = False
    window: int = 0

    def both(self, other: Band) -> Band:
        """What is in both bands."""
        windows = [each.window for each in (self, other) if each.window]
        return Band(self.causal or other.causal, min(windows, default=0))


def band_of(mask: Any, scores: Shape, seen: bool) -> Band | None:
    """The band of scores [..., queries, keys] that `mask` leaves; None where it is none.

    A mask of numbers is added to them; one of bools says what is `seen`, or what is not.
    """
    shape = m.tensor(mask).shape
    if shape[-2:] != scores[-2:] or any(dim != 1 for dim in shape[:-2]):
        return None
    constant = made(mask, "constant")
    if constant is not None:
        return _drawn(constant, seen)
    comparison = made(mask, *_COMPARED)
    if comparison is None:
        return None
    terms = [_affine(value) for value in comparison.operands]
    if terms[0] is None or terms[1] is None:
        return None
    flipped, strict = _COMPARED[m.name(comparison)]
    distance = terms[1] - terms[0] if flipped else terms[0] - terms[1]
    at_most = _Affine(distance.row, distance.column, distance.rest + int(strict))
    if not seen:
        at_most = _Affine(-at_most.row, -at_most.column, 1 - at_most.rest)
    return _between(at_most, scores)


_COMPARED = {
    "less": (False, True),
    "less_equal": (False, False),
    "greater": (True, True),
    "greater_equal": (True, False),
}
"""As `a - b <= 0`: whether a and b change places, and whether one is added to the left side."""


def _drawn(constant: Any, seen: bool) -> Band | None:
    """The band of a constant, element by element."""
    dense = constant.attributes["value"]
    if not isinstance(dense, ir.DenseElementsAttr):
        return None
    array = constant_array(dense)
    array = array.reshape(array.shape[-2:])
    if array.dtype == bool:
        inside = array if seen else ~array
    elif np.all((array == 0) | (array.astype(np.float64) <= HIDDEN)):
        inside = array == 0
    else:
        return None
    queries, keys = inside.shape
    if not queries:
        return None
    window = int(inside[-1].sum())
    late = np.tri(queries, keys, keys - queries, dtype=bool)
    near = late & ~np.tri(queries, keys, keys - queries - window, dtype=bool)
    if np.array_equal(inside, late):
        return Band(causal=True)
    return Band(causal=True, window=window) if np.array_equal(inside, near) and window else None


def _between(distance: _Affine, scores: Shape) -> Band | None:
    """The band where `distance`, of a query and a key, is at most 0."""
    queries, keys = scores[-2:]
    before = keys - queries
    row = distance.row if queries != 1 else -distance.column  # the only one is row 0
    if (row, distance.column) == (-1, 1) and -distance.rest == before:
        return Band(causal=True)
    if (row, distance.column) == (1, -1):
        window = (1 + before - distance.rest).static
        return Band(window=window) if window is not None and window > 0 else None
    return None


@dataclass(frozen=True)
class _Affine:
    """`row * i + column * j + rest` at [..., i, j]."""

    row: int
    column: int
    rest: Dim

    def __add__(self, other: _Affine) -> _Affine:
        return _Affine(self.row + other.row, self.column + other.column, self.rest + other.rest)

    def __sub__(self, other: _Affine) -> _Affine:
        return self + -other

    def __neg__(self) -> _Affine:
        return _Affine(-self.row, -self.column, -self.rest)


def _affine(value: Any, most: int = MOST_TERMS) -> _Affine | None:
    """What `value` is of its last two indices, if it is integers that count and do not wrap."""
    value, dtype = source(value), m.tensor(value).dtype
    if dtype not in (DType.int32, DType.int64) or not most:
        return None
    known, operation = number(value), m.owner(value)
    if known is not None:
        return _Affine(0, 0, _whole(int(known)))
    name = m.name(operation) if operation is not None else ""
    if name == "iota":
        return _counted(operation)
    operands = [] if operation is None else list(operation.operands)
    if name == "reshape":
        shapes = m.tensor(operands[0]).shape, m.tensor(value).shape
        return _along(_affine(operands[0], most - 1), *shapes)
    if name not in ("add", "sub", "neg", "cast"):
        return None
    terms = [_affine(operand, most - 1) for operand in operands]
    if any(term is None for term in terms):
        return None
    if name == "add":
        return terms[0] + terms[1]  # type: ignore[operator]
    if name == "sub":
        return terms[0] - terms[1]  # type: ignore[operator]
    return -terms[0] if name == "neg" else terms[0]  # type: ignore[operator]


def _counted(iota: Any) -> _Affine | None:
    start, step = map(number, iota.operands)
    attrs = m.attrs(iota)
    if start is None or step != 1:
        return None
    column = 0 if attrs["size"] == 1 else 1
    return _Affine(0, column, attrs["first"] + _whole(int(start)))


def _whole(number: int) -> Dim:
    """A number, which may be less than 0, as what sizes are added to."""
    return Dim(number) if number >= 0 else -Dim(-number)


def _along(vector: _Affine | None, shape: Shape, result: Shape) -> _Affine | None:
    """A vector that counts, laid along another axis."""
    if vector is None or vector.row or len([dim for dim in shape if dim != 1]) > 1:
        return None
    if not vector.column or (result and result[-1] == shape[-1]):
        return vector
    along_rows = len(result) > 1 and result[-2] == shape[-1] and result[-1] == 1
    return _Affine(vector.column, 0, vector.rest) if along_rows else None
