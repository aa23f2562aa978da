"""Rows of a CPU kernel: reading them through a prologue, reducing them, and finishing them.

The last axis lies in the lanes. Each class prepares one row and returns a function of a column and
a mask, so that kernels say what happens at a column and nothing about broadcasting or dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from heddle.kernels import bodies, convert, emit, host, memory
from heddle.kernels.broadcast import Layout, join
from heddle.kernels.host import Frame
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Body, Launch, Spec, fold, product
from heddle.kernels.stream import Stream

arith = dialect("arith")

At = Callable[[Any, Any], Any]
"""A value at a column, under a mask or None."""

AHEAD = 2**13
"""Bytes from what is read to what is asked for: a CPU's own prefetchers stop at a page's end."""

ONCE = (memory.Ask(1, AHEAD),)
AGAIN = (*ONCE, memory.Ask(2, AHEAD * 3 // 2))
"""Asks beside what is read once, and beside rows that other passes read again meanwhile."""


class Computed:
    """A body's results along the rows of an iteration shape, whose last axis lies in the lanes.

    The body's inputs are `inputs` and, in an epilogue, the root's result before them. `stored`: as
    `bodies.evaluate` has it.
    """

    def __init__(
        self,
        frame: Frame,
        body: Body,
        inputs: Sequence[Any],
        layout: Layout,
        lanes: int,
        stored: bool = False,
    ) -> None:
        self.body, self.inputs, self.layout, self.lanes = body, inputs, layout, lanes
        self.stored = stored
        self.shape = frame.shape(layout.shape)

    def row(self, row: Size, ahead: Any = None) -> Callable[..., list[Any]]:
        """Prepares the flat `row`; returns `at(column, mask, *root)`, the results there.

        Where the i1 `ahead` holds, reading whole vectors asks for what lies `AHEAD` bytes further.
        """
        starts = self.layout.row_starts(row, self.shape)
        dtypes = [operand.dtype for operand in self.body.inputs]
        # What does not move along the row is read once.
        fixed = [
            None if moves[-1] else memory.load(pointer, start, dtype)
            for pointer, start, dtype, moves in zip(
                self.inputs, starts, dtypes, self.layout.moves, strict=True
            )
        ]

        def ask(column: Any) -> None:
            for pointer, start, dtype, value in zip(
                self.inputs, starts, dtypes, fixed, strict=True
            ):
                if value is None:
                    further = start + column + AHEAD // emit.ITEM_SIZE[dtype]
                    for place in range(0, self.lanes, memory.LINE // emit.ITEM_SIZE[dtype]):
                        memory.prefetch(pointer, further + place, dtype)

        def at(column: Any, mask: Any, *root: Any, root_dtypes: Sequence[str] = ()) -> list[Any]:
            if ahead is not None and mask is None:
                with emit.when(ahead):
                    ask(column)
            values = [
                memory.load(pointer, start + column, dtype, self.lanes, mask)
                if value is None
                else emit.splat(value, self.lanes)
                for pointer, start, dtype, value in zip(
                    self.inputs, starts, dtypes, fixed, strict=True
                )
            ]
            known, kinds = [*root, *values], [*root_dtypes, *dtypes]
            return bodies.evaluate(self.body, known, kinds, self.lanes, self.stored)

        return at


class Finish:
    """Where a root's result goes: through the epilogue, if there is one, to the outputs.

    `lanes` columns at a time; the result's last axis is the row's.
    """

    def __init__(self, frame: Frame, lanes: int) -> None:
        self.frame, self.lanes = frame, lanes
        spec = frame.spec
        self.length = frame.size(spec.result.shape[-1])
        self.stream = Stream(frame, lanes)
        self.computed: Computed | None = None
        if spec.epilogue is not None:
            inputs = frame.inputs[len(frame.inputs) - len(spec.epilogue.inputs) :]
            layout = join(spec.result.shape, spec.epilogue.inputs, keep_last=True)
            self.computed = Computed(frame, spec.epilogue, inputs, layout, lanes, stored=True)

    def row(self, row: Size, streams: bool = False) -> Callable[..., None]:
        """Prepares the flat `row`; returns `at(column, mask, value)`, which writes the outputs.

        Where it `streams`, the vectors are those of `stream`.
        """
        results_at = self.computed.row(row) if self.computed else None
        store = self.stream.store if streams else memory.store

        def at(column: Any, mask: Any, value: Any) -> None:
            spec = self.frame.spec
            # A 16-bit result is rounded before the epilogue sees it, as if it had been stored.
            results = [value]
            if results_at:
                value = convert.rounded(value, spec.result.dtype)
                results = results_at(column, mask, value, root_dtypes=[spec.result.dtype])
            for result, pointer, operand in zip(
                results, self.frame.outputs, spec.outputs, strict=True
            ):
                place = row * self.length + column
                store(result, pointer, place, operand.dtype, mask)

        return at

    def mask(self, column: Any, stop: Size, multiple: int) -> Any:
        """The lanes below `stop`, or None where `stop` is a static multiple of `multiple`."""
        if isinstance(stop, int) and stop % multiple == 0:
            return None
        return host.first_lanes(stop - column, self.lanes)


def lanes_for(spec: Spec, machine: Machine) -> int:
    """How many columns of a kernel of rows are worked on as one vector.

    Two registers where results are bfloat16: both are rounded together.
    """
    dtype = spec.operands[0].dtype
    lanes = host.lanes_for(machine, [dtype], [spec.prologue, spec.epilogue])
    return lanes * 2 if {operand.dtype for operand in spec.outputs} == {"bfloat16"} else lanes


def are_paired(spec: Spec) -> bool:
    """Whether whole vectors of a kernel of rows are in pairs: all that it reads and writes is."""
    return {operand.dtype for operand in (*spec.inputs, *spec.outputs)} == {"bfloat16"}


def in_order(spec: Spec, lanes: int) -> AbstractContextManager[None]:
    """Vectors of `lanes` columns are in the order that costs least, in what is emitted in it."""
    return memory.in_pairs(lanes if are_paired(spec) else 0)


class Source:
    """The root's operand 0, computed by the prologue where there is one."""

    def __init__(self, frame: Frame, lanes: int) -> None:
        self.frame, self.lanes = frame, lanes
        spec = frame.spec
        self.length = frame.size(spec.operands[0].shape[-1])
        self.computed: Computed | None = None
        if spec.prologue is not None:
            layout = join(spec.operands[0].shape, spec.prologue.inputs, keep_last=True)
            inputs = frame.inputs[: len(spec.prologue.inputs)]
            self.computed = Computed(frame, spec.prologue, inputs, layout, lanes)

    def row(self, row: Size, asks: Sequence[memory.Ask] = ()) -> At:
        """Prepares the flat `row`; returns `at(column, mask)`, the operand there.

        More of this call's rows is asked for beside each read; others may be another core's.
        """
        spec = self.frame.spec
        operands = spec.prologue.inputs if spec.prologue else spec.operands[:1]
        pointers, start = self.frame.inputs[: len(operands)], row * self.length
        results_at = self.computed.row(row) if self.computed else None
        dense = [all(moves) for moves in self.computed.layout.moves] if self.computed else [True]
        asked = [
            (ask.within(operand.dtype, row, self.frame.last, self.length), pointer, operand.dtype)
            for pointer, operand, fetched in zip(pointers, operands, dense, strict=True)
            for ask in (asks if fetched else ())
        ]

        def at(column: Any, mask: Any) -> Any:
            place = start + column
            for ask, pointer, dtype in asked:
                ask.beside(pointer, place, dtype)
            if results_at:
                return results_at(column, mask)[0]
            return memory.load(pointers[0], place, operands[0].dtype, self.lanes, mask)

        return at


