"""Emission helpers for both targets: typed constants, arithmetic and control flow.

A value is a scalar or a vector of any length, and every helper takes both. MLIR's values of number
type come back as `Number`, so that kernels read as arithmetic: `i + 4`, `a * b`. A Python number
beside a value takes that value's type. Integer `//`, `%` and `>>` are for sizes and indices, which
are never negative.

Long because it is the one vocabulary of every kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from heddle.kernels.mlir import dialect, ir, operation
from heddle.kernels.setting import Setting

arith, llvm, math, scf, vector = map(dialect, ("arith", "llvm", "math", "scf", "vector"))


class _Sizes(dict[str, int]):
    """Says which dtypes there are where one is asked for that is none."""

    def __missing__(self, dtype: str) -> int:
        raise ValueError(f"dtype: wanted one of {', '.join(self)}, got {dtype!r}")


ITEM_SIZE = _Sizes(
    {
        **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
        **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
        **dict.fromkeys(("int32", "uint32", "float32"), 4),
        **dict.fromkeys(("int64", "uint64", "float64"), 8),
    }
)
"""Bytes of one element in memory."""

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Floats that are float32 in registers."""


# Types


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating dtype."""
    return dtype.startswith(("float", "bfloat"))


def is_unsigned(dtype: str) -> bool:
    """Whether `dtype` compares, divides and widens as unsigned; bool does."""
    return dtype.startswith("uint") or dtype == "bool"


def integer(bits: int) -> Any:
    """The signless integer type of `bits`."""
    return ir.IntegerType.get_signless(bits)


def pointer_type() -> Any:
    """The opaque pointer type."""
    return llvm.PointerType.get()


def memory_type(dtype: str) -> Any:
    """The type of one element in memory: bool is a byte, what NumPy lacks its bits."""
    if dtype not in _MEMORY:
        return integer(8 * ITEM_SIZE[dtype])
    return _MEMORY[dtype].get()


def register_type(dtype: str) -> Any:
    """The type that a value is computed in: bool is i1, narrow floats are float32."""
    if dtype == "bool":
        return integer(1)
    return memory_type("float32" if dtype in NARROW else dtype)


_MEMORY = {"float16": ir.F16Type, "float32": ir.F32Type, "float64": ir.F64Type}


def widen(element: Any, lanes: int) -> Any:
    """`element`, or a vector of `lanes` of it where there is more than one lane."""
    return element if lanes == 1 else ir.VectorType.get([lanes], element)


def element_of(value: Any) -> Any:
    """The element type of a value."""
    return value.type.element_type if isinstance(value.type, ir.VectorType) else value.type


def lanes_of(value: Any) -> int:
    """The number of lanes of a value; 1 for a scalar."""
    return int(value.type.shape[0]) if isinstance(value.type, ir.VectorType) else 1


def bits_of(element: Any) -> int:
    """The width of an element type."""
    return int(element.width)


def float_like(value: Any) -> bool:
    """Whether a value holds floating point numbers."""
    return not isinstance(element_of(value), ir.IntegerType)


# Constants and conversions that keep the bits


class _Constants(dict[Any, Any]):
    """Those of a function by type and number; they are made at the start of its `block`."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block


_constants: Setting[_Constants | None] = Setting("constants", None)


def shared_constants() -> AbstractContextManager[None]:
    """What is emitted in it has each constant once, at the start of the block that it begins in."""
    return _constants.to(_Constants(ir.InsertionPoint.current.block))


_register: Setting[int] = Setting("register", 0)


def registers_of(size: int) -> AbstractContextManager[None]:
    """What is emitted in it is for a machine whose vector registers have `size` bytes."""
    return _register.to(size)


def registers(value: Any, size: int) -> int:
    """How many registers of `size` bytes the vector `value` fills, 0 where there are none such."""
    count, rest = divmod(lanes_of(value) * bits_of(element_of(value)), 8 * size)
    return count if _register.get() == size and not rest else 0


def constant(element: Any, number: float, lanes: int = 1) -> Any:
    """`number` as an element type, in every lane."""
    return _constant(widen(element, lanes), number)


def _constant(kind: Any, number: float) -> Any:
    shared = _constants.get()
    if shared is None:
        return _new_constant(kind, number)
    key = kind, number or str(number)  # 0.0 equals -0.0
    found = shared.get(key)
    if found is None:
        with ir.InsertionPoint.at_block_begin(shared.block):
            found = shared[key] = _new_constant(kind, number)
    return found


