"""Attention of dense tensors by warpgroups: a block has 128 queries of one head."""

from __future__ import annotations

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash import dense, feed, warpgroup, wide_tiles
from heddle.kernels.cuda.flash.task import Task
from heddle.kernels.cuda.products import mma, staging
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, TensorMap, fold, product

CACHED = 1 << 24
"""Bytes of keys and values that are taken to stay in the second cache."""


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether this computes `spec`: without a mask, and not known to have few queries."""
    if not dense.fits(spec) or not warpgroup.fits(spec, machine):
        return False
    queries = _shape(spec, 0)[2]
    many = queries >= wide_tiles.ROWS // 2 if isinstance(queries, int) else True
    return many and not dense.is_few(spec) and not spec.attr("masked") and not spec.prologue


def launch(spec: Spec, work: Expr) -> Launch:
    """A block for each tile of queries of each head, or for some of them."""
    batch, heads, queries, _ = _shape(spec, 0)
    grid = product((batch, heads, fold("ceildiv", queries, wide_tiles.ROWS)))
    return Launch(
        (fold("max", 1, grid), 1, 1),
        work,
        (wide_tiles.THREADS, 1, 1),
        warpgroup.shared_bytes(spec, _goes_on(spec)),
        resident=1 if _goes_on(spec) else 0,
        tensor_maps=tuple(_tensor_map(spec, number) for number in range(3)),
    )


def emit_dense(frame: _frame.Frame) -> None:
    """Emits a block's tiles; the result has elements."""
    batch, heads, queries, _ = frame.shape(_shape(frame.spec, 0))
    count, lines = sizes.ceildiv(queries, wide_tiles.ROWS), wide_tiles.plan(frame.spec).keys

    def at(number: Size) -> wide_tiles.Tile:
        head = _block.quotient(number, count)
        return _tile(frame, head, number - head * count)

    if _goes_on(frame.spec):
        tiles = wide_tiles.Tiles.of_grid(sizes.product((batch, heads, count)), lines, at)
    else:
        head, number = _order(frame, count)
        tile = _tile(frame, head, emit.as_index(count) - 1 - number)
        _ = tile.reach  # All threads find out: who brings keys need not.
        tiles = wide_tiles.Tiles.one(wide_tiles.ROWS, lines, lambda: tile)
    warpgroup.emit_tiles(frame, mma.DynamicShared("stages"), tiles)


def _goes_on(spec: Spec) -> bool:
    """Whether a block has a tile after the other, as all of them are of one length.

    Of others the next one is for whichever block has ended.
    """
    return not spec.attr("causal") and wide_tiles.plan(spec).goes_on


def _tile(frame: _frame.Frame, place: Size, number: Size) -> wide_tiles.Tile:
    """A tile of a head, which is at that place among those of all batches."""
    spec = frame.spec
    _, heads, queries, size = frame.shape(_shape(spec, 0))
    _, key_heads, length, _ = frame.shape(_shape(spec, 1))
    batch, head = place // heads, place % heads
    key_head = head // (heads // key_heads)

    def query(number: Size, member: Size) -> Size:
        return dense.place(spec, (batch, head, number), heads, queries) * size

    def key(number: Size) -> Size:
        return dense.place(spec, (batch, key_head, number), key_heads, length) * size

    def corner(operand: int, row: Size) -> tuple[Size, Size, Size]:
        return batch, key_head if operand else head, row

    task = Task(1, queries, length, query, key)
    first = emit.as_index(number) * wide_tiles.ROWS
    return wide_tiles.Tile(spec, task, first, wide_tiles.ROWS, corner, bounded=True)


def _order(frame: _frame.Frame, tiles: Size) -> tuple[Size, Size]:
    """The block's head, among those of all batches, and its tile, counted from the last.

    The last tiles of causal attention have the most keys. They come first, of as many heads as have
    their keys in the second cache: else a wave ends with long tiles of some heads.
    """
    spec, block = frame.spec, _block.block()
    batch, _, length, size = frame.shape(_shape(spec, 1))
    heads = emit.as_index(batch) * frame.size(_shape(spec, 0)[1])
    cached = _block.quotient(CACHED // (4 * int(size)), emit.maximum(emit.as_index(length), 1))
    together = emit.minimum(emit.maximum(cached, 1), heads)
    begin = _block.quotient(block, together * tiles) * together
    within = block - begin * tiles
    together = emit.minimum(together, heads - begin)  # The last may be fewer.
    number = _block.quotient(within, together)
    return begin + within - number * together, number


def _shape(spec: Spec, number: int) -> tuple[Expr, Expr, Expr, Expr]:
    """Batch, heads, length and size of an operand."""
    shape, (heads, length) = spec.operands[number].shape, dense.axes(spec)
    return shape[0], shape[heads], shape[length], shape[3]


def _tensor_map(spec: Spec, number: int) -> TensorMap:
    """Panels of an operand: lines of 128 bytes of a head's rows."""
    batch, heads, length, size = _shape(spec, number)
    lines = {"bhsd": (length, 1), "bshd": (1, heads)}[spec.attr("layout")]
    row = fold("mul", size, 2)
    strides = (product((heads, length, row)), *(fold("mul", line, row) for line in lines))
    layout = feed.Layout(int(size), _goes_on(spec))  # type: ignore[arg-type]
    rows = layout.keys if number else layout.query_rows
    shape = batch, heads, length, size
    return TensorMap(number, shape, strides, (1, 1, rows, wide_tiles.WIDE), staging.LINE)
