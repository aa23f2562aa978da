"""Keys of one sequence and key head shared out among blocks, where its rows are few (decoding).

Each block attends to a part of the keys and leaves weighted values, their sum of powers and its
greatest score, as in "Flash-Decoding" (Dao, Haziza, Massa, Sizov, 2023). Parts are as long as it
takes to give all sequences together `BLOCKS` of them; a sequence that is no longer is not split.
Where there are not that many, each multiprocessor has one, as it takes long to bring parts
together: more of them read no faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.cuda import _block, _frame, _handover
from heddle.kernels.cuda.flash import stages
from heddle.kernels.cuda.flash import warp as flash_warp
from heddle.kernels.cuda.flash.stages import KEYS
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, fold, product

vector = dialect("vector")

FEW = 16
"""Rows that every warp can have; with more, keys are not split, but those that are latents."""

LEAST = 2
"""Stages of a part at least: they are on their way at once, so that one would come no sooner."""

LONG = 64
"""Stages of a part from which on more of them than multiprocessors are worth bringing together."""

AT_ONCE = 128
"""Parts for one on each multiprocessor, or for almost each: by a power of two lengths divide."""

BLOCKS = 4 * _handover.PROCESSORS
"""Parts that all keys are cut into: two waves, of two on each multiprocessor."""

Sums = Sequence[Any]
"""A row's greatest score and sum of powers, and some columns of its weighted values."""

Found = Callable[[Size, Size, int], Sums]
"""The sums of a line, from a column on, of so many columns."""


@dataclass(frozen=True)
class Split:
    """Part `part` of `parts` of a sequence's keys.

    The workspace has a slot of so many `lines` for each part: `first` for part 0, and each `step`
    behind the one before it. `counter` is that of the sequence and key head.
    """

    part: Size
    parts: Size
    first: Size
    step: Size
    counter: Size
    lines: int = FEW

    def share(self, count: Size) -> tuple[Size, Size]:
        """Of `count` stages, how many are before this part, and how many are its own."""
        before, after = (
            _block.quotient(count * part, self.parts) for part in (self.part, self.part + 1)
        )
        return before, after - before


def length_of_parts(every: Expr) -> Expr:
    """Stages of a part, where all key heads of all sequences together have `every` stage."""
    short = fold("min", fold("ceildiv", every, AT_ONCE), LONG)
    return fold("max", fold("max", fold("ceildiv", every, BLOCKS), short), LEAST)


def found_length_of_parts(every: Size) -> Size:
    """The same inside of a kernel."""
    return sizes.evaluate(length_of_parts("every"), {"every": every})


def count(stages: Size, length: Size) -> Size:
    """Parts of a sequence of so many stages; one that sees no key has one, too."""
    return emit.maximum(_block.quotient(stages + (length - 1), length), 1)


def most_further(sequences: Expr, keys: Expr, key_heads: int) -> Expr:
    """Parts beyond the first of each sequence, at most, where none has more than `keys`.

    Each such part is a whole length that lies before it, so that of all key heads there are no
    more than `BLOCKS` of them, and of parts that are not `LONG` no more than `AT_ONCE`. Split
    sequences have at most twice as many parts.
    """

    def most(blocks: int, length: int) -> Expr:
        each = fold("floordiv", keys, KEYS * length)
        return fold("min", blocks // key_heads, fold("mul", sequences, each))

    return fold("max", most(AT_ONCE, LEAST), most(BLOCKS, LONG))


def slot(size: int, lines: int = FEW) -> int:
    """Floats of a part in the workspace: sums of lines, then their greatest scores and totals."""
    return lines * (size + 2)


def workspace(parts: Expr, size: int, lines: int = FEW) -> Expr:
    """Bytes for so many parts."""
    return product((parts, 4 * slot(size, lines)))


def bring_together(
    split: Split | None,
    frame: _frame.Frame,
    rows: Size,
    layout: stages.Layout,
    warp: flash_warp.Warp,
    found: Found,
    write: Callable[[Found], None],
) -> None:
    """Emits `write` of the sums of all parts, by the last block to have `found` its own."""
    if split is None:
        write(found)
        return
    slots, alone = _Slots(frame.workspace, layout, split), _is_one(split.parts)

    def leave() -> list[Any]:
        slots.store(rows, found)
        return [_handover.is_last(frame.counters, split.counter, split.parts)]

    def sums(line: Size, column: Size, lanes: int) -> Sums:
        element = emit.register_type("float32")
        return emit.either(
            alone,
            [element, element, emit.widen(element, lanes)],
            lambda: found(line, column, lanes),
            lambda: slots.total(warp, line, column, lanes),
        )

    bit = emit.integer(1)
    (goes_on,) = emit.either(alone, [bit], lambda: [emit.constant(bit, 1)], leave)
    with emit.when(goes_on):
        write(sums)


def _is_one(count: Size) -> Any:
    return emit.compare("equal", emit.as_index(count), 1)


@dataclass(frozen=True)
class _Slots:
    """The parts of a sequence in the workspace."""

    pointer: Any
    layout: stages.Layout
    split: Split

    def _places(self, part: Size, line: Size) -> tuple[Size, Size]:
        """Where a line's values begin, and where its greatest score is."""
        size, lines = self.layout.columns, self.split.lines
        start = (self.split.first + part * self.split.step) * slot(size, lines)
        return start + line * size, start + lines * size + line * 2

    def store(self, rows: Size, found: Found) -> None:
        """Writes the sums of the lines of this block."""
        lanes = 4
        across = self.layout.columns // lanes
        for number in emit.loop(_block.thread(), rows * across, self.layout.threads):
            line, column = number // across, number % across * lanes
            top, total, values = found(line, column, lanes)
            place, above = self._places(self.split.part, line)
            memory.store(values, self.pointer, place + column, "float32", alignment=16)
            with emit.when(emit.compare("equal", column, 0)):
                both = vector.from_elements(emit.widen(top.type, 2), [top, total])
                memory.store(both, self.pointer, above, "float32", alignment=8)

    def total(self, warp: flash_warp.Warp, line: Size, column: Size, lanes: int) -> Sums:
        """The sums of all parts, in their order."""
        element = emit.register_type("float32")

        def load(part: Size) -> Sums:
            place, above = self._places(part, line)
            both = _frame.load(self.pointer, above, "float32", 2)
            return (
                *_block.lanes(both),
                _frame.load(self.pointer, place + column, "float32", lanes),
            )

        def add(is_part: Any, found: Sums, *before: Any) -> Sequence[Any]:
            top = emit.maximum(before[0], found[0])
            shift = warp.shift(top)
            fade, weight = (warp.power(one, shift) for one in (before[0], found[0]))
            after = (
                top,
                emit.fma(found[1], weight, before[1] * fade),
                emit.fma(found[2], weight, before[2] * fade),
            )
            return [emit.select(is_part, a, b) for a, b in zip(after, before, strict=True)]

        start = [emit.constant(element, -math.inf), *(emit.constant(element, 0.0),) * 2]
        start[2] = emit.constant(element, 0.0, lanes)
        top, total, values = _handover.in_order(self.split.parts, start, load, add)
        return top, total, values
