"""Products of many rows by weights of 8 and 4 bits, by wgmma: weights are its a, in registers.

A consumer has 64 columns of the result and all rows of the tile. Its lanes read the weights of
their fragments as they came, and widen a run of them while the products of the run before are in
flight, and ask for the next one in front of those. x is b. The sums of a group are multiplied by
its scales in float32, as in `products.scaled`. So rows and columns have changed places in
registers, which the way out turns.

Minimums are multiplied by the sums of x's groups (`products.minimums`), of which each warp makes
those of some rows of a stage for all of its warpgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import convert, emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import minimums, mma, pieces, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ROWS
from heddle.kernels.cuda.warpgroup import instructions, panels
from heddle.kernels.cuda.warpgroup.plan import Plan
from heddle.kernels.cuda.warpgroup.scaled_feed import tile_of
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

_HALVES = 2  # Rows of a fragment that a lane has, eight apart.
_RUN = 32  # Elements along k that are widened at once; groups are whole runs.


class Products:
    """What the consumers multiply.

    Args:
        frame: The kernel's.
        plan: Its plan.
        shared: Shared memory, with the stages of `ring`.
        release: Says that the warp does not read a stage any more.
    """

    def __init__(
        self,
        frame: _frame.Frame,
        plan: Plan,
        shared: mma.DynamicShared,
        ring: instructions.Ring,
        release: Callable[[instructions.Turn], None],
    ) -> None:
        self._frame, self._shared, self._ring, self._release = frame, shared, ring, release
        self._plan, self._tile, problem = plan, tile_of(plan), plan.problem
        self._units = instructions.Matrices(self._tile.kind, self._tile.rows, k_last=True)
        self._x = self._units.b(shared.at(0), 0)
        self._n = frame.size(problem.n)
        self._groups = sizes.floordiv(frame.size(problem.k), self._tile.group)
        thread = _block.thread()
        lane = thread % _block.WARP
        self._line = thread // _block.WARP * panels.WARP_ROWS + lane // 4
        self._member = pieces.word(lane % 4)
        self._minimums = minimums.number(plan.spec)
        # Registers suffice where tiles are short, or for one group in a stage without minimums.
        self._late = self._tile.rows == ROWS and self._minimums is not None
        lone = self._tile.span == self._tile.depth
        self._ahead = self._tile.rows < ROWS or (lone and not self._late)

    def __call__(self, piece: pieces.Piece, place: Place, first: Any) -> Sequence[Any]:
        """The sums of a thread: `instructions.Matrices.parts` of columns by rows of the tile."""
        rows = [
            emit.minimum(place.column + self._line + 8 * half, self._n - 1) * self._groups
            for half in range(_HALVES)
        ]
        if self._plan.grouped:  # Rows of no group are not scaled.
            above = emit.maximum(place.number, 0) * self._n * self._groups
            rows = [above + row for row in rows]
        count = _HALVES * self._tile.depth // self._tile.span

        def step(i: Any, number: Any, parity: Any, *state: Any) -> Sequence[Any]:
            scales: Sequence[Any] = state[:count]
            run: Sequence[Any] = state[count:behind]
            ahead = self._scales(rows, piece.start + i + 1)
            least = self._least(rows, piece.start + i)
            turn = self._ring.at(number, parity)
            if self._late:
                turn.wait_until_full()
                self._sum_groups(turn)
                run = self._run(turn, 0)
            sums, scales, found = self._add(turn, scales, run, state[behind:], least)
            following, run = self._ring.after(turn), []
            if not self._late:  # While the last products are in flight.
                run = self._begun(emit.compare("less", i + 1, piece.length), following)
            found = self._scaled(sums, scales, found)[1]
            if self._late:
                found = self._corrected(turn, least, found)
            self._release(turn)
            return [following.number, following.parity, *ahead, *run, *found]

        zero, one = (emit.constant(emit.integer(32), x) for x in (0, 1))
        turn, scales = self._ring.turn(first), self._scales(rows, piece.start)
        run: list[Any] = []
        if not self._late:
            run = self._begun(emit.compare("greater", piece.length, 0), turn)
        behind = count + len(run)
        begin = [*scales, *run, *self._units.zeros()]
        _, _, *found = emit.carry(zero, piece.length, one, [turn.number, turn.parity, *begin], step)
        totals = found[behind:]
        return [total * 2.0**-self._tile.weights.place for total in totals]

    def _begun(self, exists: Any, turn: instructions.Turn) -> list[Any]:
        """The first run of a stage, if it exists, once that is there."""
        word = emit.integer(32)

        def wait() -> list[Any]:
            turn.wait_until_full()
            return self._run(turn, 0)

        none = [emit.constant(word, 0)] * (_HALVES * _RUN // self._tile.each // 4)
        return emit.either(exists, [word] * len(none), wait, lambda: none)

    def _add(
        self,
        turn: instructions.Turn,
        scales: Sequence[Any],
        run: Sequence[Any],
        totals: Sequence[Any],
        least: Sequence[Any],
    ) -> tuple[Any, Sequence[Any], Sequence[Any]]:
        """The products of a stage, whose first `run` has been read.

        The sums of its last part, which are in flight, their scales, and `totals` with all others;
        with what minimums add, whose sums of groups are made and brought together meanwhile.
        """
        span, sums = self._tile.span, None
        for start in range(0, self._tile.depth, _RUN):
            words, behind = self._words(run), start + _RUN
            if behind < self._tile.depth and self._ahead:
                run = self._run(turn, behind)  # It comes beside products.
            first = start % span == 0
            if first and start:
                parts, totals = self._scaled(sums, scales[:_HALVES], totals)
                scales = scales[_HALVES:]
                # Behind this the totals are there: LLVM would put them off, and keep the sums.
                totals = self._units.settled(self._units.whole(totals))
                sums = self._units.whole(parts)
            sums = self._multiply(turn, start, words, sums, adds=not first)
            if least and not self._late and start == 0:
                self._sum_groups(turn)
            if least and not self._late and start == _RUN:
                totals = self._corrected(turn, least, totals)
            if behind < self._tile.depth and not self._ahead:
                run = self._run(turn, behind)
        return sums, scales, totals

    def _scales(self, rows: Sequence[Size], step: Any) -> list[Any]:
        """Those of the thread's columns, for each part of a stage; asked for in advance."""
        parts = range(0, self._tile.depth, self._tile.span)
        return [value for along in parts for value in self._of_groups(2, rows, step, along)]

    def _least(self, rows: Sequence[Size], step: Any) -> list[Any]:
        """The minimums, if any, for the one part of a stage of which a lane has the sums.

        They are asked for in front of its products, and wanted behind them.
        """
        if self._minimums is None:
            return []
        along = pieces.word(minimums.own_group(self._tile.depth // self._tile.span))
        return self._of_groups(self._minimums, rows, step, along * self._tile.span)

    def _of_groups(self, operand: int, rows: Sequence[Size], step: Any, along: Any) -> list[Any]:
        """What the thread's columns have of an operand, as stored, for a part of a stage.

        Beyond k it is that of the last group, of weights that meet zeros.
        """
        tile, dtype = self._tile, self._frame.spec.operands[operand].dtype
        last, found = pieces.word(self._groups - 1), []
        group = emit.minimum((step * tile.depth + along) // tile.group, last)
        for row in rows:
            place = memory.at(self._frame.inputs[operand], row + pieces.size(group), dtype)
            found.append(llvm.load(emit.memory_type(dtype), place))
        return found

    def _sum_groups(self, turn: instructions.Turn) -> None:
        """Puts the sums of x's groups of the warp's part of the rows into the stage."""
        tile, lane = self._tile, _block.thread() % _block.WARP
        sums_of = minimums.GroupSums(tile.kind)
        each = tile.rows // instructions.WARPS
        warp = _block.thread() % instructions.THREADS // _block.WARP
        for first in range(0, each, panels.WARP_ROWS):
            row, sums = warp * each + first, sums_of.zeros()
            line = row + lane % panels.WARP_ROWS
            for start in range(0, tile.depth, tile.kind.depth):
                panel, along = divmod(start, tile.panel_depth)
                chunk = along // tile.kind.each + lane // panels.WARP_ROWS
                place = line * staging.LINE
                place += staging.swizzled(line, chunk, staging.LINE) * mma.CHUNK
                at = turn.start + place + panel * tile.panel
                a = mma.load_matrices(self._shared.at(at), transposed=False)
                sums = sums_of.add(a, start // tile.span, sums)
            for below in range(_HALVES):
                self._shared.store(sums[2 * below], self._group_sum(turn, row + 8 * below))

    def _group_sum(self, turn: instructions.Turn, row: Size) -> Any:
        """Where the sum of the lane's group is, of row `lane // 4` behind one of the tile."""
        warpgroup, lane = _block.thread() // instructions.THREADS, _block.thread() % _block.WARP
        at = warpgroup * self._tile.sums + (row * minimums.GROUPS + lane) * 4
        return turn.start + at + self._tile.brought

    def _corrected(
        self, turn: instructions.Turn, least: Sequence[Any], totals: Sequence[Any]
    ) -> list[Any]:
        """`totals` and what minimums add, once all warps have put sums there."""
        dtype, kind = self._frame.spec.operands[2].dtype, self._tile.kind
        words = [minimums.word(convert.from_memory(each, dtype), kind) for each in least]
        warpgroup = _block.thread() // instructions.THREADS
        instructions.meet(warpgroup + 1, instructions.THREADS)
        found: list[Any] = []
        for row in range(0, self._tile.rows, 8):
            total = self._shared.load(self._group_sum(turn, row), emit.register_type("float32"), 1)
            here = totals[len(found) : len(found) + 4]
            found += minimums.add_to_rows(here, words, total)
        return found

    def _run(self, turn: instructions.Turn, start: int) -> list[Any]:
        """A run of the thread's lines as it is in memory, from element `start` of a stage on."""
        each = self._tile.each
        chunks = range(start // each, (start + _RUN) // each, mma.CHUNK)
        return [
            word
            for chunk in chunks
            for half in range(_HALVES)
            for word in self._chunk(turn, chunk // mma.CHUNK, half)
        ]

    def _words(self, run: Sequence[Any]) -> list[list[Any]]:
        """The four words of a for each slice of a run."""
        tile, words = self._tile, mma.CHUNK // 4
        each = tile.kind.depth // tile.each // 4  # Words of memory that a slice has.
        found = []
        for chunk in range(0, len(run), _HALVES * words):
            lines = [list(run[chunk + half * words :][:words]) for half in range(_HALVES)]
            for at in range(0, words, each):
                upper, lower = (
                    tile.weights.fragment(line[at : at + each], self._member) for line in lines
                )
                found.append([word for pair in zip(upper, lower, strict=True) for word in pair])
        return found

    def _chunk(self, turn: instructions.Turn, chunk: int, half: int) -> list[Any]:
        """The words of a chunk of one of the thread's lines of weights.

        `staging.swizzled` is the number of the chunk exclusive or what the line says, and eight
        lines on that is the same: so that one register has the places of all chunks.
        """
        length = self._tile.b_line
        first = self._line * length + staging.swizzled(self._line, 0, length) * mma.CHUNK
        at = (turn.start + first ^ chunk * mma.CHUNK) + (self._tile.b_place + 8 * half * length)
        return _block.lanes(self._shared.load(at, emit.integer(32), mma.CHUNK // 4))

    def _multiply(
        self,
        turn: instructions.Turn,
        start: int,
        words: Sequence[Sequence[Any]],
        sums: Any,
        adds: bool,
    ) -> Any:
        """The sums of a run in the registers of `sums`, in flight; of its group if it `adds`."""
        tile, units = self._tile, self._units
        panel, along = divmod(start, tile.panel_depth)
        b = instructions.behind(self._x, self._ring.size, turn.number)
        b = instructions.behind(b, panel * tile.panel)
        instructions.fence()
        for i, slice_ in enumerate(words):
            right = units.b_slice(b, along // tile.kind.depth + i)
            sums = units.multiply_words(sums, slice_, right, adds=adds or i > 0)
        instructions.commit()
        return sums

    def _scaled(
        self, sums: Any, scales: Sequence[Any], totals: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Sums that were in flight, and with them `totals`, by the scale of each one's column."""
        dtype = self._frame.spec.operands[2].dtype
        factors = [convert.from_memory(scale, dtype) for scale in scales]
        instructions.wait(0)
        parts = self._units.settled(sums)
        totals = [
            emit.fma(part, factors[i % 4 // 2], total)
            for i, (part, total) in enumerate(zip(parts, totals, strict=True))
        ]
        return parts, totals
