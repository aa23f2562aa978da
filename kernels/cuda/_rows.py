"""Kernels over the last axis: a warp for each row that is known to be short, else a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cuda import _block
from heddle.kernels.cuda._frame import THREADS, Frame, Inputs, in_vectors
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold, product

arith = dialect("arith")

_LONGEST_OF_A_WARP = 1024


def group_size(length: Expr) -> int:
    """Threads that share a row of `length`."""
    return _block.WARP if isinstance(length, int) and length <= _LONGEST_OF_A_WARP else THREADS


def grid(shape: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """The grid for the rows of `shape`."""
    rows = product(tuple(shape[:-1]))
    return fold("max", 1, fold("ceildiv", rows, THREADS // group_size(shape[-1]))), 1, 1


def supports_floats(spec: Spec) -> str | None:
    """The floating dtypes, with any body."""
    if not emit.is_float(spec.result.dtype):
        return f"{spec.op} of {spec.result.dtype}"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


class Rows:
    """The rows of a tensor of `shape`, as the group of threads sees them that works on one.

    `length` is that of a row, `member` this thread's number in its group.

    Args:
        frame: The kernel's frame.
        shape: The tensor's shape.
        element: The type that reductions accumulate in.
    """

    def __init__(self, frame: Frame, shape: Sequence[Expr], element: Any) -> None:
        self.length: Size = frame.size(shape[-1])
        self._frame = frame
        self._element = element
        self._rows = frame.size(product(tuple(shape[:-1])))
        self._group = group_size(shape[-1])
        self._reducer = _block.Reducer("partial", self._group, element)
        self.member = _block.thread() % self._group

    def each(self, inputs: Sequence[Inputs], body: Callable[[Any, int], None]) -> None:
        """Emits `body(row, lanes)` for the row of this thread's group.

        `inputs` are those that the body reads in vectors, in loops over `columns`.
        """
        groups = THREADS // self._group
        row = _block.block() * groups + _block.thread() // self._group

        def guarded(lanes: int) -> None:
            with emit.when(emit.compare("less", row, self._rows)):
                body(row, lanes)

        in_vectors(self._frame, inputs, [self.length], guarded)

    def columns(self, lanes: int) -> Iterator[Any]:
        """Emits a loop over this thread's vectors of a row."""
        return emit.loop(self.member * lanes, self.length, self._group * lanes)

    def reduce(
        self,
        lanes: int,
        identity: float,
        combine: _block.Combine,
        value: Callable[[Any], Any],
    ) -> Any:
        """`value(column)`, of `lanes` elements, combined over the row; every thread gets it."""
        start = emit.constant(self._element, identity, lanes)
        (total,) = emit.carry(
            self.member * lanes,
            self.length,
            self._group * lanes,
            [start],
            lambda column, total: [combine(total, value(column))],
        )
        return self._reducer(_block.fold_lanes(total, combine), combine)


def as_float(length: Size, element: Any) -> Any:
    """A size as a floating point number of type `element`."""
    if isinstance(length, int):
        return emit.constant(element, length)
    return arith.sitofp(element, length)
