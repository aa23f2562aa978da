"""Windows reduced channel by channel, swept over the flat output; see `window_reduction`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from heddle.kernels import bodies, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product
from heddle.kernels.window_reduction import Load, Reduction, depth_of, unsupported
from heddle.kernels.windows import Windows


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the sweep: a vector of the output is channels of one window."""
    frame = _frame.frame(spec, machine)
    windows, write = Windows.of(frame), frame.writer()
    readers = [frame.reader(number) for number in range(len(spec.operands))]
    total = frame.size(product(spec.result.shape))

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            channel = sizes.mod(position, windows.channels)

            def put(
                reduced: Callable[[Load], Any], position: Any = position, channel: Any = channel
            ) -> None:
                value = reduced(lambda number, place: readers[number](place + channel, lanes))
                write(value, position)

            row = sizes.floordiv(position, windows.channels)
            Reduction(frame, windows, row).emit(lanes, put)

    inputs = [*(reader.inputs for reader in readers), write.inputs]
    _frame.in_vectors(frame, inputs, [windows.channels], body, most=8)


def launch(spec: Spec) -> Launch:
    """Blocks enough for four elements in each thread."""
    shape = spec.result.shape
    each = fold("add", 2 * prod(spec.attr("kernel")), bodies.work(spec.epilogue))
    work = fold("mul", product(shape), each)
    return Launch(_frame.sweep_grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Products of single channels."""
    if depth_of(spec) > 1:
        return f"wanted weights of single channels, got groups of {depth_of(spec)}"
    return unsupported(spec)


KERNEL = Kernel("window_reduce", "cuda", emit_reduce, launch, supports)
