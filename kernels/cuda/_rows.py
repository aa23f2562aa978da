"""Kernels over the last axis: a warp for each row that is known to be short, else a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heddle.kernels import bodies, emit
from heddle.kernels.cuda import _block
from heddle.kernels.cuda._frame import THREADS, Frame, Inputs, in_vectors
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold, product

arith = dialect("arith")

_LONGEST_OF_A_WARP = 1024
_HELD = 32  # Registers of a thread for its part of a row: 8192 elements of float32 in a block.


def group_size(length: Expr) -> int:
    """Threads that share a row of `length`."""
    return _block.WARP if isinstance(length, int) and length <= _LONGEST_OF_A_WARP else THREADS


def grid(shape: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """The grid for the rows of `shape`."""
    rows = product(tuple(shape[:-1]))
    return fold("max", 1, fold("ceildiv", rows, THREADS // group_size(shape[-1]))), 1, 1


def around(shape: Sequence[Expr], axis: int) -> tuple[Expr, Expr, Expr]:
    """The sizes before, of and after an axis of `shape`."""
    return product(tuple(shape[:axis])), shape[axis], product(tuple(shape[axis + 1 :]))


def supports_floats(spec: Spec) -> str | None:
    """The floating dtypes, with any body."""
    if not emit.is_float(spec.result.dtype):
        return f"{spec.op} of {spec.result.dtype}"
    return bodies.unsupported_in(spec)


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

    def each(
        self, inputs: Sequence[Inputs], body: Callable[[Any, int], None], written: bool = True
    ) -> None:
        """Emits `body(row, lanes)` for the row of this thread's group.

        `inputs` are those that the body reads in vectors; `written`: it writes in vectors, too.
        """
        groups = THREADS // self._group
        row = _block.block() * groups + _block.thread() // self._group

        def guarded(lanes: int) -> None:
            with emit.when(emit.compare("less", row, self._rows)):
                body(row, lanes)

        in_vectors(self._frame, inputs, [self.length], guarded, written=written)

    def read(self, lanes: int, value: Callable[[Any], Any]) -> Row:
        """The row of `value(column)`, of `lanes` elements each: held in registers if it is short.

        Then all of it is on its way before the first of it is used, and is read once.
        """
        stride = self._group * lanes
        most = _HELD * 32 // max(32, emit.bits_of(self._element))
        if isinstance(self.length, int) and -(-self.length // stride) * lanes <= most:
            return _Held.of(self, lanes, value)
        return self.stream(lanes, value)

    def stream(self, lanes: int, value: Callable[[Any], Any]) -> Row:
        """The same, read anew each time."""
        return _Streamed(self, lanes, value)

    def first(self, lanes: int) -> Any:
        """The first column of this thread."""
        return self.member * lanes

    def stride(self, lanes: int) -> int:
        """Columns from one vector of a thread to its next."""
        return self._group * lanes

    def start(self, identity: float, lanes: int = 1) -> Any:
        """What a reduction begins with."""
        return emit.constant(self._element, identity, lanes)

    def combined(self, value: Any, combine: _block.Combine) -> Any:
        """The lanes of all threads of the group combined; every thread gets it."""
        return self._reducer(_block.fold_lanes(value, combine), combine)


class Row(Protocol):
    """This thread's vectors of a row, with so many `lanes` each."""

    rows: Rows
    lanes: int

    def map(self, function: Callable[[Any], Any]) -> Row:
        """The row of `function(value)`."""

    def reduce(self, identity: float, combine: _block.Combine) -> Any:
        """The values combined over the row; every thread gets it."""
        none = self.rows.start(identity, self.lanes)
        total = self.over(none, lambda _, value, total: combine(total, value))
        return self.rows.combined(total, combine)

    def each(self, body: Callable[[Any, Any], None]) -> None:
        """Emits `body(column, value)` for each vector."""

    def over(self, start: Any, body: Callable[[Any, Any, Any], Any]) -> Any:
        """`body(column, value, so_far)` over the vectors of this thread, one after the other."""


@dataclass(frozen=True)
class _Held(Row):
    """Vectors in registers: column, whether it is inside (None: it is), and value of each."""

    rows: Rows
    lanes: int
    vectors: Sequence[tuple[Any, Any, Any]]

    @staticmethod
    def of(rows: Rows, lanes: int, value: Callable[[Any], Any]) -> _Held:
        vectors, stride = [], rows.stride(lanes)
        for start in range(0, rows.length, stride):
            column, inside = rows.first(lanes) + start, None
            if start + stride > rows.length:
                inside = emit.compare("less", column, rows.length)
                # Beyond the row, the thread reads its beginning once more.
                found = value(emit.select(inside, column, 0))
            else:
                found = value(column)
            vectors.append((column, inside, found))
        return _Held(rows, lanes, vectors)

    def map(self, function: Callable[[Any], Any]) -> Row:
        vectors = [(column, inside, function(value)) for column, inside, value in self.vectors]
        return _Held(self.rows, self.lanes, vectors)

    def each(self, body: Callable[[Any, Any], None]) -> None:
        for column, inside, value in self.vectors:
            if inside is None:
                body(column, value)
            else:
                with emit.when(inside):
                    body(column, value)

    def over(self, start: Any, body: Callable[[Any, Any, Any], Any]) -> Any:
        for column, inside, value in self.vectors:
            after = body(column, value, start)
            start = after if inside is None else emit.select(inside, after, start)
        return start


@dataclass(frozen=True)
class _Streamed(Row):
    """Vectors that are read anew each time; ptxas unrolls, so that four are on their way."""

    rows: Rows
    lanes: int
    value: Callable[[Any], Any]

    def map(self, function: Callable[[Any], Any]) -> Row:
        return _Streamed(self.rows, self.lanes, lambda column: function(self.value(column)))

    def over(self, start: Any, body: Callable[[Any, Any, Any], Any]) -> Any:
        def add(column: Any, so_far: Any) -> Sequence[Any]:
            return [body(column, self.value(column), so_far)]

        first, stride = self.rows.first(self.lanes), self.rows.stride(self.lanes)
        return emit.carry(first, self.rows.length, stride, [start], add)[0]

    def each(self, body: Callable[[Any, Any], None]) -> None:
        start, stride = self.rows.first(self.lanes), self.rows.stride(self.lanes)
        for column in emit.loop(start, self.rows.length, stride):
            body(column, self.value(column))


def as_float(length: Size, element: Any) -> Any:
    """A size as a floating point number of type `element`."""
    if isinstance(length, int):
        return emit.constant(element, length)
    return arith.sitofp(element, length)
