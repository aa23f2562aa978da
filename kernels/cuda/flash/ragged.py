"""Attention of ragged rows on tensor cores: the tile of a block, by warps or by warpgroups."""

from __future__ import annotations

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash import attend, calls, latents, ragged_warpgroup, stages
from heddle.kernels.cuda.flash import split as flash_split
from heddle.kernels.cuda.flash import tiles as flash_tiles
from heddle.kernels.cuda.flash.task import Task, sinks_of
from heddle.kernels.cuda.flash.tiles import Blocks
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, RowSpans, group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def fits(spec: Spec) -> bool:
    """Whether tensor cores take a spec; heads of ragged rows are static."""
    return attend.fits(spec) or latents.fits(spec)


def _blocks(spec: Spec, wide: bool) -> Blocks:
    """How blocks share out its rows; `wide`: tiles are for warpgroups."""
    key_heads, group = spec.operands[1].shape[-2], group_of(spec)
    assert isinstance(key_heads, int)
    if not attend.fits(spec):
        parts = latents.parts(spec)
        heads, rows = key_heads * parts, latents.ROWS
        return Blocks(heads, group // parts, rows, rows, latents.most_parts(spec))
    rows = ragged_warpgroup.rows(spec) if wide else attend.rows(spec)
    return Blocks(key_heads, group, rows, flash_split.FEW)


def few(spec: Spec) -> Expr:
    """1 where rows have one token each on average, or less: where most of them decode."""
    tokens, ends = spec.operands[0].shape[0], spec.operands[QUERY_OFFSETS].shape[0]
    further = fold("max", 0, fold("sub", fold("add", tokens, 1), ends))
    return fold("sub", 1, fold("min", 1, further))


def by_warpgroups(spec: Spec, machine: Machine) -> bool:
    """Whether tiles are for warpgroups."""
    is_few = calls.is_few(spec, few(spec))
    return attend.fits(spec) and not is_few and ragged_warpgroup.fits(spec, machine)


def emit_ragged(frame: _frame.Frame, keys: Keys, spans: RowSpans) -> None:
    """Emits a block's tile."""
    spec = frame.spec
    _, heads, size = frame.shape(spec.operands[0].shape)
    key_heads, values = frame.size(spec.operands[1].shape[-2]), frame.size(spec.result.shape[-1])
    wide = by_warpgroups(spec, frame.machine)
    blocks = _blocks(spec, wide)
    group, parts_of_head = blocks.group, blocks.heads // key_heads
    head = _block.block() % blocks.heads
    in_order = not calls.is_few(spec, few(spec))
    tiles = flash_tiles.Tiles(frame, keys, spans, blocks, in_order)
    sinks = sinks_of(frame)
    tile = tiles.find(_block.block() // blocks.heads)
    (sequence,) = tile.of_all("sequence")

    def found() -> tuple[Task, Size, ragged_warpgroup.Row]:
        row = tiles.row(sequence)
        number, start, stop, length = tile.of_all("number", "start", "stop", "length")
        queries = stop - start

        def query(number: Size, member: Size) -> Size:
            return ((tile.start + number) * heads + head * group + member) * size

        def result(number: Size, member: Size) -> Size:
            return ((tile.start + number) * heads + head * group + member) * values

        def at(number: Size) -> Size:
            return keys.place(row, number)[0]

        def key(number: Size) -> Size:
            return (at(number) * key_heads + sizes.floordiv(head, parts_of_head)) * size

        split = None
        if tiles.splits:
            slots, parts = tile.of_all("slots", "parts")
            first, counter = (n * blocks.heads + head for n in (slots, slots // 2))
            is_split = emit.compare("greater", parts, 1)
            pairs = (number, 0), (0, number), (parts, 1)
            part, number, parts = (emit.select(is_split, *pair) for pair in pairs)
            split = flash_split.Split(part, parts, first, blocks.heads, counter, blocks.few)
        sink = None if sinks is None else lambda member: sinks(head * group + member, 1)
        task = Task(group, queries, length, query, key, split=split, sink=sink, result=result)
        return task, number, ragged_warpgroup.Row(row, start, head, at)

    with emit.when(emit.compare("greater_equal", sequence, 0)):
        if wide:
            ragged_warpgroup.emit_tile(frame.wait(), found)
        elif not attend.fits(spec):
            attend.emit_latents(frame, *found()[:2])
        else:
            attend.emit_tile(frame, *found()[:2])


def launch(spec: Spec, keys: Expr, work: Expr, arch: str = "", wide: bool = False) -> Launch:
    """As many blocks as there may be tiles: each sequence may begin one that it does not fill.

    A sequence has so many `keys` at most. `wide`: tiles are for warpgroups.
    """
    tokens, values = spec.operands[0].shape[0], spec.result.shape[-1]
    assert isinstance(values, int)
    blocks = _blocks(spec, wide)
    sequences = fold("add", spec.operands[QUERY_OFFSETS].shape[0], 1)
    tiles = fold("add", fold("ceildiv", fold("mul", tokens, blocks.group), blocks.rows), sequences)
    further: Expr = 0
    if blocks.group <= blocks.few:  # A sequence may have few rows.
        most = fold("sub", fold("max", 1, spec.operands[QUERY_OFFSETS].shape[0]), 1)
        further = flash_split.most_further(most, keys, blocks.heads)
        if blocks.parts:
            further = fold("min", further, fold("mul", most, blocks.parts - 1))
    slots = product((further, 2, blocks.heads))
    common = Launch(
        (product((fold("add", tiles, further), blocks.heads)), 1, 1),
        work,
        (stages.THREADS if attend.fits(spec) else latents.WARPS * _block.WARP, 1, 1),
        (attend if attend.fits(spec) else latents).shared_bytes(spec, arch),
        workspace=flash_split.workspace(slots, values, blocks.few),
        counters=flash_split.BLOCKS if further != 0 else 0,
    )
    return ragged_warpgroup.widened(spec, common) if wide else common
