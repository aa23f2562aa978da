"""Elements of each row chosen by that row's indices, swept over the flat output.

An index outside of the row is clamped and written to the status word by the first to find one.
"""

from __future__ import annotations

from heddle.kernels import bodies, convert, emit, sizes
from heddle.kernels.cuda import _frame, gather
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_take_along(spec: Spec, machine: Machine) -> None:
    """Emits the sweep, one element at a time: neighbours are anywhere."""
    frame = _frame.frame(spec, machine, checks=True)
    x, indices, write = frame.reader(0), frame.reader(1), frame.writer()
    limit = emit.as_index(frame.size(spec.operands[0].shape[-1]))
    count = frame.size(spec.result.shape[-1])
    total = frame.size(product(spec.result.shape))
    for position in _frame.sweep(total, 1):
        row = sizes.floordiv(position, count)
        wanted = convert.cast(indices(position, 1), indices.dtype, "int64")
        index = emit.minimum(emit.maximum(wanted, 0), limit - 1)
        with emit.when(emit.compare("not_equal", wanted, index)):
            gather.report(frame.status, wanted, limit)
        with emit.when(emit.compare("greater", limit, 0)):
            write(x(row * limit + index, 1), position)


def launch(spec: Spec) -> Launch:
    """Blocks enough for four elements in each thread."""
    shape = spec.result.shape
    work = fold("mul", product(shape), 2 + bodies.work(spec.epilogue))
    return Launch(_frame.sweep_grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Every dtype and body, and integers as indices."""
    if emit.is_float(spec.operands[1].dtype) or spec.operands[1].dtype == "bool":
        return f"take_along by {spec.operands[1].dtype}"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("take_along", "cuda", emit_take_along, launch, supports, checks=True)
