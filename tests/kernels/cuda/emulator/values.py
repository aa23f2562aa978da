"""Operations that compute values: one row of `OPS` for each, on arrays with a lane for each thread.

A row makes, from an operation, a function of its operands' arrays. The comment above a group names
the section of the PTX ISA 9.0 manual that says what it does. A new instruction is a new row.
"""

from collections.abc import Callable

import numpy as np

from emulator.exact import fma64
from emulator.float8 import from_float8, to_float8
from emulator.memory import EmulatorError
from emulator.types import numbers, result_dtype, shape_of, size_of
from heddle.kernels.mlir import ir

UNSIGNED = {np.dtype(f"i{size}"): np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def unsigned(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == bool else x.view(UNSIGNED[x.dtype])


def signed(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return x if like.dtype == bool else x.view(like.dtype)


def same(function: Callable) -> Callable:
    """A row whose operation needs no attribute."""
    return lambda op: function


def as_unsigned(function: Callable) -> Callable:
    return same(lambda a, *rest: signed(function(unsigned(a), *map(unsigned, rest)), a))


# Integer and floating point arithmetic, comparison, selection, conversion


def fma(a, b, c):
    """Exact products: of float32 in float64, of float64 as `fma64`."""
    if a.dtype == np.float64:
        return fma64(a, b, c)
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(a.dtype)


def constant(op):
    dtype, shape = shape_of(op.results[0].type)
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if attribute.is_splat:
            value = np.full(shape, attribute.get_splat_value().value)
        else:
            value = np.array(list(attribute)).reshape(shape)
    else:
        value = np.array(attribute.value)
    if np.issubdtype(dtype, np.integer):
        value = value.astype(object) & (1 << 64) - 1  # i64 constants may print as unsigned.
        value = (
            value.astype(np.uint64).view(np.int64)
            if shape
            else np.array([int(value)], np.uint64).view(np.int64)[0]
        )
    value = np.asarray(value).astype(dtype)[None]
    return lambda: value


def convert(op):
    target = result_dtype(op)
    return lambda x: x.astype(target)


def convert_unsigned(op):
    target = result_dtype(op)
    return lambda x: unsigned(x).astype(target)


def truncate(op):
    target = result_dtype(op)
    if target.kind == "b":
        return lambda x: (x & 1).astype(bool)
    return lambda x: x.astype(target)


def float_to_integer(op):
    target = result_dtype(op)
    return round_to(target, f"{'u' if op.name.endswith('ui') else ''}int{8 * target.itemsize}")


def round_to(target: np.dtype, kind: str) -> Callable:
    """cvt.rzi: NaN gives 0, and what does not fit gives the nearest end of the range."""
    limits = np.iinfo(kind)

    def run(x):
        whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2e19, neginf=-2e19))
        inside = np.where((whole > limits.min) & (whole < limits.max), whole, 0).astype(kind)
        ends = np.where(whole <= limits.min, limits.min, limits.max).astype(kind)
        found = np.where((whole > limits.min) & (whole < limits.max), inside, ends)
        return found.view(target)

    return run


def bitcast(op):
    dtype, shape = shape_of(op.results[0].type)
    return lambda x: np.ascontiguousarray(x).view(dtype).reshape(len(x), *shape)


def permute(op):
    if "default" not in str(op.attributes["mode"]) or len(op.operands) != 3:
        raise EmulatorError("the emulator knows prmt of two words without a mode")
    return permute_bytes


def permute_bytes(low, high, selector):
    """prmt without a mode: four of eight bytes by number; bit 3 of a selector spreads the sign."""
    low, high, selector = np.broadcast_arrays(low, high, selector)
    both = unsigned(low).astype(np.uint64) | unsigned(high).astype(np.uint64) << np.uint64(32)
    found = np.zeros(low.shape, np.uint32)
    for i in range(4):
        which = unsigned(selector) >> np.uint32(4 * i)
        byte = (both >> (8 * (which & 7)).astype(np.uint64)).astype(np.uint8)
        sign = np.where(byte & 0x80, np.uint8(0xFF), np.uint8(0))
        byte = np.where(which & 8, sign, byte)
        found |= byte.astype(np.uint32) << np.uint32(8 * i)
    return found.view(np.int32)


# Vectors


def broadcast(op):
    shape = shape_of(op.results[0].type)[1]

    def run(x):
        x = x.reshape(len(x), *[1] * (1 + len(shape) - x.ndim), *x.shape[1:])
        return np.broadcast_to(x, (len(x), *shape))

    return run


def extract(op):
    position = numbers(op, "static_position")
    if len(op.operands) > 1:
        return lambda x, at: np.take_along_axis(
            np.broadcast_to(x, (max(len(x), len(at)), x.shape[1])),
            np.broadcast_to(at, max(len(x), len(at)))[:, None],
            axis=1,
        )[:, 0]
    return lambda x: x[(slice(None), *position)]


def insert(op):
    position = numbers(op, "static_position")

    def run(value, x):
        lanes = max(len(value), len(x))
        found = np.array(np.broadcast_to(x, (lanes, *x.shape[1:])))
        found[(slice(None), *position)] = value
        return found

    return run


def shuffle(op):
    picked = numbers(op, "mask")

    def run(a, b):
        lanes = max(len(a), len(b))
        both = [np.broadcast_to(x, (lanes, x.shape[1])) for x in (a, b)]
        return np.concatenate(both, axis=1)[:, picked]

    return run


REDUCE = {
    "add": np.add, "mul": np.multiply, "maximumf": np.maximum, "minimumf": np.minimum,
    "maxnumf": np.fmax, "minnumf": np.fmin, "maxsi": np.maximum, "minsi": np.minimum,
}  # fmt: skip


def reduction(op):
    function = REDUCE[str(op.attributes["kind"]).split("<")[-1].strip(">")]

    def run(x, *start):
        total = start[0] if start else x[:, 0]
        for i in range(0 if start else 1, x.shape[1]):
            total = function(total, x[:, i])
        return total

    return run


def from_elements(op):
    def run(*values):
        return np.stack(np.broadcast_arrays(*values), axis=1)

    return run


# Addresses


def element_address(op):
    size = size_of(ir.TypeAttr(op.attributes["elem_type"]).value)
    indices = list(ir.DenseI32ArrayAttr(op.attributes["rawConstantIndices"]))
    if len(indices) != 1:
        raise EmulatorError("the emulator knows pointer arithmetic on one index alone")
    if len(op.operands) == 1:
        return lambda base: base + indices[0] * size
    return lambda base, index: base + index.astype(np.int64) * size


def convert_to_pointer(op):
    return lambda x: unsigned(x).astype(np.int64)


OPS: dict[str, Callable] = {
    # "Integer Arithmetic Instructions"
    "arith.addi": same(np.add),
    "arith.subi": same(np.subtract),
    "arith.muli": same(np.multiply),
    "arith.maxsi": same(np.maximum),
    "arith.minsi": same(np.minimum),
    "arith.maxui": as_unsigned(np.maximum),
    "arith.minui": as_unsigned(np.minimum),
    # "Logic and Shift Instructions"
    "arith.andi": same(np.bitwise_and),
    "arith.ori": same(np.bitwise_or),
    "arith.xori": same(np.bitwise_xor),
    "arith.shli": same(np.left_shift),
    "arith.shrsi": same(np.right_shift),
    "arith.shrui": as_unsigned(np.right_shift),
    # "Floating Point Instructions": add, sub, mul, div.rn, fma.rn, sqrt.rn, neg, abs, min, max
    "arith.addf": same(np.add),
    "arith.subf": same(np.subtract),
    "arith.mulf": same(np.multiply),
    "arith.divf": same(np.divide),
    "arith.negf": same(np.negative),
    "arith.maximumf": same(np.maximum),
    "arith.minimumf": same(np.minimum),
    "arith.maxnumf": same(np.fmax),
    "arith.minnumf": same(np.fmin),
    "math.fma": same(fma),
    "math.sqrt": same(np.sqrt),
    "math.absf": same(np.abs),
    "math.floor": same(np.floor),
    "math.roundeven": same(np.rint),
    # ex2.approx, lg2.approx, rcp.approx, rsqrt.approx: the machine is off by some ulp, this is not
    "nvvm.ex2": same(np.exp2),
    "nvvm.log2": same(np.log2),
    "nvvm.rcp.approx.ftz.f": same(np.reciprocal),
    "nvvm.rsqrt": same(lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype)),
    # "Data Movement and Conversion Instructions": mov, cvt
    "nvvm.prmt": permute,
    "arith.constant": constant,
    "llvm.mlir.constant": constant,
    "arith.extsi": convert,
    "arith.extui": convert_unsigned,
    "arith.trunci": truncate,
    "arith.index_cast": convert,
    "nvvm.convert.f32x2.to.f8x2": to_float8,
    "nvvm.convert.f8x2.to.f16x2": from_float8,
    "arith.sitofp": convert,
    "arith.uitofp": convert_unsigned,
    "arith.fptosi": float_to_integer,
    "arith.fptoui": float_to_integer,
    "arith.extf": convert,
    "arith.truncf": convert,
    "arith.bitcast": bitcast,
    "vector.bitcast": bitcast,
    "llvm.bitcast": bitcast,
    "vector.broadcast": broadcast,
    "vector.extract": extract,
    "vector.insert": insert,
    "vector.shuffle": shuffle,
    "vector.reduction": reduction,
    "vector.from_elements": from_elements,
    "llvm.getelementptr": element_address,
    "llvm.ptrtoint": same(lambda x: x),
    "llvm.inttoptr": convert_to_pointer,
    "llvm.addrspacecast": same(lambda x: x),
}
