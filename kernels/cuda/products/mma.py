"""What feeds tensor cores of sm_80 and up: cp.async, ldmatrix, mma.sync; stmatrix (PTX ISA 9.0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _float8
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.spec import Spec

arith, llvm, nvvm = (dialect(name) for name in ("arith", "llvm", "nvvm"))

CHUNK = 16
"""Bytes that one cp.async copies, and of a row of a matrix of ldmatrix."""

_DYNAMIC = -(2**31)
_ALIGNMENT = 1024  # Of shared memory: where the swizzle of wgmma starts.


@dataclass(frozen=True)
class Kind:
    """What is multiplied: PTX's types of a and b, bytes of an element, dtype of the sums."""

    a: str
    b: str
    item: int
    sums: str

    @property
    def depth(self) -> int:
        """Elements along k of one mma.sync."""
        return 2 * CHUNK // self.item

    @property
    def each(self) -> int:
        """Elements of a chunk."""
        return CHUNK // self.item


_FLOAT8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}

KINDS = {
    ("float16", "float16"): Kind("f16", "f16", 2, "float32"),
    ("bfloat16", "bfloat16"): Kind("bf16", "bf16", 2, "float32"),
    ("int8", "int8"): Kind("s8", "s8", 1, "int32"),
    ("uint8", "int8"): Kind("u8", "s8", 1, "int32"),
    **{
        (a, b): Kind(a_kind, b_kind, 1, "float32")
        for a, a_kind in _FLOAT8.items()
        for b, b_kind in _FLOAT8.items()
    },
}
"""By the dtypes of a and b."""

TF32 = Kind("tf32", "tf32", 4, "float32")
"""float32, of which tensor cores take the upper 19 bits."""


def kind_of(spec: Spec) -> Kind | None:
    """What a product multiplies, where tensor cores do."""
    a, b, *_ = spec.operands
    return TF32 if spec.attr("precision") == "tf32" else KINDS.get((a.dtype, b.dtype))


