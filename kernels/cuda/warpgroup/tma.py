"""Copies of boxes by TMA, and the clusters of blocks for which they multicast (PTX ISA 9.0).

One thread starts a copy. It goes through the async proxy: who wrote shared memory otherwise puts
`fence` and a barrier in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda.products import mma
from heddle.kernels.mlir import dialect, ir

arith, llvm, nvvm = (dialect(name) for name in ("arith", "llvm", "nvvm"))


def load(
    target: Any, tensor_map: Any, start: Sequence[Any], barrier: Any, blocks: Any = None
) -> None:
    """Copies the box at `start`, outermost first, to shared memory; its bytes count at `barrier`.

    With `blocks`, an i32 with a bit for each block of the cluster, the box and its bytes arrive at
    the same places in each of those.
    """
    mask = None if blocks is None else arith.trunci(emit.integer(16), blocks)
    everywhere = llvm.addrspacecast(_of_cluster(), target)
    inner_first = list(reversed(start))
    nvvm.cp_async_bulk_tensor_shared_cluster_global(
        everywhere, tensor_map, inner_first, barrier, [], multicast_mask=mask
    )


def store(tensor_map: Any, source: Any, start: Sequence[Any]) -> None:
    """Copies from shared memory to the box at `start`, outermost first; a group of its own."""
    inner_first = list(reversed(start))
    nvvm.cp_async_bulk_tensor_global_shared_cta(tensor_map, source, inner_first)
    nvvm.cp_async_bulk_commit_group()


def wait_until_read(left: int) -> None:
    """Waits until all but `left` of the thread's stores have read shared memory."""
    nvvm.cp_async_bulk_wait_group(left, read=True)


def fence() -> None:
    """Orders what was done to shared memory by threads, and what the async proxy does to it."""
    kind, space = "#nvvm.proxy_kind<async.shared>", "#nvvm.shared_space<cta>"
    nvvm.fence_proxy(ir.Attribute.parse(kind), space=ir.Attribute.parse(space))


def prefetch(tensor_map: Any) -> None:
    """Brings a tensor map to the cache of maps."""
    nvvm.prefetch(tensor_map, tensormap=True)


def rank() -> Any:
    """The number of this block in its cluster, i32."""
    return nvvm.read_ptx_sreg_cluster_ctarank(results=[emit.integer(32)])


class Peer(mma.DynamicShared):
    """The dynamic shared memory of a block of the cluster, which must not have ended."""

    def __init__(self, shared: mma.DynamicShared, block: Any) -> None:
        self.base = nvvm.mapa(_of_cluster(), shared.base, block)


def meet_in_cluster() -> None:
    """Waits for every thread of the cluster; shared memory of a block that ended is gone."""
    nvvm.cluster_arrive()
    nvvm.cluster_wait()


def arrive_at(barrier: Any, block: Any) -> None:
    """Arrives at the mbarrier that is at the same place in a block of the cluster.

    This says what the async proxy has done, as the thread has waited for it, and hands over no more
    than to its own block: to release to the other what threads did takes a fence of the whole GPU.
    """
    nvvm.mbarrier_arrive(nvvm.mapa(_of_cluster(), barrier, block))


def _of_cluster() -> Any:
    return ir.Type.parse("!llvm.ptr<7>")
