"""Tiles of blocks of warpgroups: 128 rows against some keys at a time, and who takes which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block
from heddle.kernels.cuda.flash import keys, softmax
from heddle.kernels.cuda.flash.task import Task
from heddle.kernels.cuda.products import pieces
from heddle.kernels.cuda.warpgroup import instructions
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

CONSUMERS = 2
"""Warpgroups that multiply."""

CONSUMING = CONSUMERS * instructions.THREADS
"""Their threads, which are the first of the block; the others bring what they multiply."""

THREADS = CONSUMING + instructions.THREADS

ROWS = CONSUMERS * instructions.ROWS
"""Of a block."""


@dataclass(frozen=True)
class Plan:
    """What heads of a size get of a multiprocessor.

    Attributes:
        keys: How many are multiplied at a time.
        stages: Of keys and of values, operands 1 and 2. Values are held a step longer.
        registers: Of a thread, of those who multiply and of those who bring.
        goes_on: Whether a block may have several tiles, which takes registers. It has no fewer
            stages of keys than of values then: see `warpgroup._Attention._become_shares`.
    """

    keys: int
    stages: tuple[int, int]
    registers: tuple[int, int]
    goes_on: bool = True


PLANS = {
    64: Plan(128, (2, 2), (240, 24)),  # With three stages ptxas would spill.
    128: Plan(128, (3, 3), (240, 24)),
    256: Plan(64, (2, 3), (232, 40), goes_on=False),  # A thread has 128 sums.
}
"""By head size."""

WIDE = 64
"""Elements of a line."""


def plan(spec: Spec) -> Plan:
    """That of the heads of `spec`."""
    return PLANS[int(spec.operands[0].shape[-1])]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Tile:
    """At most `rows` rows of a task, from row `first` on, and the boxes that TMA has of them.

    Corners are given and taken in 32 bits. `reach` is computed where it is asked for first.

    Attributes:
        corner: Where a box of operand 0, 1 or 2 begins, its column aside: the one with all rows
            from a row on, or with as many keys as `Tiles` says.
        unit: Boxes begin at multiples of so many keys.
        bounded: What boxes have behind the last key is zero.
        check: Looks at the box of a key in advance, and reports what is wrong with it.
        anew: The same tile for who has not held meanwhile which one it is.
    """

    spec: Spec
    task: Task
    first: Size
    rows: int
    corner: Callable[[int, Any], Sequence[Size]]
    unit: int = 1
    bounded: bool = False
    check: Callable[[Size], None] | None = None
    anew: Callable[[], Tile] | None = None

    def seen(self, row: Size) -> softmax.Range:
        """The keys that a row sees."""
        task = self.task
        return keys.seen(self.spec, task.group, task.queries, task.length, row)

    @cached_property
    def reach(self) -> Reach:
        """Its rows, and the keys that they see."""
        first = emit.as_index(self.first)
        end = emit.minimum(first + self.rows, emit.as_index(self.task.rows))
        (low, early), (late, stop) = self.seen(first), self.seen(end - 1)
        start = emit.index(0) if low is None else low
        start = start if self.unit == 1 else start // self.unit * self.unit
        steps = sizes.ceildiv(emit.maximum(stop - start, 0), plan(self.spec).keys)
        # In 32 bits, as every thread holds them. Where no key is seen, some come that are masked.
        start, count, early = map(pieces.word, (start, emit.maximum(steps, 1), early))
        return Reach(first, end, start, count, early, None if late is None else pieces.word(late))


@dataclass(frozen=True)
class Reach:
    """The rows of a tile, from `first` to before `end`, and `count` steps of keys from `start` on.

    All rows see the keys from `late`, if there is one, to before `early`.
    """

    first: Size
    end: Size
    start: Any
    count: Any
    early: Any
    late: Any


Body = Callable[[Tile, Any, Any], None]
"""What is emitted for a tile, given the steps of keys and the tiles before it."""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a block, one after the other: of so many `rows` at most, and boxes of `lines`.

    `each` emits a body for all of them; `several`: there may be another one behind a tile, whose
    queries each warpgroup has as soon as it is done with its own.
    """

    rows: int
    lines: int
    each: Callable[[Body], None]
    several: bool

    @staticmethod
    def one(rows: int, lines: int, tile: Callable[[], Tile]) -> Tiles:
        """A tile alone, which `tile` gives to whoever emits something for it."""
        return Tiles(rows, lines, lambda body: body(tile(), *[pieces.word(0)] * 2), False)

    @staticmethod
    def of_grid(count: Size, lines: int, at: Callable[[Size], Tile]) -> Tiles:
        """Of `count` whole tiles, each of which `at` gives by its number, those of a block."""
        block, blocks = _block.block(), _block.blocks()

        def tile(turn: Size) -> Tile:
            return at(block + turn * blocks)

        def each(body: Body) -> None:
            def step(turn: Size, steps: Any, before: Any) -> Sequence[Any]:
                again = replace(tile(turn), anew=lambda: tile(_block.anew(turn)))
                body(again, steps, before)
                return [steps + again.reach.count, before + 1]

            own = sizes.ceildiv(emit.maximum(emit.as_index(count) - block, 0), blocks)
            emit.carry(0, own, 1, [pieces.word(0)] * 2, step)

        return Tiles(ROWS, lines, each, True)
