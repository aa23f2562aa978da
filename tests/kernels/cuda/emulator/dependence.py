"""Kernels that start before the one before them in the stream has ended.

PTX ISA 9.0, "griddepcontrol": after griddepcontrol.wait the memory of the grids before is complete
and visible. A kernel that has one touches global memory only after it, or after something that is
ordered behind it, but for what is settled: no grid before it writes that. A block has to wait once
at least, as who waits for this grid takes those before it for complete.
griddepcontrol.launch_dependents gives the next kernel leave to start.
"""

import numpy as np

from emulator.grid import Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError


class Dependence:
    """Who knows that the grids before are complete, in a launch that runs in lockstep.

    In any launch: which buffers are `settled`, and which blocks have `waited`.
    """

    def __init__(self, blocks: int, threads: int, settled: list[bool]) -> None:
        self.complete = np.zeros((blocks, threads), bool)
        self.settled = np.array([*settled, False])  # The last one is for what is no buffer.
        self.waited = np.zeros(blocks, bool)

    def learn(self, lane: np.ndarray) -> None:
        self.complete.reshape(-1)[lane] = True

    def barrier(self, blocks: np.ndarray) -> None:
        """All threads of `blocks` know what one of them knows."""
        self.complete[blocks] |= self.complete[blocks].any(axis=1, keepdims=True)

    def finish(self) -> None:
        """Whether every block has waited, at the end."""
        if not self.waited.all():
            block = int(np.argmin(self.waited))
            raise EmulatorError(f"block {block} ends without griddepcontrol.wait")


def check(grid: Grid, lane: np.ndarray, region: np.ndarray) -> None:
    """Whether the threads `lane` may touch the global memory of buffers, for each thread one."""
    if grid.dependence is None:
        return
    settled = grid.dependence.settled
    lane = lane[~settled[np.clip(region, -1, len(settled) - 1)]]
    if grid.cluster is None:
        known = grid.dependence.complete.reshape(-1)[lane]
    else:
        clocks = grid.cluster.clocks
        known = clocks.known[grid.cluster.number(lane), _agent(grid)] > 0
    if not known.all():
        raise EmulatorError("touches global memory before griddepcontrol.wait")


def _agent(grid: Grid) -> int:
    return grid.cluster.clocks.agent("the grids", "before")


def control(op):
    return wait if "wait" in str(op.attributes["kind"]) else launch_dependents


def launch_dependents(grid: Grid, mask: Mask) -> None:
    pass


def wait(grid: Grid, mask: Mask) -> None:
    lane = grid.lane[mask]
    grid.dependence.waited[lane // grid.dependence.complete.shape[1]] = True
    if grid.cluster is None:
        grid.dependence.learn(lane)
    else:
        grid.cluster.clocks.learn(grid.cluster.number(lane), _agent(grid), 1)


EFFECTS = {"nvvm.griddepcontrol": control}
