"""a @ b of uint8 by int8 for a b that `pack_b` laid out in fours along k (see `_panels`).

A step takes four elements of each row of a, as one word in every lane, and 32 words of b. Where the
machine has dot products of bytes, a step is one of them for each vector of columns. Others widen
both sides to 16 bits, the even elements and the odd ones apart, and add products of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from heddle.kernels import bodies, emit, host, memory, sizes
from heddle.kernels.cpu import _panels
from heddle.kernels.cpu._panels import PANEL, Tile
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Operand, Spec

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

FOURS = 4
"""Elements along k in a word."""

TOGETHER = 4
"""Steps in one turn of the loop."""


def emit_integer(spec: Spec, machine: Machine) -> None:
    """Emits the products of all tiles."""
    frame = host.frame(spec, machine)
    k = frame.size(spec.operands[0].shape[-1])
    lanes = machine.vector_bytes // FOURS
    whole, steps = sizes.floordiv(k, FOURS), sizes.ceildiv(k, FOURS)
    main = whole - sizes.mod(whole, TOGETHER)
    zero = emit.constant(emit.integer(32), 0, lanes)

    def multiply(tile: Tile, scratch: Any) -> None:
        start = tile.panel * steps * PANEL

        def step(word_at: Callable[[int, Any], Any], number: Any, sums: Sequence[Any]) -> list[Any]:
            row = start + number * PANEL
            _panels.ask_ahead(frame, tile, row, "int32", PANEL)
            right = [
                memory.load(frame.inputs[1], row + tile.part + half * lanes, "int32", lanes)
                for half in range(2)
            ]
            add = _add_fours if machine.dots else _add_pairs
            return add(sums, (word_at(r, number) for r in range(tile.height)), right)

        def word(r: int, number: Any) -> Any:
            where = memory.at(frame.inputs[0], (tile.row + r) * k + number * FOURS, "uint8")
            return llvm.load(emit.integer(32), where, alignment=1)

        def edge(r: int, number: Any) -> Any:
            """The last word of a row, zero beyond k."""
            first = (tile.row + r) * k + number * FOURS
            mask = host.first_lanes(k - number * FOURS, FOURS)
            value = memory.load(frame.inputs[0], first, "uint8", FOURS, mask)
            one = ir.VectorType.get([1], emit.integer(32))
            return vector.extract(vector.bitcast(one, value), [], [0])

        def several(number: Any, *sums: Any) -> Sequence[Any]:
            for ahead in range(TOGETHER):
                sums = step(word, number + ahead, sums)
            return sums

        sums = emit.carry(0, main, TOGETHER, [zero] * (2 * tile.height), several)
        sums = emit.carry(main, whole, 1, sums, lambda i, *sums: step(word, i, sums))
        sums = emit.carry(whole, steps, 1, sums, lambda i, *sums: step(edge, i, sums))
        for number, value in enumerate(sums):
            memory.store(value, scratch, number * lanes, "int32")

    _panels.emit_tiles(replace(frame, spec=_in_words(spec)), lanes, multiply)


def launch(spec: Spec) -> Launch:
    """As of any product of panels."""
    return _panels.launch(_in_words(spec))


def _in_words(spec: Spec) -> Spec:
    """`spec` with sums, and fours of b, as int32: the panels of a product of words."""
    a, b = spec.operands
    words = (Operand("int32", a.shape), Operand("int32", b.shape[:-1]))
    return replace(spec, operands=words)


def _add_fours(sums: Sequence[Any], words: Any, right: Sequence[Any]) -> list[Any]:
    """Adds the dot products of fours: one instruction for each sum."""
    right = [_parts(value, 8) for value in right]
    total = []
    for number, word in enumerate(words):
        for half, value in enumerate(right):
            before = sums[number * len(right) + half]
            left = _parts(emit.splat(word, emit.lanes_of(before)), 8)
            name = "llvm.x86.avx512.vpdpbusd.512"
            total.append(llvm.call_intrinsic(before.type, name, [before, left, value], [], []))
    return total


def _add_pairs(sums: Sequence[Any], words: Any, right: Sequence[Any]) -> list[Any]:
    """Adds the products of elements 0 and 2, then of 1 and 3, in 16 bits each."""
    sides = []
    for value in right:
        pairs = _parts(value, 16)
        eight = emit.like(pairs, 8)
        sides.append((arith.shrsi(pairs << 8, eight), arith.shrsi(pairs, eight)))
    total = []
    for number, word in enumerate(words):
        lefts = [
            emit.splat(half & 0x00FF00FF, emit.lanes_of(sums[0])) for half in (word, word >> 8)
        ]
        for half, side in enumerate(sides):
            value = sums[number * len(right) + half]
            for left, even_or_odd in zip(lefts, side, strict=True):
                value = value + _products_of_pairs(_parts(left, 16), even_or_odd)
            total.append(value)
    return total


def _products_of_pairs(left: Any, right: Any) -> Any:
    """The sums of two products of neighbours, in int32."""
    lanes = emit.lanes_of(left) // 2
    name = "llvm.x86.avx512.pmaddw.d.512" if lanes == 2**4 else "llvm.x86.avx2.pmadd.wd"
    kind = emit.widen(emit.integer(32), lanes)
    return llvm.call_intrinsic(kind, name, [left, right], [], [])


def _parts(words: Any, bits: int) -> Any:
    """The 32-bit lanes of a vector as lanes of `bits`."""
    lanes = emit.lanes_of(words) * 32 // bits
    return vector.bitcast(emit.widen(emit.integer(bits), lanes), words)


def supports(spec: Spec) -> str | None:
    """uint8 by int8; no prologue, which would be computed again for each panel."""
    a, b = (operand.dtype for operand in spec.operands)
    if (a, b) != ("uint8", "int8"):
        return f"wanted uint8 by int8, got {a} by {b}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("integer_matmul_packed", "cpu", emit_integer, launch, supports)
