"""The frame of a CUDA kernel, and how it reads and writes tensors with their fused bodies.

A position is a flat element number of a tensor's row-major shape, and the unit of access is a
vector of consecutive elements: 16 bytes of the widest dtype where every row divides into vectors
and every pointer is aligned, else single elements. Both versions are emitted, one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from heddle.kernels import bodies, broadcast, convert, emit, memory, sizes
from heddle.kernels.arguments import Arguments
from heddle.kernels.cuda import _block, _overlap
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import AHEAD, Machine, find
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Body, Expr, Launch, Operand, Spec, fold, product

llvm = dialect("llvm")

THREADS = 256
"""Threads of a block, unless a kernel says otherwise."""

_MOST_BLOCKS = 4096  # Of a kernel whose threads take several vectors each: fills every GPU.


@dataclass(frozen=True)
class Frame(Arguments):
    """What the emitted function was given.

    Attributes:
        tensor_maps: Pointers to those of the launch on this machine.
        ahead: Whether its threads have yet to wait for the kernels in front.
        late: Whether they have yet to say that the next one may start.
    """

    tensor_maps: list[Any]
    ahead: bool = False
    late: bool = False

    def reader(self, number: int) -> Reader:
        """Operand `number` as the root sees it: a buffer, or computed by the prologue.

        This and `writer` emit sizes, so that they are called where the whole kernel sees them.
        """
        spec = self.spec
        operand = spec.operands[number]
        if spec.prologue and number == 0:
            count = len(spec.prologue.inputs)
            return Reader(self, operand, spec.prologue.inputs, self.inputs[:count], spec.prologue)
        first = len(spec.prologue.inputs) - 1 if spec.prologue else 0
        return Reader(self, operand, (operand,), [self.inputs[first + number]])

    def writer(self) -> Writer:
        """Where the root's result goes, through the epilogue."""
        stop = len(self.inputs) - (len(self.spec.gate.inputs) - 1 if self.spec.gate else 0)
        pointers = self.inputs[stop - len(self.spec.behind) : stop]
        return Writer(self, self.spec.epilogue, pointers)

    def products(self) -> list[Frame]:
        """This frame and that of the spec's gate, if there is one, which has no outputs."""
        gate = self.spec.gate
        if gate is None:
            return [self]
        first = len(self.inputs) - len(gate.inputs) + 1
        inputs = [self.inputs[0], *self.inputs[first:]]
        return [self, replace(self, spec=gate, inputs=inputs, outputs=[])]

    def wait(self) -> Frame:
        """Emits that a thread waits for the kernels in front; the frame of one that has.

        It may do so on each of its ways, and again.
        """
        if self.ahead:
            _overlap.wait()
        return replace(self, ahead=False)

    def let_next_start(self) -> None:
        """Emits that the next kernel may start, in one that is `Kernel.late`; again, too."""
        if self.late:
            _overlap.let_next_start()

    @contextmanager
    def unless_empty(self) -> Iterator[None]:
        """Emits what runs where a result has elements; a grid has a block even if none has."""
        counts = [self.size(product(one.result.shape)) for one in self.spec.each]
        total = emit.as_index(sum(counts[1:], counts[0]))
        with emit.when(emit.compare("greater", total, 0)):
            yield


def frame(spec: Spec, machine: Machine) -> Frame:
    """The arguments of the function that is being emitted, at the start of its entry block."""
    row = find(spec.op, machine.target)
    assert row is not None, "this kernel is a row"
    arguments = list(ir.InsertionPoint.current.block.arguments)
    extras = row.extras(spec)
    reads, writes, count = len(spec.inputs), len(spec.written), len(spec.dims)
    outputs = reads + writes
    dims = outputs + len(extras)
    pointers = dict(zip(extras, arguments[outputs:dims], strict=True))
    # A block's arguments come without operators.
    values = [emit.Number(value) for value in arguments[dims : dims + count]]
    return Frame(
        spec,
        machine,
        dict(zip(spec.dims, values, strict=True)),
        inputs=arguments[:reads],
        outputs=arguments[reads:outputs],
        workspace=pointers.get("workspace"),
        counters=pointers.get("counters"),
        status=pointers.get("status"),
        tensor_maps=arguments[dims + count :],
        ahead=machine.overlaps and bool(spec.attr(AHEAD)),
        late=machine.overlaps and row.late(spec, machine),
    )


