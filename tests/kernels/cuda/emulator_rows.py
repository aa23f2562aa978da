"""All rows of the emulator: what it does for an operation, by its name.

`OPS` compute values alone; `EFFECTS` see the grid and the mask; `BLOCKING` may wait, too. Kernels
with a row of `ASYNCHRONOUS` run warp by warp, under vector clocks; others run in lockstep.
"""

from dataclasses import dataclass

import emulator_arrivals
import emulator_atomics
import emulator_barriers
import emulator_bulk
import emulator_clusters
import emulator_compare
import emulator_cp_async
import emulator_dependence
import emulator_inline
import emulator_mbarrier
import emulator_mma
import emulator_structs
import emulator_threads
import emulator_tma
import emulator_values
import emulator_warps
import emulator_wgmma

from heddle.kernels.mlir import ir

_TOPICS = (
    emulator_arrivals,
    emulator_atomics,
    emulator_bulk,
    emulator_clusters,
    emulator_cp_async,
    emulator_inline,
    emulator_mbarrier,
    emulator_tma,
    emulator_wgmma,
)

OPS = {**emulator_values.OPS, **emulator_compare.OPS, **emulator_structs.OPS}
BLOCKING = {
    **emulator_barriers.BLOCKING,
    **emulator_mbarrier.BLOCKING,
    **emulator_clusters.BLOCKING,
    **emulator_wgmma.BLOCKING,
}
EFFECTS = {
    **emulator_threads.EFFECTS,
    **emulator_barriers.EFFECTS,
    **emulator_warps.EFFECTS,
    **emulator_mma.EFFECTS,
    **emulator_atomics.ANYWHERE,
    **emulator_clusters.ANYWHERE,
    **emulator_dependence.EFFECTS,
    **{name: row for topic in _TOPICS for name, row in topic.EFFECTS.items()},
}
ASYNCHRONOUS = {
    "nvvm.barrier.arrive",
    *emulator_mbarrier.BLOCKING,
    *emulator_clusters.BLOCKING,
    *emulator_wgmma.BLOCKING,
    *(name for topic in _TOPICS for name in topic.EFFECTS),
}


@dataclass
class Ordering:
    """What a kernel orders memory by, beyond barriers of whole blocks.

    `by_warps`: anything else; `of_blocks`: global memory between its blocks; `of_grids`: it starts
    before the kernel before it has ended, and waits.
    """

    by_warps: bool = False
    of_blocks: bool = False
    of_grids: bool = False

    @staticmethod
    def of(kernel: ir.Operation) -> "Ordering":
        found = Ordering()

        def visit(op):
            name = op.name
            if name in ASYNCHRONOUS or (name == "nvvm.barrier" and len(op.operands) > 0):
                found.by_warps = True
            if name in emulator_atomics.EFFECTS:
                found.of_blocks = True
            if name == "nvvm.griddepcontrol" and "wait" in str(op.attributes["kind"]):
                found.of_grids = True
            return ir.WalkResult.ADVANCE

        kernel.walk(visit)
        return found
