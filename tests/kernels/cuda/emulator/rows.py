"""All rows of the emulator: what it does for an operation, by its name.

`OPS` compute values alone; `EFFECTS` see the grid and the mask; `BLOCKING` may wait, too. Kernels
with a row of `ASYNCHRONOUS` run warp by warp, under vector clocks; others run in lockstep.
"""

from dataclasses import dataclass

from emulator import (
    arrivals,
    atomics,
    barriers,
    bulk,
    clusters,
    compare,
    cp_async,
    dependence,
    inline,
    mbarrier,
    mma,
    structs,
    threads,
    tma,
    values,
    warps,
    wgmma,
)
from heddle.kernels.mlir import ir

_TOPICS = (
    arrivals,
    atomics,
    bulk,
    clusters,
    cp_async,
    inline,
    mbarrier,
    tma,
    wgmma,
)

OPS = {**values.OPS, **compare.OPS, **structs.OPS}
BLOCKING = {
    **barriers.BLOCKING,
    **mbarrier.BLOCKING,
    **clusters.BLOCKING,
    **wgmma.BLOCKING,
}
EFFECTS = {
    **threads.EFFECTS,
    **barriers.EFFECTS,
    **warps.EFFECTS,
    **mma.EFFECTS,
    **atomics.ANYWHERE,
    **clusters.ANYWHERE,
    **dependence.EFFECTS,
    **{name: row for topic in _TOPICS for name, row in topic.EFFECTS.items()},
}
ASYNCHRONOUS = {
    "nvvm.barrier.arrive",
    *mbarrier.BLOCKING,
    *clusters.BLOCKING,
    *wgmma.BLOCKING,
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
            if name in atomics.EFFECTS:
                found.of_blocks = True
            if name == "nvvm.griddepcontrol" and "wait" in str(op.attributes["kind"]):
                found.of_grids = True
            return ir.WalkResult.ADVANCE

        kernel.walk(visit)
        return found
