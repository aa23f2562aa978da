"""Rows of a CPU kernel: reading them through a prologue, reducing them, and finishing them.

The last axis lies in the lanes. Each class prepares one row and returns a function of a column and
a mask, so that kernels say what happens at a column and nothing about broadcasting or dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, host, memory, sizes
from heddle.kernels.broadcast import Layout, join
from heddle.kernels.host import Frame
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Body, Launch, Spec, fold, product
from heddle.kernels.stream import Stream

arith = dialect("arith")

At = Callable[[Any, Any], Any]
"""A value at a column, under a mask or None."""


FETCHED = 2**14
"""Columns of the longest row that is fetched while the one before it is written."""


class Computed:
    """A body's results along the rows of an iteration shape, whose last axis lies in the lanes.

    The body's inputs are `inputs` and, in an epilogue, the root's result before them.
    """

    def __init__(
        self, frame: Frame, body: Body, inputs: Sequence[Any], layout: Layout, lanes: int
    ) -> None:
        self.body, self.inputs, self.layout, self.lanes = body, inputs, layout, lanes
        self.shape = frame.shape(layout.shape)

    def row(self, row: Size) -> Callable[..., list[Any]]:
        """Prepares the flat `row`; returns `at(column, mask, *root)`, the results there."""
        starts = self.layout.row_starts(row, self.shape)
        dtypes = [operand.dtype for operand in self.body.inputs]
        # What does not move along the row is read once.
        fixed = [
            None if moves[-1] else memory.load(pointer, start, dtype)
            for pointer, start, dtype, moves in zip(
                self.inputs, starts, dtypes, self.layout.moves, strict=True
            )
        ]

        def at(column: Any, mask: Any, *root: Any, root_dtypes: Sequence[str] = ()) -> list[Any]:
            values = [
                memory.load(pointer, start + column, dtype, self.lanes, mask)
                if value is None
                else emit.splat(value, self.lanes)
                for pointer, start, dtype, value in zip(
                    self.inputs, starts, dtypes, fixed, strict=True
                )
            ]
            return bodies.evaluate(self.body, [*root, *values], [*root_dtypes, *dtypes], self.lanes)

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
            self.computed = Computed(frame, spec.epilogue, inputs, layout, lanes)

    def tasks(self) -> Iterator[Any]:
        """Emits the Python body of a `for task in` this over the tasks of a kernel of `write`."""
        return self.stream.tasks()

    def write(self, row: Size, value_at: At) -> None:
        """Writes `value_at(column, mask)` to the whole flat `row`."""
        out_at = self.row(row)
        for column, mask, past in self.stream.vectors(0, self.length, row * self.length):
            out_at(column, mask, value_at(column, mask), past)

    def row(self, row: Size) -> Callable[..., None]:
        """Prepares the flat `row`; returns `at(column, mask, value)`, which writes the outputs."""
        results_at = self.computed.row(row) if self.computed else None

        def at(column: Any, mask: Any, value: Any, past: bool = False) -> None:
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
                memory.store(result, pointer, place, operand.dtype, mask, past=past)

        return at

    def mask(self, column: Any, stop: Size, multiple: int) -> Any:
        """The lanes below `stop`, or None where `stop` is a static multiple of `multiple`."""
        if isinstance(stop, int) and stop % multiple == 0:
            return None
        return host.first_lanes(stop - column, self.lanes)


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

    def row(self, row: Size) -> At:
        """Prepares the flat `row`; returns `at(column, mask)`, the operand there."""
        if self.computed:
            results_at = self.computed.row(row)
            return lambda column, mask: results_at(column, mask)[0]
        pointer, dtype = self.frame.inputs[0], self.frame.spec.operands[0].dtype
        start = row * self.length
        return lambda column, mask: memory.load(pointer, start + column, dtype, self.lanes, mask)

    def passes(self, row: Size, count: int) -> list[At]:
        """As `row`, once for each of `count` passes over the row in order.

        Each pass asks for its share of the next row, so that memory is busy while a row in cache is
        worked on. A row that is too long for that asks for its own.
        """
        spec = self.frame.spec
        x_at = self.row(row)
        operands = spec.prologue.inputs if spec.prologue else spec.operands[:1]
        short = emit.compare("less_equal", emit.as_index(self.length), FETCHED)
        following = row + emit.select(short, 1, emit.index(0))
        starts, moves = [following * self.length], [True]
        if self.computed:
            starts = self.computed.layout.row_starts(following, self.computed.shape)
            moves = [each[-1] for each in self.computed.layout.moves]

        def share(number: int) -> At:
            def at(column: Any, mask: Any) -> Any:
                ahead = sizes.floordiv(self.length * number + column, count)
                reads = zip(self.frame.inputs, operands, starts, moves, strict=False)
                for pointer, operand, start, moving in reads:
                    if moving:
                        memory.prefetch(pointer, start + ahead, operand.dtype)
                return x_at(column, mask)

            return at

        return [share(number) for number in range(count)]


def vector_operand(frame: Frame, number: int, lanes: int) -> At:
    """`at(column, mask)` of the root's operand `number` (not 0), which has one axis."""
    spec = frame.spec
    before = len(spec.prologue.inputs) - 1 if spec.prologue else 0
    pointer, operand = frame.inputs[before + number], spec.operands[number]
    wide = spec.operands[0].dtype

    def at(column: Any, mask: Any) -> Any:
        value = memory.load(pointer, column, operand.dtype, lanes, mask)
        return convert.cast(value, operand.dtype, wide)

    return at


CHAINS = 4
"""Accumulators of a row's reduction, so that it is not bound by the latency of one addition."""


def reduce(
    length: Size,
    neutral: Any,
    at: At,
    combine: Callable[[Any, Any], Any],
) -> Any:
    """Combines `at(column, mask)` over a row to a scalar; `neutral` is a vector of its lanes.

    The order depends on the length and the machine alone.
    """
    lanes = emit.lanes_of(neutral)

    def several(i: Any, *totals: Any) -> list[Any]:
        return [combine(total, at(i + chain * lanes, None)) for chain, total in enumerate(totals)]

    def one(i: Any, total: Any) -> list[Any]:
        return [combine(total, at(i, None))]

    long = length - sizes.mod(length, CHAINS * lanes)
    whole = length - sizes.mod(length, lanes)
    totals = emit.carry(0, long, CHAINS * lanes, [neutral] * CHAINS, several)
    while len(totals) > 1:
        totals = [combine(a, b) for a, b in zip(totals[::2], totals[1::2], strict=True)]
    totals = emit.carry(long, whole, lanes, totals, one)
    if isinstance(length, int) and length == whole:
        return crosslane.across(totals[0], combine)
    whole = emit.as_index(whole)
    mask = host.first_lanes(length - whole, lanes)
    last = emit.select(mask, at(whole, mask), neutral)
    return crosslane.across(combine(totals[0], last), combine)


def add(a: Any, b: Any) -> Any:
    """`a + b`, as something to reduce with."""
    return a + b


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
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)
