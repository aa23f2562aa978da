"""Tiles in pieces: sums of each go to the workspace, and who comes last adds them up.

All pieces are added in their order, so that it does not matter who is last. Each warpgroup of a
tile is alone in this: it has a counter of its own, which whoever comes last sets back to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame, _handover
from heddle.kernels.cuda.products import mma, pieces
from heddle.kernels.cuda.warpgroup import instructions
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, vector = dialect("arith"), dialect("vector")

FLAG = 4
"""Bytes of shared memory for each warpgroup."""

_VECTOR = 4  # Sums of 32 bits that a thread writes at once.


@dataclass(frozen=True)
class Meeting:
    """Where the sums of tiles come together.

    `count` sums of `dtype` in each thread; `parts` warpgroups of a tile in the whole cluster;
    shared memory from byte `flags` on.
    """

    frame: _frame.Frame
    shared: mma.DynamicShared
    flags: int
    dtype: str
    count: int
    parts: int

    def bring(self, piece: pieces.Piece, part: Any, sums: Sequence[Any], some: Any) -> Any:
        """Whether this warpgroup, `part` of its tile, is the last to bring its sums.

        A warp has `some` to bring, or nothing that is in the result.
        """
        with emit.when(some):
            for i in range(0, self.count, _VECTOR):
                together = vector.from_elements(self._kind(_VECTOR), list(sums[i : i + _VECTOR]))
                place = self._place(piece.number, part, _block.thread(), i)
                memory.store(together, self.frame.workspace, place, self.dtype, alignment=mma.CHUNK)
        warpgroup = _block.thread() // instructions.THREADS
        flag = self.flags + warpgroup * FLAG
        instructions.meet(warpgroup + 1, instructions.THREADS)
        with emit.when(emit.compare("equal", _block.thread() % instructions.THREADS, 0)):
            place = pieces.size(piece.rest * self.parts + part)
            complete = _handover.arrive(self.frame.counters, place, pieces.size(piece.count))
            self.shared.store(arith.extui(emit.integer(32), complete), flag)
        instructions.meet(warpgroup + 1, instructions.THREADS)
        complete = pieces.size(self.shared.load(flag, emit.integer(32), 1))
        # Else what comes behind would not have places of stages in registers of the warp.
        return emit.compare("equal", _block.of_all(complete), 1)

    def total(
        self, piece: pieces.Piece, part: Any, warp: Size, first: Size, count: int
    ) -> Sequence[Any]:
        """So many sums, from `first` on, of the threads of a warp, of all pieces of a tile."""
        thread = warp * _block.WARP + _block.thread() % _block.WARP

        def body(number: Any, *sums: Any) -> Sequence[Any]:
            found = []
            for i in range(0, count, _VECTOR):
                place = self._place(number, part, thread, first + i)
                more = memory.load(
                    self.frame.workspace, place, self.dtype, _VECTOR, alignment=mma.CHUNK
                )
                found += [sums[i + j] + lane for j, lane in enumerate(_block.lanes(more))]
            return found

        zeros = [emit.constant(self._kind(1), 0)] * count
        start, stop = (pieces.size(x) for x in (piece.first, piece.first + piece.count))
        return emit.carry(start, stop, 1, zeros, body)

    def _place(self, number: Any, part: Any, thread: Size, i: Size) -> Size:
        """The element where a thread keeps its sums from `i` on; its neighbours' lie beside."""
        group = pieces.size(number) * self.parts + pieces.size(part)
        within = thread % instructions.THREADS * _VECTOR + i * instructions.THREADS
        return group * (self.count * instructions.THREADS) + within

    def _kind(self, lanes: int) -> Any:
        return emit.widen(emit.register_type(self.dtype), lanes)
