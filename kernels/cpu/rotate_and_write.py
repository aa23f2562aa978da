"""A decoder's step on its cache: queries and keys turned as in `rope`, keys and values written.

A task is one token, with all of its heads. The results are the caches already when the kernel
starts (`Kernel.updates`). A place outside of a cache is reported, and its token not written.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.flash.ragged import report
from heddle.kernels.cpu.paged_write import copy
from heddle.kernels.cpu.rope import Pairs, reader
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.rotation import supports
from heddle.kernels.row_spans import RowSpans, Table
from heddle.kernels.spec import Launch, Spec, product


def launch(spec: Spec) -> Launch:
    """One task for each token."""
    _, _, key, _, query, *_ = spec.operands
    size = product((*key.shape, 2)), product(query.shape)
    return Launch((key.shape[0], 1, 1), ("mul", ("add", *size), 8))


def emit_rotate_and_write(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tokens."""
    frame = host.frame(spec, machine, checks=True)
    _, _, key, _, _, cos, *_ = spec.operands
    tokens, _, size = frame.shape(key.shape)
    lanes = host.lanes_for(machine, [key.dtype, cos.dtype])
    pairs = Pairs(frame.size(cos.shape[-1]), size, lanes, spec.attr("interleaved"))
    spans, table = RowSpans(frame, report, 7, tokens), Table(frame, report, 0, 8)
    width = sizes.product(frame.shape(spec.operands[3].shape[1:]))
    for token in emit.loop(frame.first, frame.last):
        _turn(frame, pairs, 4, 2, token, token)

        def write(place: Any, token: Any = token) -> None:
            _turn(frame, pairs, 2, 0, token, place)
            copy(frame, 3, 1, token, width, place)

        table.put(spans, token, write)


def _turn(
    frame: host.Frame, pairs: Pairs, source: int, output: int, token: Any, place: Any
) -> None:
    """Turns a token's heads of an operand, which become those at `place` of an output."""
    operand, cos = frame.spec.operands[source], frame.spec.operands[5].dtype
    heads, dtype = frame.size(operand.shape[1]), frame.spec.outputs[output].dtype

    def angles(i: Any, mask: Any) -> list[Any]:
        at = token * pairs.half + i
        return [memory.load(p, at, cos, pairs.lanes, mask) for p in frame.inputs[5:7]]

    for head in emit.loop(0, heads):
        first = (place * heads + head) * pairs.size

        def store(column: Any, mask: Any, value: Any, first: Any = first) -> None:
            memory.store(value, frame.outputs[output], first + column, dtype, mask)

        row = (token * heads + head) * pairs.size
        pairs.turn(reader(frame.inputs[source], row, operand.dtype), angles, store)


KERNEL = Kernel(
    "rotate_and_write",
    "cpu",
    emit_rotate_and_write,
    launch,
    supports,
    checks=True,
    updates=2,
)
