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

arith = dialect("arith")

_WARPGROUPS = _staging.THREADS // _warpgroup.THREADS
_NARROW = 128  # Columns of tiles of which two blocks fit a multiprocessor.
_WARP_ROWS = 16
_PANEL = _staging.LINE // 2  # Columns of a line of results.


def fits(tile: _tiles.Tile) -> bool:
    """Whether wgmma multiplies these dtypes here."""
    return tile.kind.a in ("f16", "bf16")


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
    units = _warpgroup.Matrices(tile.kind.a, tile.columns, tile.transposed)
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
        for i in range(tile.depth // _warpgroup.DEPTH):
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
    """Writes the sums, 16 rows by 64 columns of a warp at a time, through shared memory.

    They go where the warp's rows of a were in the first stage: nobody else reads or writes there.
    """
    write = frame.writer()
    dtype = frame.spec.result.dtype
    lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
    mine = warp * (_WARP_ROWS * _staging.LINE)
    first_row = where.row + warp * _WARP_ROWS

    def place(row: Size, chunk: Size) -> Size:
        within = _staging.swizzled(row, chunk, _staging.LINE)
        return mine + row * _staging.LINE + within * _mma.CHUNK

    def body(lanes: int) -> None:
        across = _PANEL // lanes
        for panel in range(tile.columns // _PANEL):
            _warpgroup.meet_in_warp()  # All lanes have read the panel before.
            values = sums[panel * _PANEL // 2 :][: _PANEL // 2]
            words = [_warpgroup.packed(values[i : i + 2], tile.kind.a) for i in range(0, 32, 2)]
            for i in range(0, 16, 4):
                target = place(lane % _WARP_ROWS, lane // _WARP_ROWS + i // 2)
                _warpgroup.store_matrices(words[i : i + 4], shared.at(target))
            _warpgroup.meet_in_warp()
            for index in emit.loop(lane, _WARP_ROWS * across, _block.WARP):
                row, column = index // across, index % across * lanes
                right = where.column + panel * _PANEL + column
                inside = emit.compare("less", first_row + row, where.m)
                with emit.when(inside & emit.compare("less", right, where.n)):
                    within = column % tile.kind.each * tile.kind.item
                    source = place(row, column // tile.kind.each) + within
                    stored = shared.load(source, emit.memory_type(dtype), lanes)
                    value = convert.from_memory(stored, dtype)
                    write(value, (where.number * where.m + first_row + row) * where.n + right)

    _frame.in_vectors(frame, [write.inputs], [where.n], body, most=tile.kind.each)
