"""Sorting rows by their group: a block for each group looks at the groups of all rows.

It counts the rows of the groups before its own, which is where its own ones begin; the places of
these are running sums over the block. `kind` is that of the CPU's kernel.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, emit, memory
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._scan import Scan
from heddle.kernels.cuda.gather import report
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import out_of_range
from heddle.kernels.spec import Launch, Spec, fold


def emit_group_rows(spec: Spec, machine: Machine) -> None:
    """Emits the count, and the walk over the rows that writes."""
    frame = _frame.frame(spec, machine)
    kind, groups = spec.attr("kind"), spec.attr("groups")
    rows = emit.as_index(frame.size(spec.operands[0].shape[0]))
    mine, thread = _block.block(), _block.thread()
    scan = Scan("totals", _frame.THREADS)
    number = emit.integer(64)

    def group_of(row: Any) -> Any:
        """The row's group; of a row that is not there one behind all others."""
        dtype = spec.operands[0].dtype

        def there() -> list[Any]:
            found = convert.cast(memory.load(frame.inputs[0], row, dtype), dtype, "int64")
            group = emit.minimum(emit.maximum(found, 0), groups - 1)
            with emit.when(compare("not_equal", found, group)):
                report(frame.status, found, emit.index(groups), out_of_range(dtype))
            return [group]

        (found,) = emit.either(
            compare("less", row, rows), [number], there, lambda: [emit.index(groups)]
        )
        return found

    def count(first: Any, before: Any) -> list[Any]:
        earlier = compare("less", group_of(first + thread), mine)
        return [before + select(earlier, emit.index(1), 0)]

    (below,) = emit.carry(0, rows, _frame.THREADS, [emit.index(0)], count)
    _, below = scan(below)
    if kind == "offsets":
        with emit.when(compare("equal", thread, 0)):
            memory.store(below, frame.outputs[0], mine, "int64")
        with emit.when(compare("equal", thread, 0) & compare("equal", mine, groups - 1)):
            memory.store(rows, frame.outputs[0], groups, "int64")
        return

    def put(first: Any, place: Any) -> list[Any]:
        row = first + thread
        here = compare("equal", group_of(row), mine)
        before, total = scan(select(here, emit.index(1), 0))
        with emit.when(here):
            at = place + before
            at, value = (at, row) if kind == "order" else (row, at)
            memory.store(value, frame.outputs[0], at, "int64")
        return [place + total]

    emit.carry(0, rows, _frame.THREADS, [below], put)


def launch(spec: Spec) -> Launch:
    """A block for each group."""
    groups, (rows,) = spec.attr("groups"), spec.operands[0].shape
    work = fold("mul", rows, 2 * groups)
    return Launch((groups, 1, 1), work, (_frame.THREADS, 1, 1))


KERNEL = Kernel("group_rows", "cuda", emit_group_rows, launch, memory.moves_integers, checks=True)
