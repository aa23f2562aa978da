"""Products with a right side in panels of 32 columns, task by task.

A task is up to 64 rows of a by one panel, as even as may be. Its sums are on the stack, in
row-major order, until they are complete; then the epilogue reads them, whose code is so there once
(`results`). Tasks go along the panels for one block of rows.

Without AMX a block is done in register tiles of two vectors by up to 12 rows (AVX-512) or 6: each
step along k takes two vectors of b and spreads one element of each row of a. A block of more than
one tile goes through k in stretches, so that its part of the panel stays in the second cache
from tile to tile. The result of a tile is written when its sums are complete: lines that are not in
the first cache then arrive while the next tile is multiplied, and no queue of stores fills up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heddle.kernels import bodies, emit, host, memory, sizes
from heddle.kernels.cpu.products.blocks import (
    PANEL,
    Block,
    Rows,
    Tile,
    strips,
    tiles,
)
from heddle.kernels.cpu.products.results import Results
from heddle.kernels.cpu.products.tile import rows_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product
from heddle.kernels.tuning import Parameter, Space

BLOCK = 64
"""Rows of a task at most: 6 register tiles of 10 or 11. Heights that are powers of two are shared
evenly among threads so."""

GROUPS = {"bfloat16": 2, "uint8": 4}
"""Elements along k that lie together in b, by the dtype of a."""

SET_APART, WAYS = 4096, 8
"""Bytes after which lines share a set of the first cache where it has 32 KiB, and how many such
lines it keeps: of the 12 rows of a tile that lie so, none would stay for its next step."""

SPACE = Space(
    (Parameter("ahead", (4, 8, 12, 16, 24), 12), Parameter("stretch", (64, 128, 192, 256), 192)),
    lambda spec: _sizes(spec),
)
"""In KiB. `ahead`: between what a block of one tile reads of b and what it asks for: memory answers
meanwhile. `stretch`: of a panel, what a block of several tiles goes through before the next."""


def uses_of_bfloat16(spec: Spec) -> tuple[str, ...]:
    """Dot products and tiles multiply bfloat16 alone."""
    return ("dots", "tiles") if spec.operands[0].dtype == "bfloat16" else ()


def launch(spec: Spec, block: int = BLOCK) -> Launch:
    """One task for each `block` rows of each panel of each batch."""
    batch, m, k = extents(spec)
    panels = fold("ceildiv", spec.result.shape[-1], PANEL)
    tasks = product((batch, fold("ceildiv", m, block), panels))
    each = fold("add", fold("mul", k, 2), bodies.work(spec.epilogue))
    operations = product((batch, m, spec.result.shape[-1], each))
    # A few rows are bound by reading b.
    read = product((*spec.operands[1].shape, emit.ITEM_SIZE[spec.operands[1].dtype]))
    return Launch((tasks, 1, 1), fold("max", operations, read))


class Tasks(Results):
    """The blocks of a kernel's tasks, and where their sums go."""

    even = True  # All blocks but the last have about as many rows.

    def __init__(self, frame: host.Frame, lanes: int, dtype: str, block: int = BLOCK) -> None:
        super().__init__(frame, lanes, dtype)
        self.batch, self.m, _ = frame.shape(extents(frame.spec))
        self.blocks = sizes.ceildiv(self.m, block)
        self.most = min(block, self.m) if isinstance(self.m, int) else block
        self.heights = self._heights(block)
        self._block = block

    def _heights(self, block: int) -> Sequence[int]:
        """How many rows a block may have, those without rows aside."""
        if not isinstance(self.m, int) or block != BLOCK:
            return range(1, self.most + 1)
        tall = self._each()
        return [height for height in (tall, self.m - (max(self.blocks, 1) - 1) * tall) if height]

    def runs(self) -> Iterator[tuple[Rows, Size, Size]]:
        """Emits the Python body of a `for rows, first, last in` this.

        The tasks are these rows by their panels from `first` to `last - 1`.
        """
        along = sizes.greatest(self.panels, 1)  # without columns there are no tasks
        start, stop = self.frame.first // along, sizes.ceildiv(self.frame.last, along)
        for number in emit.loop(start, stop):
            before = number * along
            first = sizes.greatest(self.frame.first - before, 0)
            yield self.rows(number), first, sizes.least(self.frame.last - before, along)

    def rows(self, number: Size) -> Rows:
        """The rows of number `number`, of those of all batches."""
        item, part = sizes.split(number, (self.batch, self.blocks))
        tall = self._tall()
        top = part * tall
        height = sizes.greatest(sizes.least(tall, self.m - top), 0)
        panel = item * self.panels if batched(self.frame.spec) else emit.index(0)
        return Rows(item * self.m + top, height, panel)

    def _tall(self) -> Size:
        """Rows of all blocks but the last: as even as may be; those of AMX have pairs of tiles."""
        whole = 1 if self._block == BLOCK else 32
        return emit.as_index(sizes.ceildiv(self._each(), whole) * whole)

    def _each(self) -> Size:
        """Rows that a block has in the mean, rounded up."""
        return sizes.ceildiv(self.m, sizes.greatest(self.blocks, 1))

    def block(self, rows: Rows, panel: Size) -> Block:
        """Some rows by panel number `panel` of theirs."""
        first, column = rows.panel + panel, panel * PANEL
        return Block(rows.row, rows.height, first, column)

    def written(self, rows: Rows, first: Size, last: Size, sums: Any) -> Iterator[Block]:
        """Emits the Python body of a `for block in` this: some rows by their panels, one by one.

        What the body leaves in `sums` is written behind it, where lines were asked for before it.
        """
        for panel in emit.loop(first, last):
            block = self.block(rows, panel)
            self.ask(block)
            yield block
            self.write(block, sums)