def _new_constant(kind: Any, number: float) -> Any:
    is_vector = isinstance(kind, ir.VectorType)
    element = kind.element_type if is_vector else kind
    if isinstance(element, ir.IntegerType):
        if number % 1 != 0:
            raise TypeError(f"constant: wanted a whole number for {element}, got {number}")
        bits = bits_of(element)
        wrapped = int(number) & (2**bits - 1)
        signed = wrapped - 2**bits if bits > 1 and wrapped >= 2 ** (bits - 1) else wrapped
        attribute = ir.IntegerAttr.get(element, signed)
    else:
        attribute = ir.FloatAttr.get(element, float(number))
    if is_vector:
        attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
    return operation("arith.constant", kind, value=attribute)


def index(number: int) -> Any:
    """An i64 constant; all sizes and offsets are i64."""
    return constant(integer(64), number)


def like(value: Any, number: Any) -> Any:
    """`number` in the type of `value`; a value passes through, spread over the lanes."""
    if not isinstance(number, ir.Value):
        return _constant(value.type, number)
    return number if number.type == value.type else splat(number, lanes_of(value))


def splat(value: Any, lanes: int) -> Any:
    """A scalar in every lane; a vector passes through."""
    if lanes == 1 or lanes_of(value) > 1:
        return value
    return vector.broadcast(widen(value.type, lanes), value)


def bitcast(value: Any, element: Any) -> Any:
    """The same bits as another element type of the same width."""
    return arith.bitcast(widen(element, lanes_of(value)), value)


def opaque(value: Any) -> Any:
    """The same value, to LLVM another: it comes out of an empty assembler statement."""
    return _reborn(value)


def pinned(value: Any) -> Any:
    """The same value, which LLVM computes here: not later, where it is used."""
    return _reborn(value, has_side_effects=True)


def _reborn(value: Any, **attributes: bool) -> Any:
    register = "v" if lanes_of(value) > 1 else "r"
    return llvm.inline_asm(value.type, [value], "", f"={register},0", **attributes)


# Arithmetic


def _operator(on_float: str, on_integer: str, flip: bool = False) -> Any:
    def apply(self: Any, other: Any) -> Any:
        kind = self.type
        if not isinstance(other, ir.Value):
            other = _constant(kind, other)
        elif other.type != kind:
            self, other = splat(self, lanes_of(other)), splat(other, lanes_of(self))
            kind = self.type
        name = on_float if float_like(self) else on_integer
        if not name:
            raise TypeError(f"this operator is for {'floats' if on_float else 'integers'}")
        return operation(f"arith.{name}", kind, *((other, self) if flip else (self, other)))

    return apply


def _no_order(*_: Any) -> Any:
    raise TypeError("a value has no order while its kernel is emitted: use emit.compare")


class Number(ir.Value):  # type: ignore[misc]
    """A scalar or vector value with Python's arithmetic operators."""

    __add__ = _operator("addf", "addi")
    __radd__ = _operator("addf", "addi", flip=True)
    __sub__ = _operator("subf", "subi")
    __rsub__ = _operator("subf", "subi", flip=True)
    __mul__ = _operator("mulf", "muli")
    __rmul__ = _operator("mulf", "muli", flip=True)
    __truediv__ = _operator("divf", "")
    __rtruediv__ = _operator("divf", "", flip=True)
    __floordiv__ = _operator("", "divui")
    __mod__ = _operator("", "remui")
    __and__ = _operator("", "andi")
    __or__ = _operator("", "ori")
    __xor__ = _operator("", "xori")
    __lshift__ = _operator("", "shli")
    __rshift__ = _operator("", "shrui")

    __lt__ = __le__ = __gt__ = __ge__ = _no_order

    def __neg__(self) -> Any:
        return arith.negf(self) if float_like(self) else like(self, 0) - self


for _kind in (ir.IntegerType, ir.F16Type, ir.F32Type, ir.F64Type, ir.VectorType):
    ir.register_value_caster(_kind.static_typeid)(Number)


