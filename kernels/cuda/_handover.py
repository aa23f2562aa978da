"""What several blocks make together: each leaves its part in the workspace, the last one goes on.

Which block is last differs from run to run, the order in which it takes the parts does not: the
answer is bitwise the same. Nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, llvm = (dialect(name) for name in ("arith", "llvm"))

PROCESSORS = 132
"""Multiprocessors of an H100 or H200: by how many blocks at a time a choice counts."""

_TOGETHER = 8
"""Parts that are on their way at once: each comes from the L2 cache, some 300 ns away."""


def fence() -> None:
    """Orders memory between blocks (fence.acq_rel.gpu), together with atomics on either side.

    membar.gl would be fence.sc.gpu, which also puts all such fences in one order.
    """
    llvm.fence(llvm.AtomicOrdering.acq_rel, syncscope="device")


def arrive(counters: Any, place: Size, parts: Size) -> Any:
    """Counts one of `parts` at counter `place`: whether all are there. One thread calls for all.

    PTX ISA 9.0, "Release and Acquire Patterns": a fence, then an atomic releases; an atomic, then
    a fence acquires. Barriers of the block are what other threads hand over to the one by.
    """
    word, flags = emit.integer(32), llvm.GEPNoWrapFlags.inbounds
    where = [emit.as_index(place)]
    counter = llvm.getelementptr(counters.type, counters, where, [-(2**31)], word, flags)
    add, relaxed = llvm.AtomicBinOp.add, llvm.AtomicOrdering.monotonic
    fence()
    before = llvm.atomicrmw(add, counter, emit.constant(word, 1), relaxed, syncscope="device")
    fence()
    complete = emit.compare("equal", arith.extui(emit.integer(64), before), parts - 1)
    with emit.when(complete):
        reset(counter)
    return complete


def is_last(counters: Any, place: Size, parts: Size) -> Any:
    """Whether this block is the last of so many that arrive at counter `place`; all threads call.

    What the others wrote before they arrived can be read then. The counter is zero again.
    """
    word = emit.integer(32)
    flag = _block.SharedArray("complete", word, 1)
    _block.barrier()
    with emit.when(emit.compare("equal", _block.thread(), 0)):
        flag.store(arith.extui(word, arrive(counters, place, parts)), 0)
    _block.barrier()
    return emit.compare("equal", flag.load(0), 1)


def reset(counter: Any) -> None:
    """Leaves a counter as it was found; nobody else comes to it any more."""
    llvm.store(emit.constant(emit.integer(32), 0), counter, alignment=4)


def in_order(
    parts: Size,
    state: Sequence[Any],
    load: Callable[[Size], Sequence[Any]],
    add: Callable[..., Sequence[Any]],
) -> Sequence[Any]:
    """`state` after all parts: `add(is_part, found, *state)` for what `load(part)` gives.

    Several loads are started before the first is added; those behind the last part load it again.
    """
    together = min(parts, _TOGETHER) if isinstance(parts, int) else _TOGETHER

    def step(first: Size, *state: Any) -> Sequence[Any]:
        numbers = [first + i for i in range(together)]
        found = [load(emit.minimum(number, emit.as_index(parts) - 1)) for number in numbers]
        for number, part in zip(numbers, found, strict=True):
            state = tuple(add(emit.compare("less", number, parts), part, *state))
        return state

    return emit.carry(0, parts, together, state, step)
