"""Elements of each row chosen by that row's indices, swept over the flat output.

An index outside of the row is clamped and written to the status word by the first to find one.
"""

from __future__ import annotations

from heddle.kernels import convert, emit, memory, sizes
from heddle.kernels.cuda import _frame, gather
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import out_of_range
from heddle.kernels.spec import Spec, product


def emit_take_along(spec: Spec, machine: Machine) -> None:
    """Emits the sweep, one element at a time: neighbours are anywhere."""
    frame = _frame.frame(memory.as_bits(spec, 1), machine)
    x, indices, write = frame.reader(0), frame.reader(1), frame.writer()
    limit = emit.as_index(frame.size(spec.operands[0].shape[-1]))
    count = frame.size(spec.result.shape[-1])
    total = frame.size(product(spec.result.shape))
    for position in _frame.sweep(total, 1):
        row = sizes.floordiv(position, count)
        wanted = convert.cast(indices(position, 1), indices.dtype, "int64")
        index = emit.minimum(emit.maximum(wanted, 0), limit - 1)
        with emit.when(emit.compare("greater_equal", wanted, limit, unsigned=True)):
            gather.report(frame.status, wanted, limit, out_of_range(indices.dtype))
        with emit.when(emit.compare("greater", limit, 0)):
            write(x(row * limit + index, 1), position)


KERNEL = Kernel(
    "take_along", "cuda", emit_take_along, _frame.sweep_launch, gather.supports, checks=True
)
