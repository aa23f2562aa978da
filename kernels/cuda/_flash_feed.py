"""What comes to a block of attention by warpgroups: queries once, keys and values in stages.

The second warpgroup, which is the last to read a stage, fills it again: one of its threads starts
the copies by TMA, so that no warp is there for them alone, and a thread may have 255 registers.
Where pointers are not aligned it reads single elements.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import (
    _block,
    _flash_dense,
    _flash_keys,
    _flash_softmax,
    _frame,
    _mma,
    _pieces,
    _staging,
    _tma,
    _warpgroup,
)
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, TensorMap, fold, product

llvm = dialect("llvm")

CONSUMERS = 2
"""Warpgroups."""

QUERIES = CONSUMERS * _warpgroup.ROWS
"""Of a block."""

KEYS = 128
"""Keys that are multiplied at a time."""

QUERY_PANEL, KEY_PANEL = QUERIES * _staging.LINE, KEYS * _staging.LINE
"""Bytes of a panel: 64 elements of each row, in lines of 128 bytes."""

STAGES = (1, 2, 2)
"""Of queries, keys and values: operands 0, 1 and 2."""

WIDE = 64
"""Elements of a line."""

_BARRIER = 3  # The warpgroups have 1 and 2.


def shape_of(spec: Spec, number: int) -> tuple[Expr, Expr, Expr, Expr]:
    """Batch, heads, length and size of an operand."""
    shape, (heads, length) = spec.operands[number].shape, _flash_dense.axes(spec)
    return shape[0], shape[heads], shape[length], shape[3]


def tensor_map(spec: Spec, number: int) -> TensorMap:
    """Panels of an operand: lines of 128 bytes of a head's rows."""
    batch, heads, length, size = shape_of(spec, number)
    lines = {"bhsd": (length, 1), "bshd": (1, heads)}[spec.attr("layout")]
    row = fold("mul", size, 2)
    strides = (product((heads, length, row)), *(fold("mul", line, row) for line in lines))
    rows = QUERIES if number == 0 else KEYS
    shape = batch, heads, length, size
    return TensorMap(number, shape, strides, (1, 1, rows, WIDE), _staging.LINE)


class Layout:
    """Shared memory in bytes: panels of queries, stages of keys and of values, mbarriers."""

    def __init__(self, size: int) -> None:
        self.size, self.panels = size, size // WIDE
        self.stages = [self.panels * panel for panel in (QUERY_PANEL, KEY_PANEL, KEY_PANEL)]
        ends = [0]
        for stage, count in zip(self.stages, STAGES, strict=True):
            ends.append(ends[-1] + count * stage)
        *self.first, barriers = ends
        self.barriers = []
        for count in STAGES:
            self.barriers.append(barriers)
            barriers += _warpgroup.ring_bytes(count)
        self.total = barriers


