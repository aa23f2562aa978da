"""What a tile asks memory for beside its steps along k, while it multiplies: prefetches.

They are spread over the loop: all at once they would fill the queue of misses, and the loop's own
reads would wait behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import emit, host, memory
from heddle.kernels.cpu import _panels
from heddle.kernels.cpu._blocks import Tile, touched
from heddle.kernels.cpu._tile import rows_of
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size

Ask = Callable[[Any], None]
"""Emitted at each step, with its number."""

SEVERAL = {32: 2, 64: 6}
"""Rows of a tile, by the bytes of a vector, that take so long with a line of b that the second
cache brings the next one meanwhile. Asked into the first one, lines would wait for a place in its
short queue of misses."""

FRACTION = 16
"""Bits behind the point of numbers that grow by less than one in a step."""


def cache_for(tile: Tile, machine: Machine) -> int:
    """The level of cache that a tile's part of b is asked into."""
    return 1 if tile.height < SEVERAL[machine.vector_bytes] else 2


def next_stretch(
    frame: host.Frame,
    tile: Tile,
    start: Size,
    stop: Size,
    steps: Size,
    size: int,
    following: Size,
    turn: int,
) -> Ask:
    """Asks for the stretch of b that comes `following` bytes behind this one, once in `turn` steps.

    Tiles share it by their rows, so that memory is busy at all times. A block of one tile has no
    stretches, and asks for what comes soon. A step of b takes `size` bytes, a panel `steps`.
    """
    rows = emit.maximum(emit.as_index(tile.all_rows), 1)
    one = emit.compare("less_equal", rows, rows_of(frame.machine))
    soon = _panels.SPACE.value("ahead", frame.spec, frame.machine.arch) << 10
    ahead = emit.select(one, soon, emit.as_index(following))
    # Depends on the block alone, which so divides once for all of its tiles.
    share = emit.index(size << FRACTION) // rows
    pace = share * tile.height >> FRACTION
    before = (stop - start) * (share * tile.top >> FRACTION)
    first = (tile.panel * steps + start) * size + ahead + before - pace * start
    level = cache_for(tile, frame.machine)

    def ask(step: Any) -> None:
        for place in (0, pace // 2) if turn == 1 else (0, LINE):
            memory.prefetch(frame.inputs[1], first + pace * step + place, "int8", level)
        if turn > 1:  # tiles of a few share more than two lines
            with emit.when(emit.compare("less", rows, size * turn * tile.height // (2 * LINE))):
                for line in range(2, size * turn // LINE):
                    place = first + pace * step + line * LINE
                    memory.prefetch(frame.inputs[1], place, "int8", level)

    return ask


def next_rows(frame: host.Frame, tile: Tile, k: Size, each: int) -> Ask:
    """Asks for as many rows of a behind the tile's as it has: `each` elements of a row in a step.

    The rows of the next tile, or of the next block.
    """
    first, dtype = (tile.row + tile.height) * k, frame.spec.operands[0].dtype

    def ask(step: Any) -> None:
        memory.prefetch(frame.inputs[0], first + step * (each * tile.height), dtype, level=2)

    return ask


def own_elements(frame: host.Frame, tile: Tile, start: Size, stop: Size, lanes: int) -> Ask:
    """Asks for what the epilogue will read and write at the tile's elements, row after row.

    Else each row would wait for memory, and the queue of stores would fill up.
    """
    wanted, n = touched(frame), frame.size(frame.spec.result.shape[-1])
    rise = emit.index(tile.height << FRACTION) // emit.maximum(emit.as_index(stop - start), 1)

    def ask(step: Any) -> None:
        row = (step - start) * rise >> FRACTION
        place = (tile.row + row) * n + tile.column
        for pointer, dtype in wanted:
            for line in range(0, tile.vectors * lanes, LINE // emit.ITEM_SIZE[dtype]):
                memory.prefetch(pointer, place + line, dtype, level=2)

    return ask