class DynamicShared:
    """The block's dynamic shared memory (`Launch.shared`), in bytes."""

    def __init__(self, name: str) -> None:
        text = (
            f"llvm.mlir.global external @{name}()"
            f" {{addr_space = 3 : i32, alignment = {_ALIGNMENT} : i64}} : !llvm.array<0 x i8>"
        )
        _block.module().regions[0].blocks[0].append(ir.Operation.parse(text))
        self.base = llvm.AddressOfOp(ir.Type.parse("!llvm.ptr<3>"), name).result

    def at(self, offset: Any) -> Any:
        """The pointer to byte `offset`."""
        return byte_at(self.base, offset)

    def load(self, offset: Any, element: Any, lanes: int) -> Any:
        """`lanes` elements from byte `offset` on, which is a multiple of what is read."""
        size = min(CHUNK, lanes * emit.bits_of(element) // 8)
        return llvm.load(emit.widen(element, lanes), self.at(offset), alignment=size)

    def store(self, value: Any, offset: Any) -> None:
        """Writes a value from byte `offset` on, which is a multiple of its size."""
        size = emit.lanes_of(value) * emit.bits_of(emit.element_of(value)) // 8
        llvm.store(value, self.at(offset), alignment=min(CHUNK, size))


def byte_at(pointer: Any, offset: Any) -> Any:
    """The pointer to byte `offset` behind `pointer`, which need not exist."""
    flags, where = llvm.GEPNoWrapFlags.none, [emit.as_index(offset)]
    return llvm.getelementptr(pointer.type, pointer, where, [_DYNAMIC], emit.integer(8), flags)


def copy(target: Any, source: Any, inside: Any, size: int = CHUNK) -> None:
    """cp.async: a chunk from global to shared memory; zeros, and no access, if not `inside`.

    Of less than 16 bytes it goes through the first cache, which keeps the rest of their sector.
    """
    word = emit.integer(32)
    count = emit.select(inside, emit.constant(word, size), 0)
    place = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<1>"), source)
    level = "cg" if size == CHUNK else "ca"
    cached = ir.Attribute.parse(f"#nvvm<load_cache_modifier {level}>")
    nvvm.cp_async_shared_global(target, place, size, cached, cp_size=count)


def commit() -> None:
    """Ends a group of this thread's copies."""
    nvvm.cp_async_commit_group()


def wait(left: int) -> None:
    """Waits until at most `left` of this thread's groups are in flight."""
    nvvm.cp_async_wait_group(left)


def load_matrices(pointer: Any, transposed: bool) -> list[Any]:
    """ldmatrix.x4: four registers of 32 bits; lane i points to row i % 8 of matrix i / 8."""
    found = nvvm.ldmatrix(
        pointer,
        4,
        ir.Attribute.parse(f"#nvvm.mma_layout<{'col' if transposed else 'row'}>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
        results=[_structure("i32")],
    )
    return _parts(found, emit.integer(32))


def bytes_of(low: Any, high: Any, selector: Any) -> Any:
    """Four of the eight bytes of two words, by number (PTX ISA 9.0, "prmt")."""
    mode = ir.Attribute.parse("#nvvm.permute_mode<default>")
    return nvvm.prmt(low, selector, mode, hi=high)


def store_matrices(words: Sequence[Any], pointer: Any, turned: bool = False) -> None:
    """stmatrix.x4 of sm_90: the way back; where they are `turned`, lane i points to a column."""
    nvvm.stmatrix(
        pointer,
        list(words),
        ir.Attribute.parse(f"#nvvm.mma_layout<{'col' if turned else 'row'}>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
    )


def multiply(kind: Kind, a: Sequence[Any], b: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
    """mma.sync: four sums of 16 x 8 results plus the product of fragments over `kind.depth`.

    8-bit floats are multiplied as float16 by two of them, the first two of four elements along k
    and the others: both sides have the same order.
    """
    if kind.a in _FLOAT8.values():
        wide = KINDS["float16", "float16"]
        left, right = (
            [_float8.halves(word, dtype) for word in words]
            for words, dtype in ((a, _of(kind.a)), (b, _of(kind.b)))
        )
        for first, column in ((0, right[0]), (2, right[1])):
            row, below = left[first : first + 2]
            sums = multiply(wide, [row[0], below[0], row[1], below[1]], column, sums)
        return list(sums)
    if kind.a == "f16":
        pair = ir.VectorType.get([2], ir.F16Type.get())
        a, b = ([llvm.bitcast(pair, word) for word in words] for words in (a, b))
    integers = kind.sums == "int32"
    wraps = ir.Attribute.parse("#nvvm.mma_int_overflow<wrapped>") if integers else None
    found = nvvm.mma_sync(
        _structure("i32" if integers else "f32"),
        ir.Attribute.parse(f"#nvvm.shape<m = 16, n = 8, k = {kind.depth}>"),
        ir.Attribute.parse("#nvvm.mma_layout<row>"),
        ir.Attribute.parse("#nvvm.mma_layout<col>"),
        list(a),
        list(b),
        list(sums),
        int_overflow_behavior=wraps,
        multiplicand_a_ptx_type=ir.Attribute.parse(f"#nvvm.mma_type<{kind.a}>"),
        multiplicand_b_ptx_type=ir.Attribute.parse(f"#nvvm.mma_type<{kind.b}>"),
    )
    return _parts(found, emit.register_type(kind.sums))


def _of(kind: str) -> str:
    return next(dtype for dtype, name in _FLOAT8.items() if name == kind)


def _structure(element: str) -> Any:
    return ir.Type.parse(f"!llvm.struct<({', '.join([element] * 4)})>")


def _parts(structure: Any, element: Any) -> list[Any]:
    position = ir.DenseI64ArrayAttr.get
    return [llvm.extractvalue(element, structure, position([i])) for i in range(4)]