class Feed:
    """A tile of queries of one head, and all keys that they see."""

    def __init__(self, frame: _frame.Frame, shared: _mma.DynamicShared) -> None:
        self._frame, self._shared, spec = frame, shared, frame.spec
        self._layout = layout = Layout(int(spec.operands[0].shape[3]))  # type: ignore[arg-type]
        self._rings = [
            _warpgroup.Ring(shared, *row)
            for row in zip(STAGES, layout.stages, layout.barriers, strict=True)
        ]
        _, heads, queries, _ = shape_of(spec, 0)
        _, key_heads, length, _ = shape_of(spec, 1)
        self._heads, self._key_heads = int(heads), int(key_heads)  # type: ignore[arg-type]
        self._queries, self._length = frame.size(queries), frame.size(length)
        tiles = frame.size(fold("ceildiv", queries, QUERIES))
        rest = _block.quotient(_block.block(), tiles)
        number = _block.block() - rest * tiles
        # The last tiles of causal attention have the most keys: they come first.
        self._row = (emit.as_index(tiles) - 1 - number) * QUERIES
        self._batch, self._head = rest // self._heads, rest % self._heads
        self._key_head = self._head // (self._heads // self._key_heads)
        last = emit.minimum(self._row + QUERIES, emit.as_index(self._queries)) - 1
        (low, self._early), (late, stop) = self._range(self._row), self._range(last)
        self._late = late  # Keys before it are not seen by every query.
        self._start = emit.index(0) if low is None else low
        steps = sizes.ceildiv(emit.maximum(stop - self._start, 0), KEYS)
        self._count = emit.maximum(steps, 1)  # Where no key is seen, some that are masked.
        self._thread = _block.thread() % _warpgroup.THREADS
        self._warpgroup = _block.thread() // _warpgroup.THREADS
        self._second = emit.compare("equal", self._warpgroup, 1)
        loose: Any = emit.index(0)
        for pointer in frame.inputs[:3]:
            loose = loose | llvm.ptrtoint(emit.integer(64), pointer) & (_mma.CHUNK - 1)
        aligned = emit.compare("equal", loose, 0)
        self._whole = aligned & emit.compare("greater", emit.as_index(self._length), 0)

    def _range(self, row: Size) -> _flash_softmax.Range:
        return _flash_keys.seen(self._frame.spec, 1, self._queries, self._length, row)

    def initialise(self) -> None:
        """One thread makes the mbarriers."""
        for ring in self._rings:
            ring.initialise(full=_pieces.word(1), empty=_pieces.word(CONSUMERS))

    def _bring(self, operand: int, number: Size) -> None:
        """Brings the queries (operand 0), or the keys or values of step `number`, if it is one."""
        ring, step = self._rings[operand], emit.as_index(number)
        turn = ring.turn(_pieces.word(step))
        row = self._row if operand == 0 else self._start + step * KEYS

        def by_tma() -> list[Any]:
            with emit.when(emit.compare("equal", self._thread, 0)):
                turn.wait_until_empty()
                self._copy(operand, turn, row)
            return []

        def by_threads() -> list[Any]:
            turn.wait_until_empty()
            self._gather(operand, turn, row)
            return []

        needed = self._second
        if operand:
            needed = needed & emit.compare("less", step, self._count)
        with emit.when(needed):
            emit.either(self._whole, [], by_tma, by_threads)

    def _copy(self, operand: int, turn: _warpgroup.Turn, row: Size) -> None:
        layout = self._layout
        panel = QUERY_PANEL if operand == 0 else KEY_PANEL
        turn.expect(layout.panels * panel)
        head = self._head if operand == 0 else self._key_head
        where = [_pieces.word(place) for place in (self._batch, head, row)]
        for number in range(layout.panels):
            start = turn.start + (layout.first[operand] + number * panel)
            column = _pieces.word(number * WIDE)
            _tma.load(
                self._shared.at(start),
                self._frame.tensor_maps[operand],
                [*where, column],
                turn.full,
            )

    def _gather(self, operand: int, turn: _warpgroup.Turn, row: Size) -> None:
        """The threads read the elements of chunks, one by one."""
        size, pointer = self._layout.size, self._frame.inputs[operand]
        head, length = (self._key_head, self._length)
        if operand == 0:
            head, length = self._head, self._queries
        dtype = self._frame.spec.operands[operand].dtype
        matrix = _staging.Matrix(pointer, dtype, 0, length, size)
        lines, across = QUERIES if operand == 0 else KEYS, size // matrix.each
        for index in emit.loop(self._thread, lines * across, _warpgroup.THREADS):
            line, chunk = index // across, index % across
            position = self._place(operand, head, row + line) + chunk * matrix.each
            value = matrix.elements(row + line, emit.index(0), position)
            each = WIDE // matrix.each
            panel, within = chunk // each, _staging.swizzled(line, chunk % each, _staging.LINE)
            place = (panel * lines + line) * _staging.LINE + within * _mma.CHUNK
            self._shared.store(value, turn.start + self._layout.first[operand] + place)
        _tma.fence()
        _warpgroup.meet(_BARRIER, _warpgroup.THREADS)
        with emit.when(emit.compare("equal", self._thread, 0)):
            turn.arrive_full()

    def _place(self, operand: int, head: Size, row: Size) -> Size:
        """Where a row of a head begins in an operand, or in the result as in the queries."""
        heads, length = self._key_heads, self._length
        if operand == 0:
            heads, length = self._heads, self._queries
        if self._frame.spec.attr("layout") == "bhsd":
            return ((self._batch * heads + head) * length + row) * self._layout.size
        return ((self._batch * length + row) * heads + head) * self._layout.size
