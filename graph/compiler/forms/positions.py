"""Conditions that depend on positions alone: which keys come too late, or are too far behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.graph.attributes import constant_array
from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.drawn import Drawn, drawn_of
from heddle.graph.compiler.forms.reading import made, number
from heddle.graph.compiler.specs import source
from heddle.graph.dim import MAXIMUM, Dim
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
    drawn = drawn_of(mask)
    if drawn is not None:
        return _drawn(drawn, seen, scores)
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


def _drawn(drawn: Drawn, seen: bool, scores: Shape) -> Band | None:
    """The band of what a constant shows through a window, element by element."""
    inside = drawn.array
    if inside.dtype == bool:
        inside = inside if seen else ~inside
    elif np.all((inside == 0) | (inside.astype(np.float64) <= HIDDEN)):
        inside = inside == 0
    else:
        return None
    rows, columns = inside.shape
    shown = np.flatnonzero(inside.any(axis=1))
    if not len(shown):
        return None
    first, last = int(shown[0]), int(shown[-1])
    # In row i the columns up to i + late, and where there are some in front of them, after i + far.
    late = int(np.flatnonzero(inside[first])[-1]) - first
    skipped = int(np.argmax(inside[last]))
    far = skipped - last - 1 if skipped else None
    wanted = np.tri(rows, columns, late, dtype=bool)
    if far is not None:
        wanted &= ~np.tri(rows, columns, far, dtype=bool)
    if not np.array_equal(inside, wanted):
        return None
    moved = drawn.column - drawn.row
    band = _between(_Affine(-1, 1, moved - late), scores)
    if far is None or band is None:
        return band
    return Band(causal=band.causal, window=late - far)


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
    if name == "constant":
        return _listed(operation)
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


def _listed(constant: Any) -> _Affine | None:
    """Positions of a known number, which were computed already."""
    dense = constant.attributes["value"]
    if not isinstance(dense, ir.DenseElementsAttr):
        return None
    array = constant_array(dense)
    if not array.ndim or not array.size or array.size != np.prod(array.shape[-2:]):
        return None
    table = array.reshape(array.shape[-2:] if array.ndim > 1 else (1, -1))
    if np.abs(table).max() > MAXIMUM:
        return None
    (rows, columns), start = table.shape, int(table[0, 0])
    row = int(table[1, 0]) - start if rows > 1 else 0
    column = int(table[0, 1]) - start if columns > 1 else 0
    counted = start + row * np.arange(rows)[:, None] + column * np.arange(columns)
    return _Affine(row, column, _whole(start)) if np.array_equal(table, counted) else None


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
