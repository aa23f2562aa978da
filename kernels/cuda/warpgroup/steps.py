"""The steps of a warpgroup along k: products of what a ring of stages brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda.products import mma
from heddle.kernels.cuda.warpgroup import instructions, tma
from heddle.kernels.cuda.warpgroup.plan import Plan
from heddle.kernels.cuda.warpgroup.short_plan import ShortPlan
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Steps:
    """What a warpgroup does with the stages of `ring`, each of which it may `release` then."""

    plan: Plan | ShortPlan
    shared: mma.DynamicShared
    ring: instructions.Ring
    release: Callable[[instructions.Turn], None]

    def __call__(self, rows: Size, length: Any, first: Any) -> Sequence[Any]:
        """The sums of a thread over `length` steps, as `instructions.Matrices.parts` has them.

        Steps count through all that the ring brings, from `first` on; the warpgroup's rows are at
        byte `rows` of a stage.
        """
        tile, ring = self.plan.tile, self.ring
        units = instructions.Matrices(tile.kind, tile.columns, tile.transposed, tile.b_line)
        a = units.a(self.shared.at(rows))
        b = units.b(self.shared.at(tile.b_place), tile.depth * tile.b_line)

        def step(i: Any, number: Any, parity: Any, there: Any, before: Any, sums: Any) -> Any:
            turn = ring.at(number, parity)
            left, right = (instructions.behind(side, ring.size, number) for side in (a, b))
            with emit.when(there ^ 1):
                turn.wait_until_full()
            if self.plan.gathers:
                tma.fence()  # What threads have copied is read by the async proxy.
            instructions.fence()
            for slice_ in range(tile.depth // tile.kind.depth):
                at_slice = units.a_slice(left, slice_), units.b_slice(right, slice_)
                sums = units.multiply(sums, *at_slice)
            instructions.commit()
            following = ring.after(turn)
            there = following.is_full()  # Asked while products run, of use in the next step.
            instructions.wait(1)  # This step goes on, the one before it is done.
            with emit.when(emit.compare("greater", i, 0)):
                self.release(ring.at(before, parity))
            return [following.number, following.parity, there, number, sums]

        zero, one = (emit.constant(emit.integer(32), x) for x in (0, 1))
        turn = ring.turn(first)
        no = emit.constant(emit.integer(1), 0)
        begin = [turn.number, turn.parity, no, zero, units.whole(units.zeros())]
        *_, last, sums = emit.carry(zero, length, one, begin, step)
        instructions.wait(0)
        with emit.when(emit.compare("greater", length, 0)):
            self.release(ring.at(last, zero))
        return units.parts(sums)
