"""The heart of the products: sums of a tile that stay in registers over a whole loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size

ROWS = 12
"""Rows of a tile of two vectors on AVX-512: 24 sums and what is multiplied fill its registers."""


Add = Callable[[Any, Any, Any], Any]
"""`add(left, right, total)`: the total with the product added."""

Split = Callable[[Any], Sequence[Any]]
"""The parts of words of 32 bits, or of numbers, that are multiplied one after another."""


def undivided(words: Any) -> Sequence[Any]:
    """A `Split` with one part."""
    return (words,)


@dataclass(frozen=True)
class Step:
    """What is added in a step along k: a word of a row, in every lane, by a vector of b.

    Attributes:
        sums: The dtype of the sums.
        add: Adds the product of a part of the word by that of the vector.
        part: The dtype of a part of a word.
        parts: How many a word has, and a vector.
        left, right: The parts of a word, and of a vector.
        latency: Cycles from one addition to the next of the same sum.
    """

    sums: str
    add: Add
    part: str = "uint32"
    parts: int = 1
    left: Split = undivided
    right: Split = undivided
    latency: int = 4

    def add_all(self, left: Any, right: Any, total: Any) -> Any:
        """The total with the products of all parts added."""
        for a, b in zip(self.left(left), self.right(right), strict=True):
            total = self.add(a, b, total)
        return total


def rows_of(machine: Machine) -> int:
    """Rows of a tile: 12, or 6 where there are 16 registers."""
    return ROWS if machine.vector_bytes == 64 else ROWS // 2


def copies_of(sums: int, latency: int) -> int:
    """Copies of a few sums that hide an addition's latency, in cycles: two begin in each."""
    return next(copies for copies in (1, 2, 4) if copies == 4 or copies * sums >= 2 * latency)


def add_products(
    sums: Sequence[Any],
    start: Size,
    stop: Size,
    left_at: Callable[[int, Any], Any],
    right_at: Callable[[Any], Sequence[Any]],
    together: int,
    add: Add,
    copies: int | None = None,
    ask: Callable[[Any], None] | None = None,
) -> list[Any]:
    """Adds left[r, k] * right[k, :] to the sums of each row r, for k from `start` to `stop`.

    `left_at(r, k)` is a number in every lane, `right_at(k)` a row of vectors. The sums are in
    row-major order. Steps are written out `together`; there are as many `copies` of the sums, or
    fewer, each of which takes its share of the steps. `ask` is emitted in front of them.
    """

    def step(k: Any, *before: Any) -> list[Any]:
        if ask is not None:
            ask(k)
        right = map(right_at, (k + i for i in range(together)))
        return add_rows(before, k, left_at, right, together if copies is None else copies, add)

    return emit.carry(start, stop, together, sums, step)


def add_rows(
    sums: Sequence[Any],
    k: Any,
    left_at: Callable[[int, Any], Any],
    right: Iterable[Sequence[Any]],
    copies: int,
    add: Add = emit.fma,
) -> list[Any]:
    """Adds left[r, k + i] * right[i] to the sums of each row r, the copies of them in turn.

    `left_at` may give a number for each vector: the same, read several times.
    """
    total = list(sums)
    share = len(total) // copies
    for ahead, row in enumerate(right):
        first = ahead % copies * share
        for r in range(share // len(row)):
            left = left_at(r, k + ahead)
            lefts = left if isinstance(left, list) else [left] * len(row)
            for number, (each, value) in enumerate(zip(lefts, row, strict=True), r * len(row)):
                total[first + number] = add(each, value, total[first + number])
    return total


def merged(sums: Sequence[Any], copies: int) -> list[Any]:
    """The copies of the sums added up."""
    share = len(sums) // copies
    total = list(sums[:share])
    for number, value in enumerate(sums[share:]):
        total[number % share] = total[number % share] + value
    return total
