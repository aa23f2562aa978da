"""a @ b for a b that `pack_b` laid out in panels of 32 columns.

A task is 12 rows by one panel, done in register tiles of two vectors by 12 rows (AVX-512) or 6:
each step along k loads two vectors of b and spreads one element of each row of a. A tile goes
through the stack once, so that the epilogue's code is there once and its data still in L1.
Tasks run down the rows of one panel, which thus stays in cache, within bands of 192 rows.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, sizes
from heddle.kernels.cpu._tile import ROWS, add_products, rows_of
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

PANEL = 32
"""Columns of a panel of packed b."""

BAND = 16
"""Tasks down the rows before the next panel."""


def launch(spec: Spec) -> Launch:
    """One task for each 12 rows of each panel of each batch."""
    batch, m, k = _extents(spec)
    panels = fold("ceildiv", spec.result.shape[-1], PANEL)
    tasks = product((batch, fold("ceildiv", m, ROWS), panels))
    each = fold("add", fold("mul", k, 2), bodies.work(spec.epilogue))
    operations = product((batch, m, spec.result.shape[-1], each))
    # A few rows are bound by reading b.
    read = product((*spec.operands[1].shape, emit.ITEM_SIZE[spec.operands[1].dtype]))
    return Launch((tasks, 1, 1), fold("max", operations, read))


def emit_matmul(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks, then over the register tiles of a task."""
    frame = host.frame(spec, machine)
    a, b = frame.inputs[:2]
    dtype = spec.operands[0].dtype
    lanes = host.lanes_for(machine, [dtype])
    tile_rows = rows_of(machine)
    batch, m, k = (frame.size(extent) for extent in _extents(spec))
    n = frame.size(spec.result.shape[-1])
    shared_b = len(spec.operands[1].shape) == 3
    panels, blocks = sizes.ceildiv(n, PANEL), sizes.ceildiv(m, ROWS)
    scratch = host.byte_buffer(tile_rows * 2 * machine.vector_bytes)
    finish = rows.Finish(frame, lanes)

    for task in emit.loop(frame.first, frame.last):
        item, in_batch = sizes.split(task, (batch, panels * blocks))
        block, panel = _place(in_batch, blocks, panels)
        row = block * ROWS
        a_start = (item * m + row) * k
        b_start = (panel if shared_b else item * panels + panel) * k * PANEL
        for part in range(0, PANEL, 2 * lanes):
            for top in range(0, ROWS, tile_rows):
                left = m - row - top
                for height in range(tile_rows, 0, -1):
                    relation = "greater_equal" if height == tile_rows else "equal"
                    with emit.when(emit.compare(relation, left, height)):
                        total = _tile(
                            (a, a_start + k * top), (b, b_start + part), dtype, k, height, lanes
                        )
                        for number, value in enumerate(total):
                            memory.store(value, scratch, number * lanes, _wide(dtype))
                for r in emit.loop(0, sizes.least(left, tile_rows)):
                    at = finish.row(item * m + row + top + r)
                    for half in range(2):
                        column = panel * PANEL + (part + half * lanes)
                        place = r * (2 * lanes) + half * lanes
                        value = memory.load(scratch, place, _wide(dtype), lanes)
                        at(column, finish.mask(column, n, PANEL), value)


def _tile(
    a: tuple[Any, Any], b: tuple[Any, Any], dtype: str, k: Size, height: int, lanes: int
) -> list[Any]:
    """The sums of `height` rows by two vectors; few rows take several k at once to hide latency."""
    together = max(1, 4 // height)
    count = 2 * height
    zero = emit.constant(emit.register_type(dtype), 0, lanes)

    def left_at(r: int, step: Any) -> Any:
        return emit.splat(memory.load(a[0], a[1] + k * r + step, dtype), lanes)

    def right_at(step: Any) -> list[Any]:
        row = b[1] + step * PANEL
        return [memory.load(b[0], row + half * lanes, dtype, lanes) for half in range(2)]

    whole = k - sizes.mod(k, together)
    zeros = [zero] * (count * together)
    sums = add_products(zeros, 0, whole, left_at, right_at, together)
    first = sums[:count]
    for number, value in enumerate(sums[count:]):
        first[number % count] = first[number % count] + value
    return add_products(first, whole, k, left_at, right_at) if together > 1 else first


def _place(task: Size, blocks: Size, panels: Size) -> tuple[Size, Size]:
    """The row block and the panel of a task: down a band of blocks, then the next panel."""
    band, within = sizes.floordiv(task, panels * BAND), sizes.mod(task, panels * BAND)
    height = sizes.least(emit.index(BAND), blocks - band * BAND)
    panel, block = within // height, within % height
    return band * BAND + block, panel


def _extents(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """Batch, m and k; a b without leading dims makes all of a's rows one m."""
    *leading, m, k = spec.operands[0].shape
    if len(spec.operands[1].shape) == 3:
        return 1, product((*leading, m)), k
    return product(tuple(leading)), m, k


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def supports(spec: Spec) -> str | None:
    """Floats; no prologue, which would be computed again for each panel."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"wanted floats, got {spec.operands[0].dtype}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("matmul_packed", "cpu", emit_matmul, launch, supports)
