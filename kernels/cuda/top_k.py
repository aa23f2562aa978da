"""Where the k largest (or smallest) elements of each row are, in order; the first of equal ones.

A warp or a block works on a row: in each of k passes it finds the best key that follows the last
one, then the first place that has it. NaN is the best either way.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, ordering
from heddle.kernels.cuda import _frame, _rows
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, product

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def emit_top_k(spec: Spec, machine: Machine) -> None:
    """Emits the passes over each row."""
    frame = _frame.frame(spec, machine)
    x, write = frame.reader(0), frame.writer()
    word, kind = emit.integer(64), ordering.key_dtype(x.dtype)
    rows = _rows.Rows(frame, spec.operands[0].shape, word)
    k = frame.size(spec.result.shape[-1])

    def body(row: Any, lanes: int) -> None:
        start = row * rows.length

        def follows(column: Any, last: Any, place: Any) -> tuple[Any, Any, Any]:
            """Keys, places, and which of them come after `last` at `place`."""
            found = ordering.key(x.dtype, x(start + column, lanes), spec.attr("smallest"))
            found = convert.cast(found, kind, "int64")
            here = emit.splat(column, lanes) + crosslane.numbers(word, lanes)
            later = compare("equal", found, last) & compare("greater", here, place)
            return found, here, compare("less", found, last) | later

        def take(number: Any, last: Any, place: Any) -> list[Any]:
            def key_at(column: Any) -> Any:
                found, _, after = follows(column, last, place)
                return select(after, found, _LOWEST)

            top = rows.read(lanes, key_at).reduce(_LOWEST, emit.maximum)

            def place_at(column: Any) -> Any:
                found, here, after = follows(column, last, place)
                return select(after & compare("equal", found, top), here, _HIGHEST)

            first = rows.read(lanes, place_at).reduce(_HIGHEST, emit.minimum)
            with emit.when(compare("equal", rows.member, 0)):
                write(first, row * k + number)
            return [top, first]

        # Nothing is as good as this, and nothing has that place.
        emit.carry(0, k, 1, [emit.index(_HIGHEST), emit.index(-1)], take)

    rows.each([x.inputs], body)


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row."""
    shape = spec.operands[0].shape
    work = product((*shape, spec.result.shape[-1], 8))
    return Launch(_rows.grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Numbers, with any body."""
    if spec.operands[0].dtype == "bool":
        return "no order of bool"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("top_k", "cuda", emit_top_k, launch, supports)
