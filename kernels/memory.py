"""Reading and writing tensors through pointers, with dtype conversion and masked tails."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from heddle.kernels import convert, crosslane, emit, sizes
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.setting import Setting
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Operand, Spec

llvm = dialect("llvm")

_DYNAMIC = -(2**31)

LINE = 64
"""Bytes of a cache line."""


def raw(dtype: str) -> str:
    """The unsigned integer dtype of the same size, for moving elements as they are."""
    return f"uint{8 * emit.ITEM_SIZE[dtype]}"


def moves_only(spec: Spec) -> str | None:
    """Why a kernel that moves elements of any dtype does not take `spec`, or None."""
    return "it takes no prologue and no epilogue" if spec.prologue or spec.epilogue else None


def moves_integers(spec: Spec) -> str | None:
    """As `moves_only`, of a kernel that takes integers."""
    dtype = spec.operands[0].dtype
    if emit.is_float(dtype) or dtype == "bool":
        return f"{spec.op} of {dtype}"
    return moves_only(spec)


def as_bits(spec: Spec, moved: int | None = None) -> Spec:
    """What moves elements of one dtype: of integers, where nothing is computed on the way.

    They are those of the first `moved` operands, or of all.
    """

    def bits(operand: Operand) -> Operand:
        return replace(operand, dtype=raw(operand.dtype))

    if spec.prologue or spec.epilogue:
        return spec
    operands = (*map(bits, spec.operands[:moved]), *spec.operands[len(spec.operands[:moved]) :])
    outputs = tuple(map(bits, spec.outputs))
    return replace(spec, operands=operands, result=bits(spec.result), outputs=outputs)


_paired: Setting[int] = Setting("paired", 0)


def in_pairs(lanes: int) -> AbstractContextManager[None]:
    """Whole vectors of bfloat16 are in pairs in registers, in what is emitted in it.

    Those are of `lanes` or a multiple of it, their even elements before their odd ones. A word of
    memory has one of each, which a shift and a mask widen, where elements in order are spread and
    then shifted. Vectors under a mask keep the order: element n is in lane n there, and only there.
    """
    return _paired.to(lanes)


def _is_paired(dtype: str, lanes: int, mask: Any) -> bool:
    paired = _paired.get()
    return dtype == "bfloat16" and mask is None and paired > 0 and lanes % paired == 0


def at(base: Any, offset: Any, dtype: str, inside: bool = True) -> Any:
    """The pointer to element `offset` of an array of `dtype`, `inside` the array or not."""
    flags = llvm.GEPNoWrapFlags.inbounds if inside else llvm.GEPNoWrapFlags.none
    element = emit.memory_type(dtype)
    offsets = [emit.as_index(offset)]
    return llvm.getelementptr(emit.pointer_type(), base, offsets, [_DYNAMIC], element, flags)


def load(
    base: Any, offset: Any, dtype: str, lanes: int = 1, mask: Any = None, alignment: int = 0
) -> Any:
    """`lanes` consecutive elements from `offset` on, in registers; masked-off lanes are zero.

    `alignment` is in bytes; 0 means the element's own.
    """
    pointer = at(base, offset, dtype)
    kind = emit.widen(emit.memory_type(dtype), lanes)
    alignment = alignment or emit.ITEM_SIZE[dtype]
    if mask is None:
        value = llvm.load(kind, pointer, alignment=alignment)
        if _is_paired(dtype, lanes, mask):
            return convert.from_pairs(value)
    else:
        zero = emit.constant(emit.memory_type(dtype), 0, lanes)
        value = llvm.intr_masked_load(kind, pointer, mask, alignment, pass_thru=zero)
    return convert.from_memory(value, dtype)


def store(
    value: Any,
    base: Any,
    offset: Any,
    dtype: str,
    mask: Any = None,
    alignment: int = 0,
    past: bool = False,
) -> None:
    """Writes the lanes of `value` (of `dtype`, in registers) from element `offset` on.

    `past` the cache, a vector without a mask has to lie at a multiple of its size.

    Raises:
        TypeError: The lanes are not what `dtype` is in registers.
    """
    wanted, got = emit.register_type(dtype), emit.element_of(value)
    if got != wanted:
        raise TypeError(f"store: wanted {wanted} lanes for {dtype}, got {got}")
    pointer = at(base, offset, dtype)
    alignment = alignment or emit.ITEM_SIZE[dtype]
    value = convert.to_memory(value, dtype)
    if _is_paired(dtype, emit.lanes_of(value), mask):
        value = crosslane.joined(crosslane.interleaved(crosslane.parts(value, 2)))
    size = emit.lanes_of(value) * emit.ITEM_SIZE[dtype]
    if past and size >= 16:  # the instruction stores no less
        if emit.ITEM_SIZE[dtype] == 2:
            # LLVM knows no such store of bfloat16 and float16, to which it goes back by itself.
            value = emit.opaque(emit.bitcast(value, emit.integer(16)))
        llvm.store(value, pointer, alignment=size, nontemporal=True)
    elif mask is None:
        llvm.store(value, pointer, alignment=alignment)
    else:
        llvm.intr_masked_store(value, pointer, mask, alignment)


def prefetch(base: Any, offset: Any, dtype: str, level: int = 1) -> None:
    """Asks for the cache line of element `offset`, which need not exist, in a `level` of cache."""
    pointer = at(base, offset, dtype, inside=False)
    llvm.intr_prefetch(pointer, rw=0, hint=4 - level, cache=1)


class Ask(NamedTuple):
    """What to ask a level of cache for beside a read: what lies so many bytes and elements on."""

    level: int
    nbytes: int = 0
    elements: Any = 0

    def beside(self, base: Any, offset: Any, dtype: str) -> None:
        """Asks for it beside a read of element `offset`."""
        further = self.nbytes // emit.ITEM_SIZE[dtype] + self.elements
        prefetch(base, offset + further, dtype, self.level)

    def within(self, dtype: str, row: Size, stop: Size, length: Size) -> Ask:
        """The same beside a row, of so many elements, that asks for none from row `stop` on.

        One that is longer than what is asked ahead may ask for what follows it.
        """
        ahead = self.nbytes // emit.ITEM_SIZE[dtype]
        most = (stop - 1 - row) * length + sizes.greatest(length - ahead, 0)
        return Ask(self.level, 0, self.elements + sizes.least(emit.index(ahead), most))


Asks = tuple[tuple[Ask, int], ...]
"""What is asked for beside lines that are read, each with of how many lines it is one."""


def ask_beside(asks: Asks, base: Any, offset: Any, line: int) -> None:
    """Asks for it beside byte `line`, where a line begins, of what lies `offset` bytes on."""
    for ask, apart in asks:
        if line % (apart * LINE) == 0:
            ask.beside(base, offset + line, "int8")


def gather(base: Any, offsets: Any, dtype: str, mask: Any = None) -> Any:
    """The elements at a vector of i64 `offsets`; masked-off lanes are zero."""
    lanes = emit.lanes_of(offsets)
    pointers = ir.Type.parse(f"vector<{lanes}x!llvm.ptr>")
    flags = llvm.GEPNoWrapFlags.inbounds
    element = emit.memory_type(dtype)
    where = llvm.getelementptr(pointers, base, [offsets], [_DYNAMIC], element, flags)
    mask = emit.constant(emit.integer(1), 1, lanes) if mask is None else mask
    zero = emit.constant(element, 0, lanes)
    kind = emit.widen(element, lanes)
    value = llvm.intr_masked_gather(kind, where, mask, [zero], emit.ITEM_SIZE[dtype])
    return convert.from_memory(value, dtype)
