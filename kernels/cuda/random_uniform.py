"""Random numbers between 0 and 1 for each row's seed and step, by Philox4x32-10.

The grid sweeps over the output; the four words of a counter are four neighbours.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit, philox, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product

vector = dialect("vector")


def emit_random_uniform(spec: Spec, machine: Machine) -> None:
    """Emits the sweep, in vectors that divide a counter's words."""
    frame = _frame.frame(spec, machine)
    seeds, write = frame.reader(0), frame.writer()
    length = frame.size(spec.result.shape[-1])
    total = frame.size(product(spec.result.shape))

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            row, column = sizes.floordiv(position, length), sizes.mod(position, length)
            seed, step = (seeds(row * 2 + i, 1) for i in (0, 1))
            words = philox.uniform(column // philox.WORDS, seed, step)
            place = column % philox.WORDS
            value: Any = None
            for first in range(0, philox.WORDS, lanes):
                part = _together(words[first : first + lanes])
                here = emit.compare("equal", place, first)
                value = part if value is None else emit.select(here, part, value)
            write(value, position)

    _frame.in_vectors(frame, [write.inputs], [length], body, most=philox.WORDS)


def _together(words: list[Any]) -> Any:
    if len(words) == 1:
        return words[0]
    return vector.from_elements(emit.widen(words[0].type, len(words)), words)


def launch(spec: Spec) -> Launch:
    """Blocks enough for four elements in each thread."""
    shape = spec.result.shape
    work = fold("mul", product(shape), 24 + bodies.work(spec.epilogue))
    return Launch(_frame.sweep_grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """float32, with any body after it."""
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("random_uniform", "cuda", emit_random_uniform, launch, supports)
