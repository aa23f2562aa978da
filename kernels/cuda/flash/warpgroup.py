"""Attention by wgmma on sm_90a: two warpgroups with 64 rows each, fed by a third, by TMA.

After Shah et al., "FlashAttention-3", arXiv:2407.08608: while the scores of some keys become
shares, the tensor cores multiply the next keys and the values before, for this warpgroup and, in
turns, for the other. `feed` brings what they read. Where
TMA cannot, four warps take 16 rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame, _rounding
from heddle.kernels.cuda.flash import attend as flash_attend
from heddle.kernels.cuda.flash import softmax as flash_softmax
from heddle.kernels.cuda.flash import split, stages
from heddle.kernels.cuda.flash.feed import Block, Feed, Layout
from heddle.kernels.cuda.flash.wide_tiles import CONSUMING, PLANS, WIDE, Tile, Tiles, plan
from heddle.kernels.cuda.products import mma, pieces, staging
from heddle.kernels.cuda.warpgroup import instructions, tma
from heddle.kernels.cuda.warpgroup.panels import WARP_ROWS, Panel
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec, product

llvm = dialect("llvm")

REGISTERS = 168
"""Of a thread at launch."""

_VECTORS = 4  # A thread loads so many results from shared memory before it writes them.


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether warpgroups take the operands."""
    q, k = spec.operands[:2]
    return machine.arch == "sm_90a" and q.dtype == k.dtype and q.shape[-1] in PLANS


def shared_bytes(spec: Spec, several: bool) -> int:
    """Dynamic shared memory of a block, which may have `several` tiles."""
    wide = Layout(int(spec.operands[0].shape[-1]), several).total  # type: ignore[arg-type]
    return max(wide, flash_attend.shared_bytes(spec, "sm_90a"))


def emit_tiles(
    frame: _frame.Frame, shared: mma.DynamicShared, tiles: Tiles, few: Any = None
) -> None:
    """Emits what a block does for its tiles; `few`: they are not worth two warpgroups."""
    wide = _is_mapped(frame)
    wide = wide if few is None else wide & (few ^ True)
    block = Block(frame, shared, tiles)
    with emit.when(wide):
        block.initialise()
    _block.barrier()
    instructions.registers_at_launch(REGISTERS)
    many, fewer = plan(frame.spec).registers

    def by_warpgroups() -> list[Any]:
        tiles.each(lambda *tile: _Attention(block, *tile).attend())
        return []

    def by_warps() -> list[Any]:
        with _block.first_threads(stages.THREADS):
            tiles.each(lambda tile, *before: _attend_by_warps(frame, shared, tile))
        return []

    def consume() -> list[Any]:
        instructions.registers(many, "increase")
        return emit.either(wide, [], by_warpgroups, by_warps)

    def produce() -> list[Any]:
        instructions.registers(fewer, "decrease")
        with emit.when(wide):
            block.produce()
        return []

    consumes = emit.compare("less", _block.thread(), CONSUMING)
    emit.either(consumes, [], consume, produce)


def _attend_by_warps(frame: _frame.Frame, shared: mma.DynamicShared, tile: Tile) -> None:
    """Emits a tile, some rows at a time."""
    ends = [pieces.word(row) for row in (tile.reach.first, tile.reach.end, split.FEW)]
    for first in emit.loop(*ends):  # In 32 bits: it holds them all the time.
        rows = (pieces.size(row) for row in (first, ends[1]))
        flash_attend.emit_few(frame, tile.task, shared, *rows)
        _block.barrier()  # Shared memory is free.


def _is_mapped(frame: _frame.Frame) -> Any:
    """Whether there are tensor maps: operands are aligned, and there are keys."""
    loose: Any = emit.index(0)
    for pointer in frame.inputs[:3]:
        loose = loose | llvm.ptrtoint(emit.integer(64), pointer) & (mma.CHUNK - 1)
    keys = emit.as_index(frame.size(product(frame.spec.operands[1].shape)))
    return emit.compare("equal", loose, 0) & emit.compare("greater", keys, 0)


