"""Attention of ragged rows by warpgroups: where TMA finds them and their keys.

A tile has 128 rows, or as many as the whole queries of a group make: the heads of a group lie
side by side, so that one box has all their rows. Keys come 128 at a time where they follow one
another, else as many as the blocks of the cache have, by a thread for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heddle.kernels import emit
from heddle.kernels.cuda import (
    _flash,
    _flash_feed,
    _flash_split,
    _flash_warpgroup,
    _frame,
    _mma,
    _staging,
)
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, TensorMap, fold, product

_LEAST = 8  # Keys of a box: after so many lines the swizzle repeats.


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether warpgroups take `spec`; blocks of a cache have to divide into boxes."""
    if not _flash_warpgroup.fits(spec, machine) or group_of(spec) > _flash_feed.ROWS:
        return False
    if not _is_paged(spec):
        return True
    size = spec.operands[1].shape[1]
    if not isinstance(size, int) or size == 0 or size % _LEAST:
        return False
    return size % _flash_feed.KEYS == 0 or _flash_feed.KEYS % size == 0


def rows(spec: Spec) -> int:
    """Rows of a tile: of whole queries."""
    return _flash_feed.ROWS // group_of(spec) * group_of(spec)


def widened(spec: Spec, common: Launch) -> Launch:
    """The launch of blocks of warpgroups, which also take sequences of few rows."""
    return replace(
        common,
        block=(_flash_warpgroup.THREADS, 1, 1),
        shared=_flash_warpgroup.shared_bytes(spec),
        tensor_maps=tuple(_tensor_map(spec, number) for number in range(3)),
    )


def emit_tile(
    frame: _frame.Frame,
    task: _flash.Task,
    number: Size,
    place: tuple[Size, Size],
    at: Callable[[Size], Size],
) -> None:
    """Emits tile `number` of a task, whose rows are at least one; 0 where rows are few.

    `place` is its first token and its key head; `at` gives the number of a key among all keys.
    """
    few = None
    if task.group <= _flash_split.FEW:
        few = emit.compare("less_equal", task.rows, _flash_split.FEW)
    tile = _tile(frame.spec, task, number * rows(frame.spec), place, at)
    _flash_warpgroup.emit_tile(frame, _mma.DynamicShared("stages"), tile, few)


def _tile(
    spec: Spec,
    task: _flash.Task,
    first: Size,
    place: tuple[Size, Size],
    at: Callable[[Size], Size],
) -> _flash_feed.Tile:
    (token, head), lines = place, _lines(spec)

    def known(number: Size) -> Size:
        """Where a key is; of a sequence without keys nothing is looked up."""
        return emit.either(
            emit.compare("greater", task.length, 0),
            [emit.integer(64)],
            lambda: [at(number)],
            lambda: [emit.index(0)],
        )[0]

    start = None if _is_paged(spec) else known(emit.index(0))

    def corner(operand: int, row: Size) -> tuple[Size, Size]:
        if operand == 0:
            return token + row // task.group, head * task.group
        if start is not None:
            return start + row, head
        # Behind the last box with keys it comes again.
        return known(emit.minimum(row, (task.length - 1) // lines * lines)), head

    unit = lines if _is_paged(spec) else 1
    return _flash_feed.Tile(task, first, rows(spec), corner, lines, unit)


def _is_paged(spec: Spec) -> bool:
    return spec.op == "paged_attention"


def _lines(spec: Spec) -> int:
    """Keys of a box."""
    size = spec.operands[1].shape[1] if _is_paged(spec) else _flash_feed.KEYS
    return min(int(size), _flash_feed.KEYS)  # type: ignore[arg-type]


def _tensor_map(spec: Spec, number: int) -> TensorMap:
    """Panels of an operand: lines of 128 bytes of a token's heads, or of a head's keys."""
    *counts, heads, size = spec.operands[number].shape
    row = fold("mul", size, 2)
    strides: tuple[Expr, ...] = (fold("mul", heads, row), row)
    group = group_of(spec)
    box = (_lines(spec), 1) if number else (_flash_feed.ROWS // group, group)
    shape = product(tuple(counts)), heads, size
    return TensorMap(number, shape, strides, (*box, _flash_feed.WIDE), _staging.LINE)
