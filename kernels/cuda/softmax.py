"""Softmax over the last axis: a row's maximum, the sum of its exponentials, then the quotients.

What is rounded to 16 bits has its exponentials by an instruction (`_special`).
"""

from __future__ import annotations

import math

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame, _rows
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.functions.powers_of_two import narrow_exp
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product

_BLOCKS = 6  # On a multiprocessor: 40 registers for each thread.


def emit_softmax(spec: Spec, machine: Machine) -> None:
    """Emits three passes over each row, which is held in registers, or the cache if it is long."""
    frame = _frame.frame(spec, machine)
    x, write = frame.reader(0), frame.writer()
    exponential = vm.exp if emit.ITEM_SIZE[spec.result.dtype] > 2 else narrow_exp
    rows = _rows.Rows(frame, spec.result.shape, emit.register_type(x.dtype))
    if not isinstance(rows.length, int):  # It is read anew each time.
        _block.share_multiprocessor(_BLOCKS)

    def body(row: emit.Number, lanes: int) -> None:
        start = row * rows.length
        values = rows.read(lanes, lambda c: x(start + c, lanes))
        top = values.reduce(-math.inf, emit.maximum)
        # A row of -inf alone has no maximum to shift by, and gives zeros.
        top = emit.select(emit.compare("equal", top, -math.inf), 0.0, top)
        shifted = emit.splat(top, lanes)
        powers = values.map(lambda value: exponential(value - shifted))
        total = powers.reduce(0.0, lambda a, b: a + b)
        total = emit.select(emit.compare("equal", total, 0.0), 1.0, total)
        scale = emit.splat(1.0 / total, lanes)
        powers.each(lambda c, value: write(value * scale, start + c))

    rows.each([x.inputs, write.inputs], body)


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row."""
    shape = spec.result.shape
    return Launch(_rows.grid(shape), fold("mul", product(shape), 40), (_frame.THREADS, 1, 1))


KERNEL = Kernel("softmax", "cuda", emit_softmax, launch, _rows.supports_floats)