def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c`, rounded once."""
    widest = max((each for each in (a, b, c) if isinstance(each, ir.Value)), key=lanes_of)
    return operation("math.fma", widest.type, *(like(widest, each) for each in (a, b, c)))


_FLOAT_COMPARE = {
    "less": arith.CmpFPredicate.OLT,
    "less_equal": arith.CmpFPredicate.OLE,
    "greater": arith.CmpFPredicate.OGT,
    "greater_equal": arith.CmpFPredicate.OGE,
    "equal": arith.CmpFPredicate.OEQ,
    "not_equal": arith.CmpFPredicate.UNE,
}
_SIGNED_COMPARE = {
    "less": arith.CmpIPredicate.slt,
    "less_equal": arith.CmpIPredicate.sle,
    "greater": arith.CmpIPredicate.sgt,
    "greater_equal": arith.CmpIPredicate.sge,
    "equal": arith.CmpIPredicate.eq,
    "not_equal": arith.CmpIPredicate.ne,
}
_UNSIGNED_COMPARE = {
    **_SIGNED_COMPARE,
    "less": arith.CmpIPredicate.ult,
    "less_equal": arith.CmpIPredicate.ule,
    "greater": arith.CmpIPredicate.ugt,
    "greater_equal": arith.CmpIPredicate.uge,
}


def compare(relation: str, a: Any, b: Any, unsigned: bool = False) -> Any:
    """`a relation b` as i1: less, less_equal, greater, greater_equal, equal or not_equal.

    A NaN makes every relation false but `not_equal`.
    """
    if isinstance(b, ir.Value):
        a = splat(a, lanes_of(b))
    b = like(a, b)
    if float_like(a):
        return arith.cmpf(_FLOAT_COMPARE[relation], a, b)
    return arith.cmpi((_UNSIGNED_COMPARE if unsigned else _SIGNED_COMPARE)[relation], a, b)


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition` holds, else `b`; at least one of them is a value."""
    kind = splat(a if isinstance(a, ir.Value) else b, lanes_of(condition))
    return operation("arith.select", kind.type, condition, like(kind, a), like(kind, b))


def minimum(a: Any, b: Any, unsigned: bool = False) -> Any:
    """The smaller one; `b` where they do not compare (a NaN in `b` is kept, one in `a` is not)."""
    return select(compare("less", a, b, unsigned), a, b)


def maximum(a: Any, b: Any, unsigned: bool = False) -> Any:
    """The larger one; `b` where they do not compare (a NaN in `b` is kept, one in `a` is not)."""
    return select(compare("greater", a, b, unsigned), a, b)


def absolute(x: Any) -> Any:
    """`|x|`; for integers the most negative one stays as it is."""
    if float_like(x):
        bits = bits_of(element_of(x))
        magnitude = bitcast(x, integer(bits)) & (2 ** (bits - 1) - 1)
        return bitcast(magnitude, element_of(x))
    return maximum(x, -x)


def copy_sign(magnitude: Any, sign: Any) -> Any:
    """`magnitude`, which is not negative or has that sign already, with the sign of `sign`."""
    bits = bits_of(element_of(sign))
    sign_bit = bitcast(sign, integer(bits)) & 2 ** (bits - 1)
    return bitcast(bitcast(magnitude, integer(bits)) | sign_bit, element_of(sign))


def sqrt(x: Any) -> Any:
    """The square root, correctly rounded."""
    return math.sqrt(x)


# Control flow


def loop(start: Any, stop: Any, step: Any = 1) -> Iterator[Any]:
    """Emits a loop around the Python body of a `for i in` this."""
    operation = scf.ForOp(as_index(start), as_index(stop), as_index(step))
    with ir.InsertionPoint(operation.body):
        yield operation.induction_variable
        scf.yield_([])


def carry(
    start: Any, stop: Any, step: Any, values: Sequence[Any], body: Callable[..., Sequence[Any]]
) -> list[Any]:
    """A loop that carries values: `body(i, *values)` returns the next ones; returns the last."""
    operation = scf.ForOp(as_index(start), as_index(stop), as_index(step), list(values))
    with ir.InsertionPoint(operation.body):
        following = body(operation.induction_variable, *operation.inner_iter_args)
        scf.yield_(list(following))
    return list(operation.results)


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Emits the Python body of a `with` this under an `if`."""
    operation = scf.IfOp(condition)
    with ir.InsertionPoint(operation.then_block):
        yield
        scf.yield_([])


def either(
    condition: Any,
    types: Sequence[Any],
    then: Callable[[], Sequence[Any]],
    other: Callable[[], Sequence[Any]],
) -> list[Any]:
    """The values of `then()` where the scalar `condition` holds, else those of `other()`."""
    operation = scf.IfOp(condition, list(types), has_else=True)
    for block, branch in ((operation.then_block, then), (operation.else_block, other)):
        with ir.InsertionPoint(block):
            scf.yield_(list(branch()))
    return list(operation.results)


def as_index(value: Any) -> Any:
    """A Python number as an i64 constant; a value passes through."""
    return index(value) if isinstance(value, int) else value
