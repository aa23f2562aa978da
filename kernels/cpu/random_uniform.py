"""Random numbers between 0 and 1 for each row's seed and step, by Philox4x32-10.

A task is one row. The four words of a counter are four neighbours.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, crosslane, emit, host, memory, philox, rows, sizes
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    shape = spec.result.shape
    each = 24 + bodies.work(spec.epilogue)
    return Launch((product(shape[:-1]), 1, 1), fold("mul", product(shape), each))


def emit_random_uniform(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows."""
    frame = host.frame(spec, machine)
    lanes = host.lanes_for(machine, ["int64"], [spec.epilogue])
    width = philox.WORDS * lanes
    finish = rows.Finish(frame, width)
    blocks = crosslane.numbers(emit.integer(64), lanes)

    def draw(row: Any) -> None:
        out_at = finish.row(row)
        seed, step = (memory.load(frame.inputs[0], row * 2 + i, "int64") for i in (0, 1))
        for i, mask in host.vectors(0, finish.length, width):
            block = blocks + sizes.floordiv(i, philox.WORDS)
            words = philox.uniform(block, emit.splat(seed, lanes), emit.splat(step, lanes))
            out_at(i, mask, _in_order(words))

    for row in emit.loop(frame.first, frame.last):
        draw(row)


def _in_order(vectors: list[Any]) -> Any:
    """Lane 0 of each vector, then lane 1 of each, ..."""
    lanes = emit.lanes_of(vectors[0])
    first, second = map(crosslane.joined, (vectors[:2], vectors[2:]))
    order = [lane + lanes * number for lane in range(lanes) for number in range(philox.WORDS)]
    return crosslane.shuffle(first, second, order)


def supports(spec: Spec) -> str | None:
    """float32, with any body after it."""
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("random_uniform", "cpu", emit_random_uniform, launch, supports)