Add = Callable[[Tile, Size, Size, Sequence[Any]], Sequence[Any]]
"""The sums of a tile with some steps added: see `stretches`."""

Multiply = Callable[[Tasks, Block, Any], None]
"""Emits the sums of a block and what writes them, given where they have room, in rows of 32."""


def emit_blocks(tasks: Tasks, multiply: Multiply) -> None:
    """Emits the loop over tasks."""
    sums = host.byte_buffer(tasks.most * PANEL * emit.ITEM_SIZE[tasks.dtype])
    for part, first, last in tasks.runs():
        for panel in emit.loop(first, last):
            multiply(tasks, tasks.block(part, panel), sums)


def stretches(
    tasks: Tasks,
    steps: Size,
    add: Add,
) -> Multiply:
    """What emits the sums of a block, whose rows are read in place, by a loop over stretches of k.

    `add` gives the sums with those of some steps added. It is called with a tile, the first step,
    the one after the last, and the sums before.
    """
    frame, several = tasks.frame, _several(tasks.frame.spec)

    def block_at(tasks: Tasks, block: Block, scratch: Any) -> None:
        size = PANEL * emit.ITEM_SIZE[frame.spec.operands[1].dtype] * group_of(frame.spec)
        most = (SPACE.value("stretch", frame.spec, frame.machine.arch) << 10) // size
        if isinstance(steps, int) and steps <= most:
            add_stretch(tasks, block, scratch, None, steps, steps, add, several)
            return
        whole = sizes.greatest(steps, 1)  # without steps the result is zero
        parts = sizes.ceildiv(whole, most)
        one = emit.compare("less_equal", emit.as_index(block.height), rows_of(frame.machine))
        depth = emit.select(one, emit.as_index(whole), sizes.ceildiv(whole, parts))
        for start in emit.loop(0, whole, depth):
            stop = sizes.least(start + depth, steps)
            add_stretch(tasks, block, scratch, start, stop, steps, add, several)

    return block_at


def _several(spec: Spec) -> int | None:
    """Rows of a tile, where there is more than one, whose rows push each other out of the cache."""
    k = spec.operands[0].shape[-1]
    apart = isinstance(k, int) and k * emit.ITEM_SIZE[spec.operands[0].dtype] % SET_APART == 0
    return WAYS if apart else None


def add_stretch(
    results: Results,
    block: Block,
    scratch: Any,
    start: Size | None,
    stop: Size,
    steps: Size,
    add: Add,
    several: int | None = None,
) -> None:
    """Emits the sums of a block with a stretch of its `steps`, and writes those that are complete.

    A `start` of None says that it is the only one. For `add` see `stretches`, for `several` rows of
    a tile `Shares`.
    """
    frame, lanes, dtype = results.frame, results.lanes, results.dtype
    begin, complete = 0 if start is None else start, True
    if start is not None:
        # The sums before the first stretch are zero, whatever lies in memory.
        kept = emit.select(emit.compare("greater", start, 0), emit.index(lanes), 0)
        mask = host.first_lanes(kept, lanes)
        complete = emit.compare("equal", emit.as_index(stop), steps)
    for strip in strips(frame, block, lanes, several):
        for tile in tiles(frame, strip, widths=results.widths(strip)):
            places = tile.places(lanes)
            if start is None:
                before = [emit.constant(emit.register_type(dtype), 0, lanes)] * len(places)
            else:
                before = [memory.load(scratch, place, dtype, lanes, mask) for place in places]
            for place, value in zip(places, add(tile, begin, stop, before), strict=True):
                memory.store(value, scratch, place, dtype)
        results.write_strip(strip, scratch, complete)


def group_of(spec: Spec) -> int:
    """How many elements along k lie together in b: those of a are pairs or fours of 32 bits."""
    return GROUPS.get(spec.operands[0].dtype, 1)


def _sizes(spec: Spec) -> dict[str, Expr]:
    batch, m, k = extents(spec)
    return {"b": batch, "m": m, "n": spec.result.shape[-1], "k": k}


def extents(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """Batch, m and k; a b without leading dims makes all of a's rows one m."""
    *leading, m, k = spec.operands[0].shape
    if not batched(spec):
        return 1, product((*leading, m)), k
    return product(tuple(leading)), m, k


def batched(spec: Spec) -> bool:
    """Whether b has leading dims before those of its panels, which end with a group if it has one.

    That is not a's: weights of 8 bits lie in fours for any dtype of a.
    """
    shape = spec.operands[1].shape
    return len(shape) > (3 if shape[-1] == PANEL else 4)
