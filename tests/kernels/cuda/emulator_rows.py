"""All rows of the emulator: what it does for an operation, by its name.

`OPS` compute values alone; `EFFECTS` see the grid and the mask; `BLOCKING` may wait, too. Kernels
with a row of `ASYNCHRONOUS` run warp by warp, under vector clocks; others run in lockstep.
"""

import emulator_barriers
import emulator_clusters
import emulator_cp_async
import emulator_inline
import emulator_mbarrier
import emulator_mma
import emulator_structs
import emulator_threads
import emulator_tma
import emulator_values
import emulator_wgmma

from heddle.kernels.mlir import ir

_TOPICS = (
    emulator_clusters,
    emulator_cp_async,
    emulator_inline,
    emulator_mbarrier,
    emulator_tma,
    emulator_wgmma,
)

OPS = {**emulator_values.OPS, **emulator_structs.OPS}
BLOCKING = {
    **emulator_barriers.BLOCKING,
    **emulator_mbarrier.BLOCKING,
    **emulator_clusters.BLOCKING,
}
EFFECTS = {
    **emulator_threads.EFFECTS,
    **emulator_barriers.EFFECTS,
    **emulator_mma.EFFECTS,
    **emulator_clusters.ANYWHERE,
    **{name: row for topic in _TOPICS for name, row in topic.EFFECTS.items()},
}
ASYNCHRONOUS = {
    "nvvm.barrier.arrive",
    *emulator_mbarrier.BLOCKING,
    *emulator_clusters.BLOCKING,
    *(name for topic in _TOPICS for name in topic.EFFECTS),
}


def runs_by_warps(kernel: ir.Operation) -> bool:
    """Whether anything in the kernel orders memory by other means than barriers of whole blocks."""
    found = False

    def visit(op):
        nonlocal found
        found |= op.name in ASYNCHRONOUS or (op.name == "nvvm.barrier" and len(op.operands) > 0)
        return ir.WalkResult.ADVANCE

    kernel.walk(visit)
    return found
