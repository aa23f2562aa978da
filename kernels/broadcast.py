"""Broadcasting as a kernel sees it: few axes, and for each input the ones along which it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heddle.kernels import sizes
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Operand, fold


@dataclass(frozen=True)
class Layout:
    """An iteration shape with neighbouring axes joined where no input tells them apart.

    Attributes:
        shape: The joined sizes, at least one; the last axis is the vector's.
        moves: For each input and axis, whether it advances there (else it is broadcast).
    """

    shape: tuple[Expr, ...]
    moves: tuple[tuple[bool, ...], ...]

    @property
    def rows(self) -> tuple[Expr, ...]:
        """The axes before the last."""
        return self.shape[:-1]

    def row_starts(self, row: Size, shape: Sequence[Size]) -> list[Size]:
        """The element offset of each input at the start of the flat `row`.

        `shape` holds the values of `self.shape`.
        """
        coordinates = sizes.split(row, tuple(shape[:-1]))
        starts: list[Size] = []
        for moves in self.moves:
            offset: Size = 0
            stride: Size = shape[-1] if moves[-1] else 1
            for axis in reversed(range(len(shape) - 1)):
                if moves[axis]:
                    offset = coordinates[axis] * stride + offset
                    stride = stride * shape[axis]
            starts.append(offset)
        return starts


def join(shape: Sequence[Expr], inputs: Sequence[Operand], keep_last: bool = False) -> Layout:
    """The layout of `inputs` over the iteration `shape`.

    With `keep_last` the last axis is joined with none: it is the root's own.
    """
    axes: list[tuple[Expr, tuple[bool, ...]]] = []
    last = len(shape) - 1
    for axis, size in enumerate(shape):
        kept = keep_last and axis == last
        if size == 1 and not kept:
            continue
        moves = tuple(_moves(operand, axis - len(shape), size) for operand in inputs)
        if axes and axes[-1][1] == moves and not kept:
            size = fold("mul", axes.pop()[0], size)
        axes.append((size, moves))
    if not axes:
        axes.append((1, (True,) * len(inputs)))
    return Layout(tuple(size for size, _ in axes), tuple(zip(*(m for _, m in axes), strict=True)))


def _moves(operand: Operand, axis: int, size: Expr) -> bool:
    """Whether `operand` has the whole `size` at `axis`, counted from the end."""
    return -axis <= len(operand.shape) and (operand.shape[axis] != 1 or size == 1)
