"""Windows reduced channel by channel: pooling, and convolutions of single channels.

A task is one row of windows; channels lie in the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product
from heddle.kernels.window_reduction import Load, Reduction, unsupported
from heddle.kernels.windows import Windows


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows of windows."""
    frame = host.frame(spec, machine)
    windows, dtype = Windows.of(frame), spec.operands[0].dtype
    lanes = host.lanes_for(machine, [dtype], [spec.epilogue])
    finish = rows.Finish(frame, lanes)

    def reduce(row: Any) -> None:
        out_at = finish.row(row)

        def write(reduced: Callable[[Load], Any]) -> None:
            for i, mask in host.vectors(0, windows.channels, lanes):

                def load(operand: int, place: Any, i: Any = i, mask: Any = mask) -> Any:
                    return memory.load(frame.inputs[operand], place + i, dtype, lanes, mask)

                out_at(i, mask, reduced(load))

        Reduction(frame, windows, row).emit(lanes, write)

    for task in emit.loop(frame.first, frame.last):
        for place in emit.loop(0, windows.counts[-1]):
            reduce(task * windows.counts[-1] + place)


def launch(spec: Spec) -> Launch:
    """One task for each row of windows."""
    *outer, along, channels = spec.result.shape
    each = fold("add", 2 * prod(spec.attr("kernel")), bodies.work(spec.epilogue))
    return Launch((product(tuple(outer)), 1, 1), product((*outer, along, channels, each)))


KERNEL = Kernel("window_reduce", "cpu", emit_reduce, launch, unsupported, overwrites="epilogue")
