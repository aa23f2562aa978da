"""e^(x - max) over its sum along the last axis; a row of -inf gives zeros.

A task is one row, which comes from memory once. The exponentials of a short row are kept on the
stack; those of a longer one are computed again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, pipeline, row_totals, rows
from heddle.kernels.functions.powers_of_two import LOG2_E, exp2_falling, finite
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

KEPT = 2**16
"""Bytes of a row's exponentials that are kept: they stay in L2 with the rows that are worked on."""

WORDS = 16
"""Numbers of 16 bits that are compared at once, where that takes less than widening them."""


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 40)


def emit_softmax(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and its three passes."""
    frame = host.frame(spec, machine)
    dtype = spec.operands[0].dtype
    lanes = rows.lanes_for(spec, machine)
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    element, length, result = emit.register_type(dtype), source.length, spec.result.dtype
    stored = "float64" if dtype == "float64" else "float32"
    zero = emit.constant(element, 0, lanes)

    kept = None
    if isinstance(length, int) and length * emit.ITEM_SIZE[stored] <= KEPT:
        kept = _Kept(stored, length, lanes, 2 if rows.are_paired(spec) else 1)

    narrow = emit.ITEM_SIZE[dtype] == 2 and not spec.prologue and lanes >= WORDS
    powers = _FusedPowers() if narrow and machine.vector_bytes == 64 else _Powers()
    tops = (_tops_of_bits if narrow else _tops)(frame, lanes, powers)

    def exponentials_at(x: Any, column: Any, mask: Any, *known: Any) -> list[Any]:
        value = exp2_falling(*powers.of(x, *known), result)
        if kept is not None:
            kept.put(value, column, mask)
        return [value]

    def scale(total: Any, *known: Any) -> list[Any]:
        return [*known, 1.0 / emit.select(emit.compare("equal", total, 0.0), 1.0, total)]

    # Exponentials side by side: a core does not look far enough ahead for those of registers of 32.
    several = rows.Source(frame, row_totals.CHAINS * lanes) if machine.vector_bytes == 32 else None
    exponentials = pipeline.Reduction(
        row_totals.Totals((zero,), row_totals.add),
        exponentials_at,
        scale,
        finds=tops.finds + 1,
        blocks=several,
    )

    def share(x: Any, column: Any, mask: Any, *known: Any) -> Any:
        *by, scale = known
        if kept is not None:
            return kept.get(column, mask) * scale
        return exp2_falling(*powers.of(x, *by), result) * scale

    pipeline.emit_rows(source, finish, [tops, exponentials], share)


class _Kept:
    """A row's exponentials on the stack, as `stored`.

    In one plane or, where whole vectors are in pairs, in two: one for even and one for odd columns.
    """

    def __init__(self, stored: str, length: int, lanes: int, planes: int) -> None:
        self.stored, self.lanes, self.planes = stored, lanes // planes, planes
        self.plane = (length // planes // self.lanes + 2) * self.lanes
        self.buffer = host.byte_buffer(planes * self.plane * emit.ITEM_SIZE[stored])

    def put(self, value: Any, column: Any, mask: Any) -> None:
        """Keeps those from `column` on; what is masked off is behind the row."""
        pieces = crosslane.parts(value, self.planes)
        if mask is not None:
            pieces = crosslane.deinterleaved(pieces)
        for place, piece in zip(self._places(column), pieces, strict=True):
            memory.store(piece, self.buffer, place, self.stored)

    def get(self, column: Any, mask: Any) -> Any:
        """Those from `column` on; in masked-off lanes is anything."""
        pieces = [
            memory.load(self.buffer, place, self.stored, self.lanes)
            for place in self._places(column)
        ]
        return crosslane.joined(crosslane.interleaved(pieces) if mask is not None else pieces)

    def _places(self, column: Any) -> list[Any]:
        """Where the columns from `column` on begin that are a vector's pieces."""
        columns = [column + ahead for ahead in range(self.planes)]
        return [at % self.planes * self.plane + at // self.planes for at in columns]


class _Powers:
    """What 2 is raised to in a row: in base two, as attention's, exponentials take less.

    Attributes:
        finds: What `known` gives, by which `of` gives an element's power as a number and its unit.
    """

    finds = 1

    def known(self, top: Any) -> list[Any]:
        """What is known of a row by its greatest number, which is finite or NaN or infinity."""
        return [top]

    def of(self, x: Any, top: Any) -> tuple[Any, float]:
        """Of the element `x`."""
        return x - top, LOG2_E


class _FusedPowers(_Powers):
    """The same of floats of 16 bits, by one multiplication and addition, `x a - top a`.

    The last product is rounded, the same for the whole row: a factor of all exponentials, and none
    of their shares. It is near 1 as `a` is log2(e) or, where the greatest is over 2^17 / log2(e),
    what makes that product 2^17: the next smaller number of bfloat16, 2^-8 of it away, then has a
    power of -512, which gives 0.
    """

    finds = 2

    def known(self, top: Any) -> list[Any]:
        factor = emit.minimum(2.0**17 / emit.absolute(top), LOG2_E)
        return [factor, -top * factor]

    def of(self, x: Any, *known: Any) -> tuple[Any, float]:
        return emit.fma(x, *known), 1.0


def _tops(frame: host.Frame, lanes: int, powers: _Powers) -> pipeline.Reduction:
    """The pass that finds a row's greatest number."""
    element = emit.register_type(frame.spec.operands[0].dtype)
    totals = row_totals.Totals(
        (emit.constant(element, -math.inf, lanes),),
        lambda top, x: emit.maximum(x, top),  # without NaN, which the sum will have
    )
    return pipeline.Reduction(
        totals,
        lambda x, column, mask: [x],
        lambda top: powers.known(finite(top)),
        powers.finds,
    )


def _tops_of_bits(frame: host.Frame, lanes: int, powers: _Powers) -> pipeline.Reduction:
    """The same of floats of 16 bits, as integers, which need not be widened.

    Those without a sign are in order, above those with one, which are in falling order: so it is
    the greatest of all, or else the least. A NaN without a sign is above everything, and makes a
    row NaN as any other does in its sum.
    """
    spec = frame.spec
    dtype = spec.operands[0].dtype
    bits = replace(spec, operands=(replace(spec.operands[0], dtype=memory.raw(dtype)),))
    least = emit.constant(emit.integer(16), -(2**15), lanes)

    def found(greatest: Any, inverted: Any) -> list[Any]:
        has_sign = emit.compare("less", greatest, 0)
        word = emit.select(has_sign, inverted ^ -1, greatest)
        half = emit.bitcast(word, emit.memory_type(dtype))
        return powers.known(finite(convert.from_memory(half, dtype)))

    return pipeline.Reduction(
        row_totals.Totals((least, least), emit.maximum),
        lambda word, column, mask: [word, word ^ -1],
        found,
        powers.finds,
        source=rows.Source(replace(frame, spec=bits), lanes),
    )


KERNEL = Kernel("softmax", "cpu", emit_softmax, launch, rows.unsupported, overwrites="all")