class Vectors(Protocol):
    """What is read in vectors, where those fit."""

    @property
    def row(self) -> Size:
        """Vectors are whole where their length divides this."""

    @property
    def streamed(self) -> list[tuple[Any, str]]:
        """The pointers that are read in vectors, and their dtypes."""


class Inputs:
    """Buffers that are read at positions of a shape to which they broadcast."""

    def __init__(
        self, frame: Frame, shape: Sequence[Expr], operands: Sequence[Operand], pointers: list[Any]
    ) -> None:
        self.operands = operands
        self.pointers = pointers
        self._layout = broadcast.join(shape, operands)
        self._shape = frame.shape(self._layout.shape)
        self._in_rows = bool(shape) and self._layout.shape[-1] == shape[-1]

    @property
    def row(self) -> Size:
        """Vectors are whole where their length divides this."""
        return self._shape[-1]

    @property
    def streamed(self) -> list[tuple[Any, str]]:
        """The pointers that are read in vectors, and their dtypes."""
        rows = zip(self.pointers, self.operands, self._layout.moves, strict=True)
        return [(pointer, operand.dtype) for pointer, operand, moves in rows if moves[-1]]

    def load(self, position: Any, lanes: int, place: tuple[Size, Size] | None = None) -> list[Any]:
        """The inputs at `position`; `place`: its row and column, where they are known.

        They save a division, for which ptxas calls a function where a row's length is not known.
        """
        row, column = 0, position
        if place and self._in_rows and len(self._shape) > 1:
            row, column = place
        elif len(self._shape) > 1:
            row = sizes.floordiv(position, self._shape[-1])
            column = sizes.mod(position, self._shape[-1])
        starts = self._layout.row_starts(row, self._shape)
        values = []
        for i, operand in enumerate(self.operands):
            if self._layout.moves[i][-1]:
                value = load(self.pointers[i], starts[i] + column, operand.dtype, lanes)
            else:
                value = emit.splat(load(self.pointers[i], starts[i], operand.dtype, 1), lanes)
            values.append(value)
        return values


class Reader:
    """A tensor that is read: a buffer, or the one result of a body over buffers."""

    def __init__(
        self,
        frame: Frame,
        operand: Operand,
        operands: Sequence[Operand],
        pointers: list[Any],
        body: Body | None = None,
    ) -> None:
        self.dtype = operand.dtype
        self.inputs = Inputs(frame, operand.shape, operands, pointers)
        self._body = body

    def all(self, position: Any, lanes: int, stored: bool = False) -> list[Any]:
        """The body's results (or the buffer's value) at `position`, `lanes` elements each.

        `stored`: as `bodies.evaluate` has it.
        """
        values = self.inputs.load(position, lanes)
        if self._body is None:
            return values
        dtypes = [operand.dtype for operand in self._body.inputs]
        return bodies.evaluate(self._body, values, dtypes, lanes, stored)

    def __call__(self, position: Any, lanes: int) -> Any:
        """The tensor's `lanes` elements from `position` on, in registers."""
        return self.all(position, lanes)[0]