WIDENED = 4096
"""Numbers of a parameter at most that are widened once for a call: 16 KiB."""


def parameter(frame: Frame, number: int, lanes: int) -> At:
    """`at(column, mask)` of the root's operand `number` (not 0), which has one axis.

    One of float16, whose conversion takes more than reading float32, is widened once for all rows.
    """
    spec = frame.spec
    before = len(spec.prologue.inputs) - 1 if spec.prologue else 0
    pointer, operand = frame.inputs[before + number], spec.operands[number]
    wide, length = spec.operands[0].dtype, operand.shape[0]

    def at(column: Any, mask: Any) -> Any:
        value = memory.load(pointer, column, operand.dtype, lanes, mask)
        return convert.cast(value, operand.dtype, wide)

    if (operand.dtype, wide) != ("float16", "float16"):
        return at
    if not isinstance(length, int) or not 0 < length <= WIDENED:
        return at
    kept = host.byte_buffer(length * emit.ITEM_SIZE["float32"])
    for column, mask in host.vectors(0, length, lanes):
        memory.store(at(column, mask), kept, column, "float32", mask)
    return lambda column, mask: memory.load(kept, column, "float32", lanes, mask)


def as_float(size: Size, dtype: str) -> Any:
    """A size as a scalar that float `dtype` computes in."""
    return arith.sitofp(emit.register_type(dtype), emit.as_index(size))


def launch(spec: Spec, effort: int) -> Launch:
    """One task for each row, at `effort` operations for each element beside the bodies'."""
    shape = spec.operands[0].shape
    each = effort + bodies.work(spec.prologue) + bodies.work(spec.epilogue)
    return Launch((product(shape[:-1]), 1, 1), fold("mul", product(shape), each))


def unsupported(spec: Spec) -> str | None:
    """Why a kernel of rows of floats does not take `spec`, or None."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"wanted floats, got {spec.operands[0].dtype}"
    return bodies.unsupported_in(spec)
