"""Products on tensor cores of sm_90a: two warpgroups make a tile of 128 rows, 64 each, by wgmma.

Both also copy. While wgmma reads one stage, each thread starts its copies to the stage that was
read before; mbarriers say which stage is full, and which is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heddle.kernels import convert, emit, sizes
from heddle.kernels.cuda import _block, _frame, _mma, _staging, _warpgroup
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

if TYPE_CHECKING:
    from heddle.kernels.cuda import _tiles
    from heddle.kernels.cuda._result import Place

arith, vector = dialect("arith"), dialect("vector")

_WARPGROUPS = _staging.THREADS // _warpgroup.THREADS
_NARROW = 128  # Columns of tiles of which two blocks fit a multiprocessor.
_WARP_ROWS = 16  # Of a warpgroup's 64.


def fits(tile: _tiles.Tile, where: Place) -> bool:
    """Whether wgmma multiplies this: bytes lie along k, or nowhere.

    Where n and k are run-time sizes, registers do not suffice, and ptxas lets products wait for one
    another.
    """
    static = isinstance(where.n, int) and isinstance(where.k, int)
    return static and (tile.kind.item == 2 or tile.transposed)


def emit_tile(
    frame: _frame.Frame,
    tile: _tiles.Tile,
    shared: _mma.DynamicShared,
    stages: int,
    parts: Sequence[_staging.Lines],
    where: Place,
) -> None:
    """Emits the tile at `where`, whose operands `parts` bring: the whole block calls."""
    if tile.columns <= _NARROW:
        _warpgroup.blocks_side_by_side(2)
    ring = _warpgroup.Ring(shared, stages, tile.stage)
    with emit.when(emit.compare("equal", _block.thread(), 0)):
        ring.initialise(full=_staging.THREADS, empty=_WARPGROUPS)
    _block.barrier()
    steps = emit.as_index(sizes.ceildiv(where.k, tile.depth))
    sums = _multiplied(tile, shared, ring, parts, arith.trunci(emit.integer(32), steps))
    _write(frame, tile, shared, sums, where)


def _multiplied(
    tile: _tiles.Tile,
    shared: _mma.DynamicShared,
    ring: _warpgroup.Ring,
    parts: Sequence[_staging.Lines],
    steps: Any,
) -> Sequence[Any]:
    """The sums of a thread, as `_warpgroup.Matrices.parts` has them."""
    word = emit.integer(32)
    units = _warpgroup.Matrices(tile.kind, tile.columns, tile.transposed)
    rows = _block.thread() // _warpgroup.THREADS * (_warpgroup.ROWS * _staging.LINE)
    speaks = emit.compare("equal", _block.thread() % _warpgroup.THREADS, 0)

    def fill(step: Any) -> None:
        """Starts the thread's copies of `step`, if there is one."""
        with emit.when(emit.compare("less", step, steps)):
            turn = ring.turn(step)
            turn.wait_until_empty()
            for part in parts:
                part.fill(shared, turn.start, arith.extui(emit.integer(64), step))
            _arrive(turn, parts)

    def step(number: Any, sums: Any) -> Sequence[Any]:
        turn = ring.turn(number)
        turn.wait_until_full()
        a = units.a(shared.at(turn.start + rows))
        b = units.b(shared.at(turn.start + tile.b_place), tile.depth * _staging.LINE)
        _warpgroup.fence()
        for i in range(tile.depth // tile.kind.depth):
            sums = units.multiply(sums, units.a_slice(a, i), units.b_slice(b, i))
        _warpgroup.commit()
        _warpgroup.wait(1)  # This step goes on, the one before it is done.
        with emit.when(emit.compare("greater", number, 0) & speaks):
            ring.turn(number - 1).arrive_empty()
        fill(number + (ring.stages - 1))
        return [sums]

    zero, one = emit.constant(word, 0), emit.constant(word, 1)
    for number in emit.loop(zero, emit.constant(word, ring.stages - 1), one):
        fill(number)
    (sums,) = emit.carry(zero, steps, one, [units.zeros()], step)
    _warpgroup.wait(0)
    return units.parts(sums)


def _arrive(turn: _warpgroup.Turn, parts: Sequence[_staging.Lines]) -> None:
    """Arrives when the thread's copies do; where some had to be stored, after a wait for all."""

    def stored() -> Sequence[Any]:
        _mma.commit()
        _mma.wait(0)
        turn.arrive_full()
        return []

    def copied() -> Sequence[Any]:
        turn.arrive_after_copies()
        return []

    if any(part.whole is None for part in parts):
        stored()
    else:
        a, b = parts
        emit.either(a.whole & b.whole, [], copied, stored)


def _write(
    frame: _frame.Frame,
    tile: _tiles.Tile,
    shared: _mma.DynamicShared,
    sums: Sequence[Any],
    where: Place,
) -> None:
    """Writes the sums: a warp its 16 rows, as many columns at a time as fit a line.

    They go where the warp's rows of a were in the first stage: nobody else reads or writes there.
    """
    write = frame.writer()
    dtype = frame.spec.result.dtype
    lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
    panel = _Panel(shared, dtype, warp * (_WARP_ROWS * _staging.LINE), lane)
    first_row = where.row + warp * _WARP_ROWS

    def body(lanes: int) -> None:
        across = panel.columns // lanes
        for first in range(0, tile.columns, panel.columns):
            _warpgroup.meet_in_warp()  # All lanes have read the panel before.
            panel.store(sums[first // 2 : (first + panel.columns) // 2])
            _warpgroup.meet_in_warp()
            for index in emit.loop(lane, _WARP_ROWS * across, _block.WARP):
                row, column = index // across, index % across * lanes
                right = where.column + first + column
                inside = emit.compare("less", first_row + row, where.m)
                with emit.when(inside & emit.compare("less", right, where.n)):
                    value = panel.load(row, column, lanes)
                    write(value, (where.number * where.m + first_row + row) * where.n + right)

    _frame.in_vectors(frame, [write.inputs], [where.n], body, most=panel.each)


class _Panel:
    """Lines of a warp's 16 rows of results as `dtype`, from byte `start` of shared memory on."""

    def __init__(self, shared: _mma.DynamicShared, dtype: str, start: Size, lane: Size) -> None:
        self._shared, self._dtype, self._start, self._lane = shared, dtype, start, lane
        self._item = emit.ITEM_SIZE[dtype]
        self.each = _mma.CHUNK // self._item
        self.columns = _staging.LINE // self._item

    def store(self, sums: Sequence[Any]) -> None:
        """Puts the thread's sums, as `_warpgroup.Matrices.parts` has them, of all columns."""
        lane, pairs = self._lane, [sums[i : i + 2] for i in range(0, len(sums), 2)]
        if self._item == 2:
            words = [_warpgroup.packed(pair, self._dtype) for pair in pairs]
            for i in range(0, len(words), 4):  # Rows 0 and 8, then the same 8 columns on.
                target = self._at(lane % _WARP_ROWS, lane // _WARP_ROWS + i // 2)
                _warpgroup.store_matrices(words[i : i + 4], self._shared.at(target))
            return
        for i, pair in enumerate(pairs):
            chunk = lane % 4 // 2 + i // 2 * 2
            target = self._at(lane // 4 + i % 2 * 8, chunk) + lane % 2 * 8
            self._shared.store(vector.from_elements(emit.widen(pair[0].type, 2), pair), target)

    def load(self, row: Size, column: Size, lanes: int) -> Any:
        """Neighbouring results, in registers."""
        place = self._at(row, column // self.each) + column % self.each * self._item
        stored = self._shared.load(place, emit.memory_type(self._dtype), lanes)
        return convert.from_memory(stored, self._dtype)

    def _at(self, row: Size, chunk: Size) -> Size:
        within = _staging.swizzled(row, chunk, _staging.LINE)
        return self._start + row * _staging.LINE + within * _mma.CHUNK
