"""Attention of ragged rows by warpgroups: where TMA finds them and their keys.

A tile has 128 rows, or as many as the whole queries of a group make: the heads of a group lie
side by side, so that one box has all their rows. The keys of a step are one box where they follow
one another, else as many as the blocks of the cache have, by a thread for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _frame
from heddle.kernels.cuda.flash import split, warpgroup, wide_tiles
from heddle.kernels.cuda.flash.task import Task
from heddle.kernels.cuda.products import mma, pieces, staging
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, TensorMap, fold, product

_LEAST = 8  # Keys of a box: after so many lines the swizzle repeats.


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether warpgroups take `spec`; blocks of a cache have to divide into boxes."""
    if not warpgroup.fits(spec, machine) or group_of(spec) > wide_tiles.ROWS:
        return False
    if not _is_paged(spec):
        return True
    size = spec.operands[1].shape[1]
    if not isinstance(size, int) or size == 0 or size % _LEAST:
        return False
    keys = wide_tiles.plan(spec).keys
    return size % keys == 0 or keys % size == 0


def rows(spec: Spec) -> int:
    """Rows of a tile: of whole queries."""
    return wide_tiles.ROWS // group_of(spec) * group_of(spec)


def widened(spec: Spec, common: Launch) -> Launch:
    """The launch of blocks of warpgroups, which also take sequences of few rows."""
    return replace(
        common,
        block=(wide_tiles.THREADS, 1, 1),
        shared=warpgroup.shared_bytes(spec, several=False),
        tensor_maps=tuple(_tensor_map(spec, number) for number in range(3)),
    )


@dataclass(frozen=True)
class Row:
    """Row `number` of the batch, its first token and a key head; where a key is among all keys."""

    number: Size
    token: Size
    head: Size
    at: Callable[[Size], Size]


def emit_tile(frame: _frame.Frame, found: Callable[[], tuple[Task, Size, Row]]) -> None:
    """Emits a tile of a task, whose rows are at least one.

    `found` gives the task, the tile's number, which is 0 where rows are few, and their row. Every
    warpgroup asks for itself, so that none holds what another one needs.
    """
    task, _, _ = found()
    few = emit.compare("less_equal", task.length, 0)
    if task.group <= split.FEW:
        few = few | emit.compare("less_equal", task.rows, split.FEW)

    def tile() -> wide_tiles.Tile:
        return _tile(frame, *found())

    tiles = wide_tiles.Tiles.one(rows(frame.spec), _lines(frame.spec), tile)
    warpgroup.emit_tiles(frame, mma.DynamicShared("stages"), tiles, few)


def _tile(frame: _frame.Frame, task: Task, number: Size, row: Row) -> wide_tiles.Tile:
    """Tile `number` of a task."""
    paged = _is_paged(frame.spec)
    find = _blocks(frame, row.number, task.length) if paged else _neighbours(task, row.at)

    def corner(operand: int, place: Any) -> tuple[Size, Size]:
        if operand == 0:
            return pieces.word(row.token) + place // task.group, row.head * task.group
        return find(place), row.head

    each = rows(frame.spec)
    tile = wide_tiles.Tile(frame.spec, task, number * each, each, corner)
    if paged:
        unit = _lines(frame.spec)
        tile = replace(tile, unit=unit, check=lambda key: row.at(key) and None)
    return tile


def _neighbours(task: Task, at: Callable[[Size], Size]) -> Callable[[Any], Any]:
    """Finds keys of a sequence that follow one another."""
    (start,) = emit.either(
        emit.compare("greater", task.length, 0),
        [emit.integer(64)],
        lambda: [at(emit.index(0))],
        lambda: [emit.index(0)],
    )
    return lambda key: pieces.word(start) + key


def _blocks(frame: _frame.Frame, row: Size, length: Size) -> Callable[[Any], Any]:
    """Finds the box of a key in the blocks of the cache, which have been checked before.

    In 32 bits, as warps wait for it. Behind the last box with keys it comes again.
    """
    spec, lines = frame.spec, _lines(frame.spec)
    table, size = frame.inputs[5], int(spec.operands[1].shape[1])  # type: ignore[arg-type]
    first = pieces.word(row * frame.size(spec.operands[5].shape[1]))
    blocks = emit.as_index(frame.size(spec.operands[1].shape[0]))

    def find(key: Any) -> Any:
        last = pieces.word((length - 1) // lines)
        key = emit.minimum(key // lines, last) * lines
        block = memory.load(table, pieces.size(first + key // size), "int32")
        block = emit.minimum(block, pieces.word(blocks - 1), unsigned=True)
        return block * size + key % size

    return find


def _is_paged(spec: Spec) -> bool:
    return spec.op == "paged_attention"


def _lines(spec: Spec) -> int:
    """Keys of a box."""
    keys = wide_tiles.plan(spec).keys
    return min(int(spec.operands[1].shape[1]), keys) if _is_paged(spec) else keys  # type: ignore[arg-type]


def _tensor_map(spec: Spec, number: int) -> TensorMap:
    """Panels of an operand: lines of 128 bytes of a token's heads, or of a head's keys."""
    *counts, heads, size = spec.operands[number].shape
    row = fold("mul", size, 2)
    strides: tuple[Expr, ...] = (fold("mul", heads, row), row)
    group = group_of(spec)
    box = (_lines(spec), 1) if number else (wide_tiles.ROWS // group, group)
    shape = product(tuple(counts)), heads, size
    return TensorMap(number, shape, strides, (*box, wide_tiles.WIDE), staging.LINE)
