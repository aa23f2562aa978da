"""The frame of a CPU kernel: `void kernel(const i64* dims, ptr* buffers, i64 first, i64 last)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from heddle.kernels import crosslane, emit, memory, sizes
from heddle.kernels.arguments import Arguments
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Body, Spec

arith, llvm = dialect("arith"), dialect("llvm")


@dataclass(frozen=True)
class Frame(Arguments):
    """What the emitted function was given: its tasks go from `first` to `last - 1`.

    `buffers` is where all pointers are.
    """

    first: Any
    last: Any
    buffers: Any

    def pointers(self, number: Size, count: int) -> list[Any]:
        """Those of `count` buffers from `number` on, which may be known at run time alone."""
        return [_item(self.buffers, number + i, emit.pointer_type()) for i in range(count)]


def frame(spec: Spec, machine: Machine, checks: bool = False, scratch: bool = False) -> Frame:
    """The arguments of the function that is being emitted, at the start of its entry block.

    The kernel is one that `checks`; with `scratch`, its launch has a workspace and counters.
    """
    dims, buffers, first, last = ir.InsertionPoint.current.block.arguments
    found = {name: _item(dims, i, emit.integer(64)) for i, name in enumerate(spec.dims)}
    reads, count = len(spec.inputs), len(spec.buffers)
    extras = ["workspace", "counters"] * scratch + ["status"] * checks
    pointers = [_item(buffers, i, emit.pointer_type()) for i in range(count + len(extras))]
    others = dict(zip(extras, pointers[count:], strict=True))
    # A block's arguments come without operators.
    first, last = emit.Number(first), emit.Number(last)
    return Frame(
        spec,
        machine,
        found,
        pointers[:reads],
        pointers[reads:count],
        others.get("workspace"),
        others.get("counters"),
        others.get("status"),
        first,
        last,
        buffers,
    )


def _item(base: Any, number: Size, kind: Any) -> Any:
    where = memory.at(base, number, "int64")
    return llvm.load(kind, where, alignment=8)


def lanes_for(machine: Machine, dtypes: Sequence[str], bodies: Sequence[Body | None] = ()) -> int:
    """How many elements a register holds of the widest dtype in use."""
    found = [*dtypes]
    for body in bodies:
        if body is not None:
            found += [operand.dtype for operand in body.inputs]
            found += [step.dtype for step in body.steps]
    return machine.vector_bytes // max(_register_bytes(dtype) for dtype in found)


def _register_bytes(dtype: str) -> int:
    return 4 if dtype in emit.NARROW else emit.ITEM_SIZE[dtype]


def vectors(start: Size, stop: Size, lanes: int) -> Iterator[tuple[Any, Any]]:
    """Emits the Python body of a `for i, mask in` this over whole vectors, then over the rest.

    The mask of whole vectors is None. Where the rest is known to be empty it is not emitted.
    """
    if isinstance(start, int) and isinstance(stop, int):
        whole: Size = start + (stop - start) // lanes * lanes
        rest: Any = whole < stop
    else:
        whole = stop - sizes.mod(stop - start, lanes)
        rest = lanes > 1 and emit.compare("less", whole, stop)
    for i in emit.loop(start, whole, lanes):
        yield i, None
    if rest is not False:
        whole = emit.as_index(whole)
        with nullcontext() if rest is True else emit.when(rest):
            yield whole, first_lanes(stop - whole, lanes)


def first_lanes(count: Size, lanes: int) -> Any:
    """The mask of the lanes below `count`."""
    word = emit.integer(32)
    # LLVM 22 stores too many bytes of a narrowed vector under a mask with one lane that it knows,
    # so the count is one that it does not know.
    count = emit.opaque(emit.as_index(count))
    limit = arith.trunci(word, emit.minimum(count, lanes))
    return emit.compare("less", crosslane.numbers(word, lanes), emit.splat(limit, lanes))


def byte_buffer(size: int, shared: str = "") -> Any:
    """`size` bytes of stack, aligned for vectors, the same ones in each round of a loop.

    Parts of a kernel that follow each other take the same ones, by the name under which they are
    `shared`: as many as the greatest part wants.
    """
    entry = _entry()
    known = ir.IntegerAttr.get(emit.integer(64), size)
    for other in entry.operations if shared else ():
        if shared in other.attributes:
            if ir.IntegerAttr(other.attributes[shared]).value < size:
                other.attributes[shared] = other.operands[0].owner.attributes["value"] = known
            return other.results[0]
    with ir.InsertionPoint.at_block_begin(entry):
        kind = emit.integer(8)
        # Its own constant: shared ones may come behind.
        count = arith.constant(emit.integer(64), size)
        buffer = llvm.alloca(emit.pointer_type(), count, kind, alignment=64)
    if shared:
        buffer.owner.attributes[shared] = known
    return buffer


@contextmanager
def called(name: str) -> Iterator[None]:
    """What is emitted in it is a function of its own, which is called here; it returns nothing.

    Where there is one of its `name`, it gets a number too. Values from outside become its
    arguments. It has registers of its own: those of AMX have one shape each in a function.
    """
    outer = _entry().owner.operation
    names = [other.attributes["sym_name"].value for other in outer.block.operations]
    name = f"{name}_{len(names)}" if name in names else name
    attributes = {key: outer.attributes[key] for key in ("passthrough", "prefer_vector_width")}
    with ir.InsertionPoint(outer.block):
        made = llvm.LLVMFuncOp(
            name,
            _taking([]),
            linkage=ir.Attribute.parse("#llvm.linkage<internal>"),
            no_inline=True,
            **attributes,
        )
    body = made.body.blocks.append()
    with ir.InsertionPoint(body), emit.shared_constants():
        yield
        llvm.return_()
    given = _handed_in(body)
    made.attributes["function_type"] = _taking([value.type for value in given])
    symbol = ir.FlatSymbolRefAttr.get(name)
    llvm.CallOp(None, given, [], [], callee=symbol)


def _taking(types: Sequence[Any]) -> Any:
    """The type of a function of these arguments, as an attribute."""
    return ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({', '.join(map(str, types))})>"))


def _handed_in(body: Any) -> list[Any]:
    """The values that operations in `body` take from outside, which become its arguments."""
    given: dict[Any, Any] = {}
    known: set[Any] = set()

    def hand(block: Any) -> None:
        known.update(block.arguments)
        for operation in block.operations:
            for place, value in enumerate(operation.operands):
                if value not in known:
                    if value not in given:
                        given[value] = body.add_argument(value.type, ir.Location.unknown())
                    operation.operands[place] = given[value]
            for region in operation.regions:
                for inner in region.blocks:
                    hand(inner)
            known.update(operation.results)

    hand(body)
    return list(given)


def _entry() -> Any:
    """The first block of the function that is being emitted."""
    entry = ir.InsertionPoint.current.block
    while entry.owner.operation.name != "llvm.func":
        entry = entry.owner.operation.block
    return entry
