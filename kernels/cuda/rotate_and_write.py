"""A decoder's step on its cache: queries and keys turned as in `rope`, keys and values written.

A warp has one head of one token: of the queries, of the keys or of the values. The results are the
caches already when the kernel starts (`Kernel.updates`).
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._spans import WarpSpans
from heddle.kernels.cuda.flash.online import WARPS, report
from heddle.kernels.cuda.paged_write import copy
from heddle.kernels.cuda.rope import Pairs
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.rotation import supports
from heddle.kernels.row_spans import Table
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

_BLOCKS = 8  # On a multiprocessor: 64 registers for each thread.


def emit_rotate_and_write(spec: Spec, machine: Machine) -> None:
    """Emits a warp's work."""
    frame = _frame.frame(spec, machine)
    _block.share_multiprocessor(_BLOCKS)
    tokens, key_heads, size = frame.shape(spec.operands[2].shape)
    heads = frame.size(spec.operands[4].shape[1])
    spans, table = WarpSpans(frame, report, 7, tokens), Table(frame, report, 0, 8)
    warp = _block.block() * WARPS + _block.thread() // _block.WARP
    token, head = (f(warp, frame.size(_warps(spec))) for f in (sizes.floordiv, sizes.mod))
    streamed = [
        _frame.Inputs(frame, operand.shape, [operand], [pointer])
        for operand, pointer in list(zip(spec.operands, frame.inputs, strict=True))[2:7]
    ]

    def body(lanes: int) -> None:
        with emit.when(emit.compare("less", head, heads)):
            frame.wait()
            row = token * heads + head
            _turn(frame, (4, row), (2, row), token, lanes)
        with emit.when(emit.compare("greater_equal", head, heads)):
            table.put(spans, token, lambda place: write(head - heads, place, lanes))

    def write(other: Any, place: Any, lanes: int) -> None:
        frame.wait()
        with emit.when(emit.compare("less", other, key_heads)):
            rows = token * key_heads + other, place * key_heads + other
            _turn(frame, (2, rows[0]), (0, rows[1]), token, lanes)
        with emit.when(emit.compare("greater_equal", other, key_heads)):
            other = other - key_heads
            rows = token * key_heads + other, place * key_heads + other
            copy(frame, (3, rows[0]), (1, rows[1]), size, lanes)

    with emit.when(emit.compare("less", token, tokens)):
        pairs = Pairs.of(frame, *(frame.spec.operands[number] for number in (2, 5)))
        _frame.in_vectors(frame, streamed, pairs.lengths, body)
    frame.wait()  # Warps without a place, too.


def _turn(
    frame: _frame.Frame, source: tuple[int, Any], target: tuple[int, Any], token: Any, lanes: int
) -> None:
    """Turns a row of an operand by the token's angles into a row of an output."""
    (number, row), (output, place) = source, target
    x, table = frame.spec.operands[number], frame.spec.operands[5]
    dtype = frame.spec.outputs[output].dtype
    pairs, size = Pairs.of(frame, x, table), frame.size(x.shape[-1])

    def turn(first: Any) -> None:
        def angles(offset: Any) -> list[Any]:
            at = token * pairs.half + first + offset
            return [_frame.load(p, at, table.dtype, lanes) for p in frame.inputs[5:7]]

        def at(row: Any, offset: Any) -> Any:
            return row * size + (pairs.column(first) + offset)

        def load(offset: Any) -> Any:
            return _frame.load(frame.inputs[number], at(row, offset), x.dtype, lanes)

        alignment = lanes * emit.ITEM_SIZE[dtype]
        for offset, value in pairs.turn(first, lanes, angles, load):
            memory.store(
                value, frame.outputs[output], at(place, offset), dtype, alignment=alignment
            )

    for first in emit.loop(_block.thread() % _block.WARP * lanes, pairs.count, _block.WARP * lanes):
        turn(first)


def _warps(spec: Spec) -> Expr:
    """The heads of a token: queries, keys, values."""
    return fold("add", spec.operands[4].shape[1], fold("mul", spec.operands[2].shape[1], 2))


def launch(spec: Spec) -> Launch:
    """A warp for each head of each token."""
    tokens, _, size = spec.operands[2].shape
    warps = fold("mul", tokens, _warps(spec))
    grid = fold("max", 1, fold("ceildiv", warps, WARPS))
    return Launch((grid, 1, 1), product((warps, size, 4)), (WARPS * _block.WARP, 1, 1))


KERNEL = Kernel(
    "rotate_and_write",
    "cuda",
    emit_rotate_and_write,
    launch,
    supports,
    checks=True,
    updates=2,
    ahead=lambda spec: (7, 8, 9),
)