class _Attention(Feed):
    """A tile, against all keys that its rows see."""

    def attend(self) -> None:
        """Attends with the 64 rows of the warpgroup, and writes the results."""
        spec, layout = self._frame.spec, self._layout
        self._kind = kind = mma.KINDS[spec.operands[0].dtype, spec.operands[0].dtype]
        self._of_scores = instructions.Matrices(kind, layout.keys, k_last=True)
        self._of_values = instructions.Matrices(kind, layout.size, k_last=False)
        scale, cap = spec.attr("scale"), spec.attr("softcap", 0.0)
        self._scores = flash_softmax.Scores.of(scale, cap, None, False)
        self._softmax = flash_softmax.Softmax(self._scores, layout.keys, 1, chains=4)
        warp = _block.thread() // _block.WARP
        self._line = warp * WARP_ROWS
        rows = self._rows()
        ranges = [self._tile.seen(emit.minimum(row, self._reach.end - 1)) for row in rows]
        self._ranges = [flash_softmax.in_words(range_) for range_ in ranges]
        self._check()
        self._turn(0, self._queries()).wait_until_full()
        self._turn(1, pieces.word(0)).wait_until_full()
        write = self._frame.writer()
        self._write_all(self._attended(), write)
        if self._block.tiles.several:
            self._pass_queries_on()

    def _rows(self) -> list[Size]:
        """Those that the thread has scores of; beyond the last one, there are none."""
        return [self._reach.first + self._line + self._softmax.group + 8 * i for i in range(2)]

    def _attended(self) -> list[Any]:
        """The results of the thread in float32, as `instructions.Matrices.parts` has them."""
        first = emit.compare("equal", self._block.warpgroup, 0)
        with emit.when(self._second & emit.compare("greater", self._reach.count, 1)):
            self._pass_on()  # The first warpgroup begins.
        element = emit.register_type("float32")
        zero, top = emit.constant(element, 0.0), emit.constant(element, -math.inf)
        one = pieces.word(1)
        words = self._layout.keys // 4

        def step(number: Any, *state: Any) -> Sequence[Any]:
            shares, tops, totals, sums = _split(state, words, 2, 2)
            self._turn(2, number - 1).wait_until_full()  # A turn begins when all is there.
            instructions.meet(self._block.warpgroup + 1, CONSUMING)
            scores = self._multiply_keys(number)
            whole = self._add_values(number - 1, shares, sums)
            with emit.when(first | emit.compare("less", number, self._reach.count - 1)):
                self._pass_on()
            instructions.wait(1)
            return self._become_shares(number, scores, tops, totals, whole)

        scores = self._multiply_keys(one - 1)
        instructions.wait(0)
        begin = self._become_shares(one - 1, scores, [top] * 2, [zero] * 2, None)
        begin += self._of_values.zeros()
        state = emit.carry(one, self._reach.count, one, begin, step)
        shares, tops, totals, sums = _split(state, words, 2, 2)
        self._turn(2, self._reach.count - 1).wait_until_full()
        self._blank_values(self._reach.count - 1)
        whole = self._add_values(self._reach.count - 1, shares, sums)
        instructions.wait(0)
        if self._block.tiles.several:
            self._release(2, self._reach.count - 1)
        sinks = self._task.sinks(self._rows())
        lines = zip(tops, self._softmax.sums(totals), sinks, strict=True)
        scales = [self._softmax.inverse(*line) for line in lines]
        parts = self._of_values.settled(whole)
        return [part * scales[i % 4 // 2] for i, part in enumerate(parts)]

    def _multiply_keys(self, number: Size) -> Any:
        """The scores of the keys of step `number`, in flight: a group of its own."""
        layout, units = self._layout, self._of_scores
        turn, warpgroup = self._turn(1, number), self._block.warpgroup
        if layout.panels > 2:  # So many descriptors of queries are not held from step to step.
            warpgroup = _block.anew(warpgroup)
        sums = None
        instructions.fence()
        for panel in range(layout.panels):
            a = units.a(self._shared.at(layout.queries(warpgroup, panel)))
            start = turn.start + (layout.first[1] + panel * layout.key_panel)
            b = units.b(self._shared.at(start), 0)
            for i in range(WIDE // self._kind.depth):
                sums = units.multiply(sums, units.a_slice(a, i), units.b_slice(b, i))
        instructions.commit()
        return sums

    def _add_values(self, number: Size, shares: Sequence[Any], sums: Sequence[Any]) -> Any:
        """The sums and the values of step `number` by their shares, in flight: another group."""
        layout, units = self._layout, self._of_values
        turn = self._turn(2, number)
        b = units.b(self._shared.at(turn.start + layout.first[2]), layout.key_panel)
        whole = units.whole(sums)
        instructions.fence()
        for i in range(layout.keys // self._kind.depth):
            words = shares[4 * i : 4 * i + 4]
            whole = units.multiply_words(whole, words, units.b_slice(b, i))
        instructions.commit()
        return whole

    def _seen(self, number: Size, sums: Any) -> list[Any]:
        """The scores of step `number`, -inf for keys that the row does not see."""
        scores = self._scores.unmasked(self._of_scores.settled(sums))
        keys = self._layout.keys
        first = self._reach.start + number * keys
        edge = emit.compare("greater", first + keys, self._reach.early)
        if self._reach.late is not None:
            edge = edge | emit.compare("less", first, self._reach.late)
        return emit.either(
            edge,
            [score.type for score in scores],
            lambda: self._softmax.seen(scores, pieces.size(first), self._ranges),
            lambda: scores,
        )

    def _become_shares(
        self, number: Size, sums: Any, tops: Sequence[Any], totals: Sequence[Any], whole: Any
    ) -> list[Any]:
        """The state after step `number`: shares, two in a word, maxima, totals and faded sums.

        `whole` are the sums that the values before are still being added to, if there are any.
        """
        softmax, dtype = self._softmax, self._frame.spec.operands[0].dtype
        scores = self._seen(number, sums)
        self._release(1, number)
        bests = [softmax.best(line, scores, top) for line, top in enumerate(tops)]
        shifts = [softmax.shift(best) for best in bests]
        fades = [softmax.power(*pair) for pair in zip(tops, shifts, strict=True)]
        added = [softmax.raise_line(0, scores, shifts[0])]
        # Also for the assembler, which would put the wait for products in front of what is above.
        # A stage that has been released may be full of other keys, and then of others again: of the
        # last step, values are released behind this, and other keys come behind other values.
        following = emit.minimum(number + 1, self._reach.count - 1)
        with (
            emit.when(emit.compare("greater", self._reach.count, 1))
            if whole is None
            else nullcontext()
        ):
            self._turn(1, following).wait_until_full()
        faded: list[Any] = []
        if whole is not None:
            instructions.wait(0)  # Beside the other line's powers, sums fade and shares are packed.
            faded = [
                part * fades[i % 4 // 2] for i, part in enumerate(self._of_values.settled(whole))
            ]
            self._release(2, number - 1)
        added.append(softmax.raise_line(1, scores, shifts[1]))
        totals = [emit.fma(*line) for line in zip(totals, fades, added, strict=True)]
        pairs = zip(scores[::2], scores[1::2], strict=True)
        return [*(_rounding.packed(pair, dtype) for pair in pairs), *bests, *totals, *faded]

    def _pass_on(self) -> None:
        """The other warpgroup may give work to the tensor cores."""
        instructions.arrive(2 - self._block.warpgroup, CONSUMING)

    def _pass_queries_on(self) -> None:
        """The place of the queries is free: of what warps have written there nothing is read."""
        tma.fence()
        self.meet()
        self._release(0, self._queries())

    def _queries(self) -> Any:
        """The stage of the warpgroup's queries."""
        return pieces.word(self._block.warpgroup) if self._layout.apart else pieces.word(0)

    def _release(self, operand: int, number: Size) -> None:
        """The warpgroup does not read a stage any more."""
        with emit.when(emit.compare("equal", self._block.thread, 0)):
            self._turn(operand, number).arrive_empty()

    def _write_all(self, parts: Sequence[Any], write: _frame.Writer) -> None:
        """Each warp brings its rows to where its queries were, and from there to the output."""
        frame, layout, size = self._frame, self._layout, self._layout.size
        dtype, rows = frame.spec.result.dtype, WARP_ROWS
        own = _block.thread() // _block.WARP % instructions.WARPS * (rows * staging.LINE)
        panels = [
            Panel(self._shared, dtype, layout.queries(self._block.warpgroup, number) + own)
            for number in range(layout.panels)
        ]
        self.meet()  # The queries are done with.
        each = len(parts) // layout.panels
        for number, panel in enumerate(panels):
            panel.fill(parts[number * each : (number + 1) * each])
        instructions.meet_in_warp()
        tile = self._tile.anew() if self._tile.anew else self._tile
        first = tile.reach.first + self._line

        def put(lanes: int, guarded: bool) -> list[Any]:
            lane, across = _block.thread() % _block.WARP, WIDE // lanes
            vectors = range(0, _VECTORS * _block.WARP, _block.WARP)
            for number, panel in enumerate(panels):
                for begin in emit.loop(lane, rows * across, _VECTORS * _block.WARP):
                    lines = [(begin + i) // across for i in vectors]
                    columns = [(begin + i) % across * lanes for i in vectors]
                    spots = list(zip(lines, columns, strict=True))
                    values = [panel.load(*spot, lanes) for spot in spots]
                    for value, (line, column) in zip(values, spots, strict=True):
                        inside = emit.compare("less", first + line, tile.reach.end)
                        with emit.when(inside) if guarded else nullcontext():
                            place = tile.task.place(first + line) + number * WIDE
                            write(value, place + column)
            return []

        def body(lanes: int) -> None:
            whole = emit.compare("less_equal", first + rows, tile.reach.end)
            emit.either(whole, [], lambda: put(lanes, False), lambda: put(lanes, True))

        _frame.in_vectors(frame, [write.inputs], [size], body, most=8)


def _split(values: Sequence[Any], *sizes: int) -> list[list[Any]]:
    """Lists of such sizes, and one of the rest."""
    found, rest = [], list(values)
    for size in sizes:
        found.append(rest[:size])
        rest = rest[size:]
    return [*found, rest]
