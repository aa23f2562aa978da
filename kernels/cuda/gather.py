"""Rows of a table selected by indices (an embedding look-up), swept over the flat output.

An index outside of the table is clamped and written to the status word by the first to find one.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, emit, memory, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import out_of_range
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec, product

llvm = dialect("llvm")


def emit_gather(spec: Spec, machine: Machine) -> None:
    """Emits the sweep: each vector of the output lies inside one selected slice."""
    frame = _frame.frame(memory.as_bits(spec, 1), machine)
    table, indices, write = frame.reader(0), frame.reader(1), frame.writer()
    axis = spec.attr("axis")
    shape = spec.operands[0].shape
    limit = emit.as_index(frame.size(shape[axis]))
    inner = frame.size(product(shape[axis + 1 :]))
    selected = frame.size(product(spec.operands[1].shape))
    total = frame.size(product(spec.result.shape))

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            row, column = sizes.floordiv(position, inner), sizes.mod(position, inner)
            outer, number = sizes.floordiv(row, selected), sizes.mod(row, selected)
            wanted = convert.cast(indices(number, 1), indices.dtype, "int64")
            index = emit.minimum(emit.maximum(wanted, 0), limit - 1)
            with emit.when(emit.compare("greater_equal", wanted, limit, unsigned=True)):
                report(frame.status, wanted, limit, out_of_range(indices.dtype))
            with emit.when(emit.compare("greater", limit, 0)):
                write(table((outer * limit + index) * inner + column, lanes), position)

    _frame.in_vectors(frame, [table.inputs, write.inputs], [inner], body)


def report(status: Any, index: Size, limit: Size, code: int, before: Any = None) -> None:
    """Writes the status word unless another thread has; `before` is its last number."""
    relaxed = llvm.AtomicOrdering.monotonic
    word = emit.index(code)
    pair = ir.Type.parse("!llvm.struct<(i64, i1)>")
    exchange = llvm.AtomicCmpXchgOp(status, emit.index(0), word, relaxed, relaxed, results=[pair])
    first = llvm.extractvalue(emit.integer(1), exchange.res, [1])
    with emit.when(first):
        memory.store(index, status, 1, "int64")
        memory.store(limit, status, 2, "int64")
        if before is not None:
            memory.store(before, status, 3, "int64")


def supports(spec: Spec) -> str | None:
    """Every dtype and body, and integers as indices."""
    if emit.is_float(spec.operands[1].dtype) or spec.operands[1].dtype == "bool":
        return f"{spec.op} by {spec.operands[1].dtype}"
    return bodies.unsupported_in(spec)


KERNEL = Kernel("gather", "cuda", emit_gather, _frame.sweep_launch, supports, checks=True)
