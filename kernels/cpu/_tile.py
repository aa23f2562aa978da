"""The heart of the products: sums of a tile that stay in registers over a whole loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size

ROWS = 12
"""Rows of a tile of two vectors on AVX-512: 24 sums and what is multiplied fill its registers."""


def rows_of(machine: Machine) -> int:
    """Rows of a tile: 12, or 6 where there are 16 registers."""
    return ROWS if machine.vector_bytes == 64 else ROWS // 2


def add_products(
    sums: Sequence[Any],
    start: Size,
    stop: Size,
    left_at: Callable[[int, Any], Any],
    right_at: Callable[[Any], Sequence[Any]],
    together: int = 1,
) -> list[Any]:
    """Adds left[r, k] * right[k, :] to the sums of each row r, for k from `start` to `stop`.

    `left_at(r, k)` is a number in every lane, `right_at(k)` a row of vectors. The sums are in
    row-major order. With `together` there are as many copies of the sums, each of which takes its
    share of the steps.
    """

    def step(k: Any, *before: Any) -> list[Any]:
        after: list[Any] = []
        for ahead in range(together):
            right = right_at(k + ahead)
            rows = len(before) // (together * len(right))
            for r in range(rows):
                left = left_at(r, k + ahead)
                for value in right:
                    after.append(emit.fma(left, value, before[len(after)]))
        return after

    return emit.carry(start, stop, together, sums, step)