class Writer:
    """The root's result on its way out: through the epilogue into the outputs."""

    def __init__(self, frame: Frame, body: Body | None, pointers: list[Any]) -> None:
        self._frame = frame
        self._body = body
        self.inputs = Inputs(frame, frame.spec.result.shape, frame.spec.behind, pointers)

    def results(
        self,
        value: Any,
        position: Any,
        place: tuple[Size, Size] | None = None,
        gates: Sequence[Any] = (),
    ) -> list[Any]:
        """What the outputs get for the lanes of `value`, the root's result from `position` on.

        A 16-bit result is rounded before the epilogue sees it, as if it had been stored. `place`
        as `Inputs.load` has it; `gates`: what the spec's gate gives there.
        """
        if self._body is None:
            return [value]
        lanes, dtype = emit.lanes_of(value), self._frame.spec.result.dtype
        value = convert.rounded(value, dtype)
        dtypes = [dtype, *(o.dtype for o in self._body.inputs)]
        values = [value, *self.inputs.load(position, lanes, place), *gates]
        return bodies.evaluate(self._body, values, dtypes, lanes, stored=True)

    def __call__(self, value: Any, position: Any, gates: Sequence[Any] = ()) -> None:
        """Writes the lanes of `value`, the root's result from `position` on; as `results`."""
        store_all(self._frame, self.results(value, position, gates=gates), position)


def store_all(frame: Frame, values: Sequence[Any], position: Any) -> None:
    """Writes one value to each output at `position`."""
    for value, pointer, output in zip(values, frame.outputs, frame.spec.outputs, strict=True):
        alignment = emit.lanes_of(value) * emit.ITEM_SIZE[output.dtype]
        memory.store(value, pointer, position, output.dtype, alignment=alignment)


def load(pointer: Any, offset: Any, dtype: str, lanes: int) -> Any:
    """`lanes` elements from `offset` on; more than one only at a multiple of `lanes`."""
    return memory.load(pointer, offset, dtype, lanes, alignment=lanes * emit.ITEM_SIZE[dtype])


def in_vectors(
    frame: Frame,
    inputs: Sequence[Vectors],
    rows: Sequence[Size],
    body: Callable[[int], None],
    most: int = 16,
    written: bool = True,
) -> None:
    """Emits `body(lanes)` for vectors, and `body(1)` for where vectors do not fit.

    A vector is 16 bytes of the widest dtype that moves in vectors, and at most `most` elements.
    Vectors fit where each of `rows`, and each row of `inputs`, divides into them, and the
    pointers are aligned to 16 bytes. `written`: outputs move in vectors, too.
    """
    moved = [pair for group in inputs for pair in group.streamed]
    if written:
        dtypes = [operand.dtype for operand in frame.spec.outputs]
        moved = [*zip(frame.outputs, dtypes, strict=True), *moved]
    if not moved:
        body(1)
        return
    widest = max(emit.ITEM_SIZE[dtype] for _, dtype in moved)
    lanes = min(most, frame.machine.vector_bytes // widest)
    lengths = [*rows, *(group.row for group in inputs)]
    if lanes == 1 or any(isinstance(n, int) and n % lanes for n in lengths):
        body(1)
        return
    word = emit.integer(64)
    loose: Any = emit.index(0)
    for pointer, _ in moved:
        loose = loose | (llvm.ptrtoint(word, pointer) & 15)
    for length in lengths:
        if not isinstance(length, int):
            loose = loose | length % lanes
    operation = dialect("scf").IfOp(emit.compare("equal", loose, 0), has_else=True)
    for branch, width in ((operation.then_block, lanes), (operation.else_block, 1)):
        with ir.InsertionPoint(branch):
            body(width)
            dialect("scf").yield_([])


def sweep(total: Size, lanes: int) -> Iterator[Any]:
    """Emits a loop in which the threads of the grid take vectors of `lanes` in turn."""
    first = (_block.block() * THREADS + _block.thread()) * lanes
    return emit.loop(first, total, _block.blocks() * (THREADS * lanes))


def sweep_grid(shape: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """The grid of a kernel that sweeps `shape`."""
    wanted = fold("ceildiv", product(tuple(shape)), 4 * THREADS)
    return fold("max", 1, fold("min", wanted, _MOST_BLOCKS)), 1, 1


def sweep_launch(spec: Spec) -> Launch:
    """That of a kernel that sweeps its result and moves it: a few elements in each thread."""
    shape = spec.result.shape
    work = fold("mul", product(shape), 2 + bodies.work(spec.epilogue))
    return Launch(sweep_grid(shape), work, (THREADS, 1, 1))
