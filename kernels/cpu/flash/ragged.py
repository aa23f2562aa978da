"""softmax(q k^T scale) v of ragged rows, in the flash manner (arXiv:2205.14135).

A task is a piece of a row's tokens under one key head, or, of a row that has few tokens in all, a
part of its keys under all heads (`rows.py`). Where a piece is short, its heads are done
together: their keys lie side by side, and memory gives them up to twice as fast as those of one
head. A block of keys is worked on as in attention of dense rows, while the next one is fetched.
Sums of a query have one order, whichever rows are worked on beside its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import emit, host, memory, row_spans, sizes
from heddle.kernels.cpu.amx.parts import PARTS
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.cpu.decode.parts import COUNTERS, ROOM, held, most_parts, workspace
from heddle.kernels.cpu.decode.rows import Decode
from heddle.kernels.cpu.flash.block import TILED_KEYS
from heddle.kernels.cpu.flash.cut import (
    fills_tiles,
    is_wide,
    key_block,
    least_split,
    pair_work,
    splits,
)
from heddle.kernels.cpu.flash.ragged_block import (
    MANY,
    Pieces,
    Places,
    block_of,
    piece,
    pieces,
)
from heddle.kernels.cpu.flash.ragged_part import Part
from heddle.kernels.cpu.flash.wide_part import WidePart, WidePlaces
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, RowSpans
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def unsupported(spec: Spec) -> str | None:
    """Why `emit_ragged` does not take `spec`, or None."""
    reason = row_spans.unsupported(spec)
    if reason is None and held(spec) > ROOM:
        return f"wanted heads of which a token takes at most {ROOM} numbers, got {held(spec)}"
    return reason


def emit_ragged(
    spec: Spec,
    machine: Machine,
    keys_of: Callable[[host.Frame], Keys],
    seen: Expr,
) -> None:
    """Emits the loop over tasks; a token may see `seen` keys."""
    scratch = launch(spec, seen).counters > 0
    frame = host.frame(spec, machine, checks=True, scratch=scratch)
    keys, wide = keys_of(frame), machine.tiles and is_wide(spec)
    if wide:
        wide_places = WidePlaces.make(frame, machine, keys)
        block = wide_places.block
    else:
        block = block_of(spec, machine, key_block(spec))
        places = Places.make(frame, block, keys)
    split = machine.tiles and splits(spec)
    tiled = machine.tiles and (fills_tiles(spec) or split)
    if tiled:
        parts = PARTS[spec.operands[0].dtype] if split else 1
        in_tiles = block_of(spec, machine, TILED_KEYS, tiled=True, split=parts)
        places_in_tiles = Places.make(frame, in_tiles, keys)
    decode = Decode.make(frame, block, keys, seen)
    spans = RowSpans(frame, report, QUERY_OFFSETS, frame.size(spec.operands[0].shape[0]))
    found = Pieces(frame, spans, piece(spec))
    slots = sizes.greatest(decode.tiles.key_heads, decode.parts)
    begin, end = _spread(frame, found)

    def step(task: Any, following: Any) -> list[Any]:
        def work() -> list[Any]:
            number, first = sizes.floordiv(task, slots), sizes.mod(task, slots)
            row, token, stop, whole = found.find(number)
            last = sizes.least(first + (end - task), slots)
            with emit.when(emit.compare("greater", stop - token, 0)):
                length = keys.length(row)
                where, tokens = (row, length), (token, stop)
                part: Part | WidePart
                if wide:
                    part = WidePart(frame, wide_places, where, tokens)
                else:
                    part = Part(frame, block, places, where, tokens)
                few = whole & emit.compare("less_equal", stop - token, decode.tiles.tokens)

                def decoded() -> list[Any]:
                    decode.attend(row, (token, stop - token), part, (first, last))
                    return []

                def computed() -> list[Any]:
                    heads = (first, sizes.least(last, decode.tiles.key_heads))
                    if isinstance(part, WidePart) or not tiled:
                        part.attend_heads(*heads)
                        return []

                    def many() -> list[Any]:
                        other = Part(frame, in_tiles, places_in_tiles, where, tokens)
                        return other.attend_in_tiles(*heads)

                    enough = emit.compare("greater", part.padded, TILE_ROWS)
                    if split:
                        enough = emit.compare("greater_equal", part.queries, MANY)
                        enough = enough & emit.compare("greater_equal", length, least_split(spec))
                    true = emit.constant(emit.integer(1), 1)
                    (others,) = emit.either(enough, [true.type], many, lambda: [true])
                    with emit.when(others):
                        part.attend_heads(*heads)
                    return []

                emit.either(few, [], decoded, computed)
            return [task + (last - first)]

        due = emit.compare("equal", task, following)
        return emit.either(due, [emit.integer(64)], work, lambda: [following])

    emit.carry(begin, end, 1, [begin], step)


def _spread(frame: host.Frame, found: Pieces) -> tuple[Any, Any]:
    """The tasks, from and to, for those that the kernel was given: an equal share of all there are.

    A launch counts the most pieces that there may be. Those that there are not come last: without
    this, one thread would have all others of a short row. Where there are fewer, what a thread
    claims may be a part of a piece's heads.
    """
    most = sizes.greatest(frame.size(pieces(frame.spec)), 1)
    there = sizes.least(found.count(), most)
    first, last = (sizes.ceildiv(each * there, most) for each in (frame.first, frame.last))
    return emit.as_index(first), emit.as_index(last)


def report(frame: host.Frame, code: int, value: Any, limit: Any, before: Any) -> None:
    """Writes the status word; see `heddle.kernels.row_spans.Report`."""
    for place, word in enumerate((emit.index(code), value, limit, before)):
        memory.store(word, frame.status, place, "int64")


def launch(spec: Spec, seen: Expr) -> Launch:
    """A task for each piece of a row under a key head, or for each part of its keys.

    Those of a piece are taken together. A token may see `seen` keys.
    """
    work = product((*spec.operands[0].shape[:2], seen, pair_work(spec)))
    key_heads, scratch = spec.operands[1].shape[-2], workspace(spec, seen)
    slots = fold("max", key_heads, most_parts(spec, seen))
    grid = (product((pieces(spec), slots)), key_heads, 1)
    return Launch(grid, work, workspace=scratch, counters=COUNTERS if scratch != 0 else 0)
