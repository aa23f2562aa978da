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
    _Kernel(frame, keys_of(frame), seen).emit()


class _Kernel:
    """What there is from the function's start on, and what its tasks do with it.

    Pieces of rows are worked on at `_places`, those of enough queries at `_in_tiles`, where that is
    not None.
    """

    def __init__(self, frame: host.Frame, keys: Keys, seen: Expr) -> None:
        self._frame, self._keys, spec = frame, keys, frame.spec
        self._places = self._all_places()
        self._is_split = frame.machine.tiles and splits(spec)
        self._in_tiles = self._tiled_places()
        self._decode = Decode.make(frame, self._places.block, keys, seen)
        spans = RowSpans(frame, report, QUERY_OFFSETS, frame.size(spec.operands[0].shape[0]))
        self._found = Pieces(frame, spans, piece(spec))
        self._slots = sizes.greatest(self._decode.tiles.key_heads, self._decode.parts)

    def _all_places(self) -> Places | WidePlaces:
        frame, spec, machine = self._frame, self._frame.spec, self._frame.machine
        if machine.tiles and is_wide(spec):
            return WidePlaces.make(frame, machine, self._keys)
        return Places.make(frame, block_of(spec, machine, key_block(spec)), self._keys)

    def _tiled_places(self) -> Places | None:
        frame, spec, machine = self._frame, self._frame.spec, self._frame.machine
        if not self._is_split and not (machine.tiles and fills_tiles(spec)):
            return None
        parts = PARTS[spec.operands[0].dtype] if self._is_split else 1
        block = block_of(spec, machine, TILED_KEYS, tiled=True, split=parts)
        return Places.make(frame, block, self._keys)

    def emit(self) -> None:
        """Emits the loop over tasks, of which some are taken together with the one before them."""
        begin, end = _spread(self._frame, self._found)

        def step(task: Any, following: Any) -> list[Any]:
            due = emit.compare("equal", task, following)
            kind = emit.integer(64)
            return emit.either(due, [kind], lambda: [self._work(task, end)], lambda: [following])

        emit.carry(begin, end, 1, [begin], step)

    def _work(self, task: Any, end: Any) -> Any:
        """Does a task and those of its piece up to `end`; returns the one that follows them."""
        number, first = sizes.floordiv(task, self._slots), sizes.mod(task, self._slots)
        row, token, stop, whole = self._found.find(number)
        last = sizes.least(first + (end - task), self._slots)
        with emit.when(emit.compare("greater", stop - token, 0)):
            self._attend(row, (token, stop), whole, (first, last))
        return task + (last - first)

    def _attend(
        self, row: Any, tokens: tuple[Any, Any], whole: Any, slots: tuple[Any, Any]
    ) -> None:
        """Some slots of a piece: parts of its keys where it is a row that decodes, else heads."""
        where, (token, stop) = (row, self._keys.length(row)), tokens
        part = self._part(where, tokens)
        few = whole & emit.compare("less_equal", stop - token, self._decode.tiles.tokens)

        def decoded() -> list[Any]:
            self._decode.attend(row, (token, stop - token), part, slots)
            return []

        def computed() -> list[Any]:
            first, last = slots
            heads = first, sizes.least(last, self._decode.tiles.key_heads)
            self._attend_heads(part, where, tokens, heads)
            return []

        emit.either(few, [], decoded, computed)

    def _part(self, where: tuple[Any, Any], tokens: tuple[Any, Any]) -> Part | WidePart:
        if isinstance(self._places, WidePlaces):
            return WidePart(self._frame, self._places, where, tokens)
        return Part(self._frame, self._places.block, self._places, where, tokens)

    def _attend_heads(
        self,
        part: Part | WidePart,
        where: tuple[Any, Any],
        tokens: tuple[Any, Any],
        heads: tuple[Any, Any],
    ) -> None:
        """Some heads of a part: in tiles where it has enough queries, else as it does them."""
        places = self._in_tiles
        if isinstance(part, WidePart) or places is None:
            part.attend_heads(*heads)
            return

        def in_tiles() -> list[Any]:
            tiled = Part(self._frame, places.block, places, where, tokens)
            return tiled.attend_in_tiles(*heads)

        enough = self._has_enough(part, where[1])
        true = emit.constant(emit.integer(1), 1)
        (others,) = emit.either(enough, [true.type], in_tiles, lambda: [true])
        with emit.when(others):
            part.attend_heads(*heads)

    def _has_enough(self, part: Part, length: Any) -> Any:
        """Whether a part's queries, and a row of so many keys, are worth tiles."""
        if not self._is_split:
            return emit.compare("greater", part.padded, TILE_ROWS)
        enough = emit.compare("greater_equal", part.queries, MANY)
        least = least_split(self._frame.spec)
        return enough & emit.compare("greater_equal", length, least)


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
