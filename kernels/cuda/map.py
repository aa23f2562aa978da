"""Elementwise work alone: the grid's threads sweep over the flat output."""

from __future__ import annotations

from heddle.kernels import bodies
from heddle.kernels.cuda import _frame
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_map(spec: Spec, machine: Machine) -> None:
    """Computes the prologue's results at each point of the output."""
    frame = _frame.frame(spec, machine)
    values = frame.reader(0)
    total = frame.size(product(spec.outputs[0].shape))

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            _frame.store_all(frame, values.all(position, lanes, stored=True), position)

    _frame.in_vectors(frame, [values.inputs], [], body)


def launch(spec: Spec) -> Launch:
    """Blocks enough for four elements in each thread."""
    shape = spec.outputs[0].shape
    work = fold("mul", product(shape), 1 + bodies.work(spec.prologue))
    return Launch(_frame.sweep_grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Every body whose ops have code."""
    return bodies.unsupported(spec.prologue)


KERNEL = Kernel("map", "cuda", emit_map, launch, supports)
