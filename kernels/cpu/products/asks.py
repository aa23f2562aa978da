"""What a tile asks memory for beside its steps along k, while it multiplies: prefetches.

They are spread over the loop: all at once they would fill the queue of misses, and the loop's own
reads would wait behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import emit, host, memory
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.blocks import Tile, touched
from heddle.kernels.cpu.products.tile import rows_of
from heddle.kernels.memory import LINE
from heddle.kernels.registry import find
from heddle.kernels.sizes import Size

Ask = Callable[[Any], None]
"""Emitted at each step, with its number."""

SEVERAL = {32: 2, 64: 6}
"""Rows of a tile, by the bytes of a vector, that take so long with a line of b that the second
cache brings it before the first one is asked: that has a short queue of misses, in which lines
would wait for memory."""

FURTHER = 4 << 10
"""Bytes from what is asked for in the first cache to what is asked for in the second one."""

FRACTION = 16
"""Bits behind the point of numbers that grow by less than one in a step."""


def of_tile(tile: Tile, frame: host.Frame) -> tuple[memory.Ask, ...]:
    """What a tile asks the caches for where it asks for a line of b.

    CPUs with AMX bring lines from memory faster into the second cache at any height; kernels whose
    code differs there know of it.
    """
    machine, kernel = frame.machine, find(frame.spec.op, "cpu")
    tiled = machine.tiles and kernel is not None and "tiles" in kernel.uses(frame.spec)
    both = tiled or tile.height >= SEVERAL[machine.vector_bytes]
    return (memory.Ask(1), memory.Ask(2, FURTHER)) if both else (memory.Ask(1),)


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
    soon = panels.SPACE.value("ahead", frame.spec, frame.machine.arch) << 10
    ahead = emit.select(one, soon, emit.as_index(following))
    # Depends on the block alone, which so divides once for all of its tiles.
    share = emit.index(size << FRACTION) // rows
    pace = share * tile.height >> FRACTION
    before = (stop - start) * (share * tile.top >> FRACTION)
    first = (tile.panel * steps + start) * size + ahead + before - pace * start
    asks = of_tile(tile, frame)

    def lines(place: Any, numbers: range) -> None:
        for each in asks:
            for n in numbers:
                each.beside(frame.inputs[1], place + n * LINE, "int8")

    def begun(place: Any, read: Any) -> None:
        """Asks for the lines that begin in a step; else for one that it reads, which is cheap."""
        for n in range(0, size, LINE):
            begins = emit.compare("less", place & (LINE - 1), pace - n)
            for each in asks:
                wanted = emit.select(begins, place + (n + each.nbytes), read)
                memory.prefetch(frame.inputs[1], wanted, "int8", each.level)

    def ask(step: Any) -> None:
        place = first + pace * step
        if turn == 1:
            begun(place, (tile.panel * steps + step) * size)
            return
        lines(place, range(2))
        # Tiles of a few share more than two lines.
        with emit.when(emit.compare("less", rows, size * turn * tile.height // (2 * LINE))):
            lines(place, range(2, size * turn // LINE))

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
