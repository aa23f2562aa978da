"""a @ b for weights in 8 or 4 bits, in panels of 32 columns (`products.panels`), each group scaled.

A group's sums are scaled once, when they are complete: a weight is so never rounded, and a scale
costs little. AVX-512 multiplies in registers (see `products.narrow`). With AMX most rows of
bfloat16 are multiplied in tiles instead (see `amx.narrow`, and for up to 16 `amx.narrow_bytes` and
`amx.narrow_few`); AVX2 has a file of its own (see `products.avx2_narrow`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import emit, host
from heddle.kernels.cpu.amx import narrow as amx_narrow
from heddle.kernels.cpu.amx import narrow_bytes, narrow_few, products
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.cpu.products import avx2_narrow, beside, narrow, panels
from heddle.kernels.cpu.products.blocks import Rows
from heddle.kernels.cpu.products.groups import unsupported
from heddle.kernels.cpu.products.narrow_weights import RIGHT
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold


def emit_quantized(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    for frame in beside.frames(spec, machine):
        emit_blocks(frame, Tasks)


def emit_blocks(frame: host.Frame, kind: type[Tasks]) -> None:
    """Emits the products of all blocks of tasks of such a kind."""
    if frame.machine.vector_bytes == 32:
        avx2_narrow.emit_blocks(frame, kind)
        return
    lanes = host.lanes_for(frame.machine, ["float32"])
    tasks = kind(frame, lanes, "float32")
    product = narrow.Product(tasks)
    if not product.in_tiles:
        narrow.emit_blocks(tasks, product)
        return
    run = amx_narrow.Run(frame, tasks, product.right)
    ways = _ways_of_few(frame, tasks, product, run.sums(0))
    for rows, first, last in tasks.runs():
        height, least = emit.as_index(rows.height), emit.index(0)
        for most, compute in ways:
            within = emit.compare("less_equal", height, most)
            with emit.when(emit.compare("greater", height, least) & within):
                compute(rows, first, last)
            least = emit.index(most)
        with emit.when(emit.compare("greater", height, least)):
            run.compute(rows, first, last)


Compute = Callable[[Rows, Size, Size], None]
"""Emits the results of rows by their panels from one number to before another."""


def _ways_of_few(
    frame: host.Frame, tasks: Tasks, product: narrow.Product, room: Any
) -> list[tuple[int, Compute]]:
    """How few rows are multiplied where there are tiles: up to how many of them, by what."""

    def one_by_one(rows: Rows, first: Size, last: Size) -> None:
        for r in emit.loop(0, rows.height):
            row = Rows(rows.row + r, emit.index(1), rows.panel)
            product.stage(row)
            for panel in emit.loop(first, last):
                product.multiply(tasks, tasks.block(row, panel), room)

    ways: list[tuple[int, Compute]] = [(narrow.FEW, one_by_one)]
    most = narrow_bytes.most(frame)
    if most:
        least = narrow_bytes.LEAST[frame.spec.operands[1].dtype]
        of_bytes = narrow_bytes.Few(frame, tasks)

        def as_bytes(rows: Rows, first: Size, last: Size) -> None:
            enough = emit.compare("greater_equal", emit.as_index(rows.height), least)
            (possible,) = emit.either(
                enough, [enough.type], lambda: [of_bytes.begin(rows, first)], lambda: [enough]
            )
            with emit.when(possible):
                of_bytes.compute(rows, first, last)
            with emit.when(possible ^ 1):
                one_by_one(rows, first, last)

        ways = [(most, as_bytes)]
    if ways[-1][0] < TILE_ROWS and narrow_few.fits(frame):
        ways.append((TILE_ROWS, narrow_few.Few(frame, tasks, product.right).compute))
    return ways


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """A thread takes a run of panels, which share rows on the stack: with AMX, and of 13 to 16.

    With AMX twice as many beside few rows: it takes less time to go through them, and as long to
    begin.
    """
    _, m, _ = panels.extents(spec)
    if machine.tiles and "tiles" in panels.uses_of_bfloat16(spec):
        runs = fold("min", 2, fold("floordiv", 2 * narrow_bytes.HEIGHTS[-1], fold("max", m, 1)))
        return beside.launch(spec, together=fold("mul", products.RUN, fold("max", runs, 1)))
    if machine.vector_bytes == 64:
        return beside.launch(spec, together=narrow.together(m, machine))
    return None


def supports(spec: Spec) -> str | None:
    """Whole groups of int8, of 4 bits in uint32, or of 8-bit floats; no prologue."""
    a, weights = (operand.dtype for operand in spec.operands[:2])
    if a not in ("float32", "bfloat16") or weights not in RIGHT:
        return f"wanted float32 or bfloat16 by {', '.join(RIGHT)}, got {a} by {weights}"
    return unsupported(spec)


KERNEL = Kernel(
    "quantized_matmul_packed",
    "cpu",
    emit_quantized,
    beside.launch,
    beside.supports_each(supports),
    split=beside.split,
    overwrites="epilogue",
    uses=panels.uses_of_bfloat16,
    own_launch=own_launch,
)
