"""What each operation does: one row for each, on arrays with a lane for each thread.

A row of `OPS` makes, from an operation, a function of its operands' arrays; one of `EFFECTS` makes
a function of the grid and the mask too; `CONTROL` runs regions. A new instruction is a new row.
The comment above a group names the section of the PTX ISA 9.0 manual that says what it does.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from emulator import WARP, Grid, Mask, Run, compile_block, merge
from emulator_memory import EmulatorError
from heddle.kernels.mlir import ir

FLOATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}


# Types and attributes


def dtype_of(kind: ir.Type) -> np.dtype:
    """The NumPy dtype of a scalar type; pointers and `index` are int64, i1 is bool."""
    text = str(kind)
    if text in FLOATS:
        return np.dtype(FLOATS[text])
    if text.startswith(("index", "!llvm.ptr")):
        return np.dtype(np.int64)
    return np.dtype(bool if text == "i1" else f"int{kind.width}")


def shape_of(kind: ir.Type) -> tuple[np.dtype, tuple[int, ...]]:
    """The element dtype and the shape behind the lanes."""
    if isinstance(kind, ir.VectorType):
        return dtype_of(kind.element_type), tuple(kind.shape)
    return dtype_of(kind), ()


def size_of(kind: ir.Type) -> int:
    """Bytes of a type in memory, arrays included."""
    text = str(kind)
    if text.startswith("!llvm.array<"):
        count, element = text[len("!llvm.array<") : -1].split(" x ", 1)
        return int(count) * size_of(ir.Type.parse(element, kind.context))
    dtype, shape = shape_of(kind)
    return dtype.itemsize * int(np.prod(shape, dtype=int))


def result_dtype(op: ir.Operation) -> np.dtype:
    return shape_of(op.results[0].type)[0]


def space_of(pointer: ir.Value) -> int:
    text = str(pointer.type)
    return int(text[len("!llvm.ptr<") : -1]) if "<" in text else 0


def number(op: ir.Operation, name: str, default: int = 0) -> int:
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else default


def numbers(op: ir.Operation, name: str) -> list[int]:
    return list(op.attributes[name])


def unsigned(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == bool else x.view(f"u{x.dtype.name}")


def signed(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return x if like.dtype == bool else x.view(like.dtype)


def same(function: Callable) -> Callable:
    """A row whose operation needs no attribute."""
    return lambda op: function


def as_unsigned(function: Callable) -> Callable:
    return same(lambda a, *rest: signed(function(unsigned(a), *map(unsigned, rest)), a))


# Integer and floating point arithmetic, comparison, selection, conversion


def fma(a, b, c):
    """One rounding for float32, whose product is exact in float64; float64 in extended precision."""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


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


COMPARE_INTEGER = [
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.less, np.less_equal, np.greater, np.greater_equal,
]  # fmt: skip
COMPARE_FLOAT = ["false", "eq", "gt", "ge", "lt", "le", "ne", "ord"]
COMPARE_FLOAT += ["ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"]
RELATION = {
    "eq": np.equal, "gt": np.greater, "ge": np.greater_equal,
    "lt": np.less, "le": np.less_equal, "ne": np.not_equal,
}  # fmt: skip


def compare_integer(op):
    predicate = number(op, "predicate")
    relation = COMPARE_INTEGER[predicate]
    if predicate >= 6:
        return lambda a, b: relation(unsigned(a), unsigned(b))
    return relation


def compare_float(op):
    name = COMPARE_FLOAT[number(op, "predicate")]

    def run(a, b):
        disordered = np.isnan(a) | np.isnan(b)
        if name in ("ord", "uno"):
            return disordered if name == "uno" else ~disordered
        holds = RELATION[name[-2:]](a, b)
        return holds | disordered if name.startswith("u") else holds & ~disordered

    return run


def select(condition, a, b):
    extra = max(a.ndim, b.ndim) - condition.ndim
    return np.where(condition.reshape(condition.shape + (1,) * extra), a, b)


def convert(op):
    target = result_dtype(op)
    return lambda x: x.astype(target)


def convert_unsigned(op):
    target = result_dtype(op)
    return lambda x: unsigned(x).astype(target)


def float_to_integer(op):
    """cvt.rzi: NaN gives 0, and what does not fit gives the nearest end of the range."""
    target = result_dtype(op)
    kind = f"{'u' if op.name.endswith('ui') else ''}int{8 * target.itemsize}"
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


def divide(function: Callable, as_unsigned: bool) -> Callable:
    """Division truncates; by zero the manual leaves the value open, so it is an error here."""

    def row(op):
        def run(grid: Grid, mask: Mask, a, b):
            zero = (grid.spread(b) == 0) & mask.reshape(-1, *[1] * (b.ndim - 1))
            if zero.any():
                raise EmulatorError("divides by zero")
            b = np.where(b == 0, b.dtype.type(1), b)
            if as_unsigned:
                return function(unsigned(a), unsigned(b)).view(a.dtype)
            return function(a, b)

        return run

    return row


def quotient(a, b):
    down = a // b
    return down + ((a % b != 0) & ((a < 0) != (b < 0)))


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


# Special registers ("Special Registers": %tid, %ntid, %ctaid, %nctaid)


def special(read: Callable[[Grid], np.ndarray]) -> Callable:
    return lambda op: lambda grid, mask: np.asarray(read(grid)).astype(np.int32).reshape(-1)


# Memory ("Data Movement and Conversion Instructions": ld, ld.global.nc, st; "atom")


def access(op: ir.Operation, pointer: ir.Value, size: int) -> Callable:
    """Checks alignment and finds the memory, regions, offsets and lanes of an access."""
    space, alignment = space_of(pointer), number(op, "alignment", 1)
    # PTX accesses are aligned to their size; a claim below that makes LLVM split the access.

    def where(grid: Grid, mask: Mask, address):
        address = grid.spread(address)[mask]
        if (address % alignment).any():
            raise EmulatorError(
                f"misaligned: {size} bytes at an address that is no multiple of {alignment}"
            )
        full = np.zeros(len(grid.lane), np.int64)
        full[mask] = address
        memory, region, offset = grid.place(space, full)
        return memory, region[mask], offset[mask], grid.lane[mask]

    return where


def load(op):
    dtype, shape = shape_of(op.results[0].type)
    size = size_of(op.results[0].type)
    where = access(op, op.operands[0], size)

    def run(grid, mask, address):
        found = np.zeros((len(grid.lane), *shape), dtype)
        if mask.any():
            memory, region, offset, lane = where(grid, mask, address)
            data = memory.load(region, offset, lane, size)
            found[mask] = data.view(dtype).reshape(-1, *shape)
        return found

    return run


def store(op):
    kind = op.operands[0].type
    dtype, shape = shape_of(kind)
    where = access(op, op.operands[1], size_of(kind))

    def run(grid, mask, value, address):
        if mask.any():
            memory, region, offset, lane = where(grid, mask, address)
            data = np.ascontiguousarray(grid.spread(value)[mask], dtype)
            memory.store(region, offset, lane, data.view(np.uint8).reshape(len(lane), -1))

    return run


def compare_exchange(op):
    dtype = dtype_of(op.operands[1].type)
    where = access(op, op.operands[0], dtype.itemsize)

    def run(grid, mask, address, expected, desired):
        old = np.zeros(len(grid.lane), dtype)
        if mask.any():
            memory, region, offset, lane = where(grid, mask, address)
            pair = [
                np.ascontiguousarray(grid.spread(x)[mask]).view(np.uint8).reshape(len(lane), -1)
                for x in (expected, desired)
            ]
            old[mask] = memory.compare_exchange(region, offset, lane, *pair).view(dtype)[:, 0]
        return old, (old == expected) & mask

    return run


def extract_value(op):
    position = numbers(op, "position")[0]
    return lambda pair: pair[position]


# Warps and blocks ("Data Movement": shfl.sync; "Parallel Synchronization": bar, bar.warp.sync)


def shuffle_lanes(op):
    kind = str(op.attributes["kind"]).split("<")[-1].strip("> ").split()[-1]

    def run(grid, mask, members, value, b, c):
        members, value, b, c = (grid.spread(x) for x in (members, value, b, c))
        check_members(mask, members)
        lane = grid.lane % WARP
        segment, limit = (c >> 8) & 31, c & 31
        highest, lowest = (lane & segment) | (limit & ~segment), lane & segment
        b = b & 31
        source, inside = {
            "up": lambda: (lane - b, lane - b >= highest),
            "down": lambda: (lane + b, lane + b <= highest),
            "bfly": lambda: (lane ^ b, (lane ^ b) <= highest),
            "idx": lambda: (
                lowest | (b & ~segment),
                (lowest | (b & ~segment)) <= highest,
            ),
        }[kind]()
        source = np.where(inside, source, lane) + grid.lane - lane
        if not mask[source[mask]].all():
            raise EmulatorError("shuffles a value out of a lane that is not active")
        return value[source]

    return run


def check_members(mask: Mask, members: np.ndarray) -> None:
    """Each active lane names itself, and every lane that is named takes part."""
    active = mask.reshape(-1, WARP)
    named = (members.reshape(-1, WARP, 1) >> np.arange(WARP)) & 1 == 1
    expected = active[:, None, :] & active[:, :, None]
    if (named[active] != expected[active]).any():
        raise EmulatorError("divergent: the lanes named by the member mask are not the active ones")


def warp_barrier(op):
    return lambda grid, mask, members: check_members(mask, grid.spread(members))


def barrier(op):
    def run(grid: Grid, mask: Mask):
        waiting = mask.reshape(grid.blocks, grid.threads)
        partial = waiting.any(axis=1) & ~waiting.all(axis=1)
        if partial.any():
            raise EmulatorError(
                f"divergent barrier: {int(waiting[partial][0].sum())} of {grid.threads} threads"
                f" of block {int(np.argmax(partial))} arrive"
            )
        grid.shared.order(np.flatnonzero(waiting.all(axis=1)))

    return run


# Regions


def if_else(op) -> Run:
    condition, results = op.operands[0], list(op.results)
    branches = [compile_block(r.blocks[0]) if len(r.blocks) else None for r in op.regions]

    def run(grid: Grid, mask: Mask) -> None:
        holds = grid.spread(grid.values[condition])
        found: list[np.ndarray] | None = None
        for branch, active in zip(branches, (mask & holds, mask & ~holds), strict=True):
            if branch is None or not active.any():
                continue
            branch(grid, active)
            new = grid.yielded
            found = (
                new
                if found is None
                else [merge(active, n, o) for n, o in zip(new, found, strict=True)]
            )
        if found is None:
            found = [np.zeros((1, *shape_of(r.type)[1]), shape_of(r.type)[0]) for r in results]
        grid.values.update(zip(results, found, strict=False))

    return run


def for_loop(op) -> Run:
    lower, upper, step, *start = op.operands
    block, results = op.regions[0].blocks[0], list(op.results)
    counter, *carried = block.arguments
    body = compile_block(block)

    def run(grid: Grid, mask: Mask) -> None:
        i, stop, stride = (grid.values[value] for value in (lower, upper, step))
        if (grid.spread(stride)[mask] <= 0).any():
            raise EmulatorError("a loop's step is not positive")
        values = [grid.values[value] for value in start]
        active = mask & (i < stop)
        while active.any():
            grid.values[counter] = i
            grid.values.update(zip(carried, values, strict=True))
            body(grid, active)
            new = grid.yielded
            uniform = (active == mask).all()
            values = [
                n if uniform else merge(active, n, o) for n, o in zip(new, values, strict=True)
            ]
            i = i + stride
            active = active & (i < stop)
        grid.values.update(zip(results, values, strict=True))

    return run


def while_loop(op) -> Run:
    before, after = (region.blocks[0] for region in op.regions)
    results = list(op.results)
    check, body = compile_block(before), compile_block(after)

    def run(grid: Grid, mask: Mask) -> None:
        values = [grid.values[value] for value in op.operands]
        found: list[np.ndarray] | None = None
        active = mask
        while active.any():
            grid.values.update(zip(before.arguments, values, strict=True))
            check(grid, active)
            condition, *passed = grid.yielded
            found = (
                passed
                if found is None
                else [merge(active, n, o) for n, o in zip(passed, found, strict=True)]
            )
            active = active & grid.spread(condition)
            if active.any():
                grid.values.update(zip(after.arguments, passed, strict=True))
                body(grid, active)
                values = grid.yielded
        grid.values.update(zip(results, found or [], strict=True))

    return run


def pass_on(op):
    def run(grid: Grid, mask: Mask, *values) -> None:
        grid.yielded = list(values)

    return run


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
    # "Comparison and Selection Instructions": setp, selp
    "arith.cmpi": compare_integer,
    "arith.cmpf": compare_float,
    "arith.select": same(select),
    # "Data Movement and Conversion Instructions": mov, cvt
    "arith.constant": constant,
    "llvm.mlir.constant": constant,
    "arith.extsi": convert,
    "arith.extui": convert_unsigned,
    "arith.trunci": lambda op: (
        (lambda x: (x & 1).astype(bool)) if result_dtype(op) == bool else convert(op)
    ),
    "arith.index_cast": convert,
    "arith.sitofp": convert,
    "arith.uitofp": convert_unsigned,
    "arith.fptosi": float_to_integer,
    "arith.fptoui": float_to_integer,
    "arith.extf": convert,
    "arith.truncf": convert,
    "arith.bitcast": bitcast,
    "vector.bitcast": bitcast,
    "vector.broadcast": broadcast,
    "vector.extract": extract,
    "vector.insert": insert,
    "vector.shuffle": shuffle,
    "vector.reduction": reduction,
    "vector.from_elements": from_elements,
    "llvm.getelementptr": element_address,
    "llvm.ptrtoint": same(lambda x: x),
    "llvm.extractvalue": extract_value,
}

EFFECTS: dict[str, Callable] = {
    # "Integer Arithmetic Instructions": div, rem
    "arith.divsi": divide(quotient, False),
    "arith.divui": divide(np.floor_divide, True),
    "arith.remsi": divide(np.fmod, False),
    "arith.remui": divide(np.remainder, True),
    # "Special Registers"
    "nvvm.read.ptx.sreg.tid.x": special(lambda grid: grid.thread),
    "nvvm.read.ptx.sreg.ntid.x": special(lambda grid: grid.threads),
    "nvvm.read.ptx.sreg.ctaid.x": special(lambda grid: grid.block),
    "nvvm.read.ptx.sreg.nctaid.x": special(lambda grid: grid.blocks),
    # "Data Movement and Conversion Instructions": mov of a variable's address, ld, st, shfl.sync
    "llvm.mlir.addressof": lambda op: (
        lambda grid, mask: np.array(
            [grid.addresses[ir.FlatSymbolRefAttr(op.attributes["global_name"]).value]], np.int64
        )
    ),
    "llvm.load": load,
    "llvm.store": store,
    "nvvm.shfl.sync": shuffle_lanes,
    # "Parallel Synchronization and Communication Instructions": atom.cas, bar.sync, bar.warp.sync
    "llvm.cmpxchg": compare_exchange,
    "nvvm.barrier": barrier,
    "nvvm.bar.warp.sync": warp_barrier,
    # Ends of regions
    "scf.yield": pass_on,
    "scf.condition": pass_on,
    "llvm.return": pass_on,
}

CONTROL: dict[str, Callable[[ir.Operation], Run]] = {
    # "Control Flow Instructions": bra under a predicate
    "scf.if": if_else,
    "scf.for": for_loop,
    "scf.while": while_loop,
}
