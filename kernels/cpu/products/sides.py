"""Both sides of a product whose rows are staged: their words on the stack, and panels of b.

What a step along k would have to do with each word of a row (widen two bfloat16, split four bytes)
is done once for all panels by which a chunk of the rows is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.cpu.products.blocks import PANEL, Rows, last_word
from heddle.kernels.cpu.products.tile import Step, add_rows
from heddle.kernels.sizes import Size

WORD = 4
"""Bytes of a word of a row, of each of its parts, and of a sum."""

TOGETHER = 4
"""Steps that are written out, and ask for memory together."""

Column = tuple[Size, int]
"""The number of a panel behind the first one, and the first of a vector's columns in it."""


class Sides:
    """Reads a through the stack, or in place, and b; made in the function's entry block.

    A chunk of `depth` steps of at most `rows` rows is on the stack, `padding` bytes behind each.
    Numbers that a step takes as they are may be read `in_place`.
    """

    def __init__(
        self,
        tasks: panels.Tasks,
        step: Step,
        depth: int,
        rows: int,
        padding: int = 0,
        in_place: bool = False,
    ) -> None:
        frame, spec = tasks.frame, tasks.frame.spec
        self.b = frame.inputs[1]
        self.k = frame.size(spec.operands[0].shape[-1])
        self.group = panels.group_of(spec)
        self.steps = sizes.ceildiv(self.k, self.group)
        self._a, self._step, self._lanes, self._depth = frame.inputs[0], step, tasks.lanes, depth
        a, b = (operand.dtype for operand in spec.operands[:2])
        self._element = a
        self._wide, self._right = (a, b) if self.group == 1 else ("uint32", "uint32")
        self.bytes = PANEL * emit.ITEM_SIZE[self._right]
        self.apart = self.steps * self.bytes
        self._in_place = in_place
        self._row = self.k * WORD if in_place else step.parts * depth * WORD + padding
        self._left = None if in_place else host.byte_buffer(rows * self._row, shared="left")

    def stage(self, rows: Rows, start: Size, stop: Size) -> None:
        """Puts the words of the rows' steps on the stack, their parts one chunk after another.

        Or says where they lie, if they are read in place.
        """
        if self._in_place:
            self._left = memory.at(self._a, rows.row * self.k + start, self._element)
            return
        size = emit.ITEM_SIZE[self._element]
        # The steps whose words lie in a row; the last one of all may reach beyond its end.
        full = sizes.least(stop, sizes.floordiv(self.k, self.group))
        whole = full - sizes.mod(full - start, self._lanes)
        for r in emit.loop(0, rows.height):
            source = memory.at(self._a, (rows.row + r) * self.k, self._element)
            target = memory.at(self._left, r * self._row, "int8")
            for begin, end, lanes in ((start, whole, self._lanes), (whole, full, 1)):
                for step in emit.loop(begin, end, lanes):
                    at = memory.at(source, step * self.group, self._element)
                    words = memory.load(at, 0, self._wide, lanes, alignment=size)
                    self._put(words, target, step - start)
            if self.group > 1:
                with emit.when(emit.compare("less", emit.as_index(full), stop)):
                    at = memory.at(source, full * self.group, self._element)
                    rest = last_word(at, self.k - full * self.group, self._element, self.group)
                    self._put(rest, target, full - start)

    def _put(self, words: Any, target: Any, place: Size) -> None:
        """Writes the parts of words of a row."""
        for number, value in enumerate(self._step.left(words)):
            memory.store(value, target, number * self._depth + place, self._step.part)

    def place(self, rows: Rows, panel: Size, step: Size) -> Size:
        """At which byte of b a step of a panel of the rows' begins."""
        return ((rows.panel + panel) * self.steps + step) * self.bytes

    def add(
        self,
        sums: Sequence[Any],
        top: Size,
        base: Size,
        columns: Sequence[Column],
        depth: Size,
        ask: Ask | None = None,
    ) -> list[Any]:
        """The sums of rows from `top` on by vectors of b, with the first `depth` steps added.

        These are those that were staged last, and from byte `base` of b on. The sums are in
        row-major order.
        """
        left = memory.at(self._left, top * self._row, "int8")

        def right_at(step: Any) -> list[Any]:
            starts = ((base + i * self.apart + step * self.bytes, column) for i, column in columns)
            places = ((memory.at(self.b, start, "int8"), column) for start, column in starts)
            return [memory.load(at, i, self._right, self._lanes) for at, i in places]

        def left_at(number: int, r: int, step: Any) -> Any:
            place = r * (self._row // WORD) + number * self._depth + step
            return emit.splat(memory.load(left, place, self._step.part), self._lanes)

        def add_one(step: Any, *before: Any) -> list[Any]:
            total = list(before)
            vectors = zip(*map(self._step.right, right_at(step)), strict=True)
            for number, right in enumerate(vectors):
                total = add_rows(total, step, partial(left_at, number), [right], 1, self._step.add)
            return total

        def add_some(step: Any, *before: Any) -> list[Any]:
            if ask is not None:
                ask(step)
            total = list(before)
            for i in range(TOGETHER):
                total = add_one(step + i, *total)
            return total

        main = emit.as_index(depth) // TOGETHER * TOGETHER
        total = emit.carry(0, main, TOGETHER, sums, add_some)
        return emit.carry(main, depth, 1, total, add_one)
