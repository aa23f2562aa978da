"""Axes in another order: which of them stay neighbours, and where elements lie before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heddle.kernels import sizes
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, product


@dataclass(frozen=True)
class Permutation:
    """The operand's joined `shape` and the `order` of its axes in the result."""

    shape: tuple[Expr, ...]
    order: tuple[int, ...]

    @staticmethod
    def of(spec: Spec) -> Permutation:
        """Drops axes of size 1 and joins those that stay neighbours; one axis is left at least."""
        shape = spec.operands[0].shape
        runs: list[list[int]] = []
        for axis in (axis for axis in spec.attr("permutation") if shape[axis] != 1):
            between = range(runs[-1][-1] + 1, axis) if runs else ()
            if runs and axis > runs[-1][-1] and all(shape[skipped] == 1 for skipped in between):
                runs[-1].append(axis)
            else:
                runs.append([axis])
        if not runs:
            return Permutation((1,), (0,))
        ordered = sorted(runs)
        joined = tuple(product(tuple(shape[axis] for axis in run)) for run in ordered)
        return Permutation(joined, tuple(ordered.index(run) for run in runs))

    @property
    def copies(self) -> bool:
        """Whether the last axis stays last."""
        return self.order[-1] == len(self.order) - 1

    @property
    def outer(self) -> tuple[int, ...]:
        """All axes but the last and, where that moves, the one that becomes last; as in the result.

        Those two span a plane that is turned.
        """
        last = len(self.order) - 1
        return tuple(axis for axis in self.order[:-1] if axis != last)


def offset(shape: tuple[Size, ...], where: Mapping[int, Size]) -> Size:
    """The operand's element at the given coordinates, by axis; others are 0."""
    found: Size = 0
    for axis, coordinate in where.items():
        found = coordinate * sizes.product(shape[axis + 1 :]) + found
    return found


def result_offset(
    order: tuple[int, ...], shape: tuple[Size, ...], where: Mapping[int, Size]
) -> tuple[Size, Size]:
    """The result's element at those coordinates, and the step along the operand's last axis."""
    found: Size = 0
    step: Size = 1
    stride: Size = 1
    for axis in reversed(order):
        if axis == len(shape) - 1:
            step = stride
        elif axis in where:
            found = where[axis] * stride + found
        stride = stride * shape[axis]
    return found, step
