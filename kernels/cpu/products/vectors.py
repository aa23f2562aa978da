"""Products of panels on vectors: the loop along k that all dtypes share (see `panels`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products import asks as products_asks
from heddle.kernels.cpu.products import deep, few, panels, staged
from heddle.kernels.cpu.products.blocks import PANEL, Rows, Tile, last_word
from heddle.kernels.cpu.products.sides import TOGETHER
from heddle.kernels.cpu.products.tile import Step, add_products, copies_of, merged, rows_of
from heddle.kernels.sizes import Size


def emit_products(frame: host.Frame, step: Step, tasks: type[panels.Tasks] = panels.Tasks) -> None:
    """Emits a kernel whose rows are cut by `tasks`.

    A step along k is one element of a, or a word of 32 bits with the group of elements that b has
    side by side.
    """
    spec = frame.spec
    element, k = spec.operands[0].dtype, frame.size(spec.operands[0].shape[-1])
    lanes = host.lanes_for(frame.machine, [step.sums])
    own = _left(tasks, step)(frame, lanes, step.sums)
    if frame.machine.vector_bytes == 32 and element != "float64":
        for _ in own.runs():
            pass  # nothing is left
        return
    multiply = on_vectors(own, step)
    if deep.fits(spec, frame.machine):
        steps = sizes.ceildiv(k, panels.group_of(spec))
        deep.emit_runs(own, steps, partial(adder, frame, step, k), multiply)
    else:
        panels.emit_blocks(own, multiply)


def on_vectors(tasks: panels.Tasks, step: Step) -> panels.Multiply:
    """What emits the sums of a block, tile by tile of registers, and what writes them."""
    frame = tasks.frame
    element, k = frame.spec.operands[0].dtype, frame.size(frame.spec.operands[0].shape[-1])

    def left(tile: Tile, r: int, place: Any) -> Any:
        return memory.at(frame.inputs[0], (tile.row + r) * k + place, element)

    steps = sizes.ceildiv(k, panels.group_of(frame.spec))
    return panels.stretches(tasks, steps, adder(frame, step, k, left))


def _left(kind: type[panels.Tasks], step: Step) -> type[panels.Tasks]:
    """Tasks of `kind` that are left where some rows are multiplied in another way."""

    class Rest(kind):  # type: ignore[misc, valid-type]
        def runs(self) -> Iterator[tuple[Rows, Size, Size]]:
            others: list[few.Few | staged.Staged] = []
            if few.fits(self):
                others.append(few.Few(self, step))
            if staged.fits(self.frame.spec, self.frame.machine):
                others.append(staged.Staged(self, step))
            for rows, first, last in super().runs():
                for other in others:
                    first = other.compute(rows, first, last)
                yield rows, first, last

    return Rest


def adder(
    frame: host.Frame,
    step: Step,
    k: Size,
    left: Callable[[Tile, int, Any], Any],
    following: Size | None = None,
) -> Callable[[Tile, Size, Size, Sequence[Any]], list[Any]]:
    """What adds steps to a tile's sums; see `panels.stretches`.

    `left(tile, r, place)` is the pointer to element `place`, of `k`, of row r of the tile.
    `following` bytes behind a stretch of b is the one that comes next; None: its panel goes on, and
    so do the rows of a in memory.
    """
    spec = frame.spec
    b, element, group = frame.inputs[1], spec.operands[0].dtype, panels.group_of(spec)
    whole, steps = sizes.floordiv(k, group), sizes.ceildiv(k, group)
    wide, right = (operand.dtype if group == 1 else "uint32" for operand in spec.operands[:2])
    lanes = host.lanes_for(frame.machine, [step.sums])
    zero = emit.constant(emit.register_type(step.sums), 0, lanes)

    def add_steps(tile: Tile, start: Size, stop: Size, before: Sequence[Any]) -> list[Any]:
        size = emit.ITEM_SIZE[element]
        # What each step would ask for, and its address, takes as many slots as its loads; few rows
        # by vectors of 64 bytes wait for memory anyhow.
        several = tile.height >= rows_of(frame.machine) // 2
        turn = TOGETHER if several or frame.machine.vector_bytes == 32 else 1
        asks = []
        if tile.column is not None:
            asks.append(products_asks.own_elements(frame, tile, start, stop, lanes))
        if following is None:
            asks.append(products_asks.next_rows(frame, tile, k, group))
        if tile.part == 0:  # the columns beside them lie in the same lines, or the next
            width = PANEL * emit.ITEM_SIZE[right]
            behind = (stop - start) * width if following is None else following
            ahead = start, stop, steps, width, behind, turn
            asks.append(products_asks.next_stretch(frame, tile, *ahead))

        def left_at(r: int, at: Any) -> Any:
            place = left(tile, r, at * group)
            return emit.splat(memory.load(place, 0, wide, alignment=size), lanes)

        def last_at(r: int, at: Any) -> Any:
            """The last word of a row, zero beyond k."""
            place = left(tile, r, at * group)
            return emit.splat(last_word(place, k - at * group, element, group), lanes)

        def right_at(at: Any) -> list[Any]:
            if turn == 1:
                ask_all(at)
            first = (tile.panel * steps + at) * PANEL + tile.part
            return [memory.load(b, first + i * lanes, right, lanes) for i in range(tile.vectors)]

        def ask_all(at: Any) -> None:
            for ask in asks:
                ask(at)

        # Tiles of one block may differ in height by one, and in width; a row's bits must not depend
        # on that.
        copies = 1 if several else copies_of(2 * tile.height, step.latency)
        words_only = group == 1 or (isinstance(k, int) and k % group == 0)
        full = stop if words_only else sizes.least(stop, whole)
        together = max(copies, turn)
        main = full - sizes.mod(full - start, together)
        sums = [*before, *[zero] * (len(before) * (copies - 1))]
        add, ask_turn = step.add_all, None if turn == 1 else ask_all
        sums = add_products(sums, start, main, left_at, right_at, together, add, copies, ask_turn)
        sums = merged(sums, copies)
        if together > 1:
            sums = add_products(sums, main, full, left_at, right_at, 1, add)
        if not words_only:
            sums = add_products(sums, full, stop, last_at, right_at, 1, add)
        return sums

    return add_steps
