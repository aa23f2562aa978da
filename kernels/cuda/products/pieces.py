"""How the clusters of a persistent kernel share tiles: whole ones, then the rest by steps of k.

Stream-K with data-parallel waves in front (Osama et al., arXiv:2301.03598): of T tiles each of G
clusters makes T // G whole ones. The rest is one line of units, a tile's steps after another's,
which is cut into equal parts where that pays: a part covers pieces of one or two tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.mlir import dialect

arith = dialect("arith")

LEAST = 8
"""Steps of a part, at least."""

COST = 32
"""What it takes to bring a tile's pieces together, in steps of a line."""


@dataclass(frozen=True)
class Piece:
    """`length` steps of a tile from step `start` on, which may be none.

    Attributes:
        rest: Which of the tiles that are left over it belongs to.
        number: Which of all pieces of the rest it is.
        first, count: The numbers of all pieces of its tile.
    """

    tile: Any
    start: Any
    length: Any
    rest: Any
    number: Any
    first: Any
    count: Any


class Pieces:
    """The pieces of this cluster.

    Args:
        tiles, steps: How many tiles there are, and steps of each, at least one.
        cluster: Blocks of a cluster.
        cost: How many steps a cut has to save; None: tiles are not cut.
        kept: Whether (an i1) what tiles share is in the L2 cache for pieces, too.
    """

    def __init__(self, tiles: Any, steps: Any, cluster: int, cost: int | None, kept: Any) -> None:
        self._steps, self._cut = steps, cost is not None
        self._groups, self._own = (word(x) // cluster for x in (_block.blocks(), _block.block()))
        self._whole = tiles // self._groups
        rest = tiles - self._whole * self._groups
        self._units, parts = rest * steps, rest
        if cost is not None:
            most = emit.minimum(self._groups, self._units // LEAST)
            most = emit.maximum(most, rest)
            saves = emit.compare("greater", (most - rest) * steps, most * cost)
            parts = emit.select(saves & kept, most, rest)
        self._parts = emit.maximum(parts, 1)
        self._begin, self._end = (self._start(self._own + i) for i in range(2))

    @property
    def count(self) -> Any:
        """How many pieces there are, empty ones too."""
        return self._whole + (2 if self._cut else 1)

    def __getitem__(self, number: Any) -> Piece:
        is_whole = emit.compare("less", number, self._whole)
        seam = emit.minimum((self._begin // self._steps + 1) * self._steps, self._end)
        is_first = emit.compare("equal", number, self._whole)
        begin = emit.select(is_first, self._begin, seam)
        end = emit.select(is_first, seam, self._end)
        rest = begin // self._steps
        from_first = rest * self._steps
        waves = emit.select(is_whole, number, self._whole) * self._groups
        first = self._owner(from_first)
        return Piece(
            tile=waves + emit.select(is_whole, self._own, rest),
            start=emit.select(is_whole, 0, begin - from_first),
            length=emit.select(is_whole, self._steps, end - begin),
            rest=rest,
            number=self._own + rest,  # One more for each seam between parts or between tiles.
            first=first + rest,
            count=self._owner(from_first + self._steps - 1) - first + 1,
        )

    def _start(self, part: Any) -> Any:
        return emit.minimum(part, self._parts) * self._units // self._parts

    def _owner(self, unit: Any) -> Any:
        """The part with a unit: the last that starts at it or before."""
        return ((unit + 1) * self._parts - 1) // emit.maximum(self._units, 1)


def last_wave(rest: int, steps: int, groups: int, cost: int) -> float:
    """How many steps it takes to make the rest of the tiles, of so many steps each."""
    parts = max(rest, min(groups, rest * steps // LEAST))
    if (parts - rest) * steps > parts * cost:
        return rest * steps / parts + cost
    return steps if rest else 0


def word(size: Any) -> Any:
    """A size as an i32."""
    kind = emit.integer(32)
    if isinstance(size, int):
        return emit.constant(kind, size)
    return size if size.type == kind else arith.trunci(kind, size)


def size(number: Any) -> Any:
    """An i32 as a size."""
    kind = emit.integer(64)
    return number if number.type == kind else arith.extui(kind, number)
