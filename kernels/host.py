"""The frame of a CPU kernel: `void kernel(const i64* dims, ptr* buffers, i64 first, i64 last)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Body, Expr, Spec

llvm = dialect("llvm")

NAME = "kernel"
"""The symbol of the function that a CPU kernel emits."""


@dataclass(frozen=True)
class Frame:
    """What the emitted function was given.

    `inputs` and `outputs` are the pointers of `Spec.inputs` and `Spec.outputs`; `status` is the
    status word's, where the kernel checks its input.
    """

    spec: Spec
    machine: Machine
    dims: dict[str, Any]
    inputs: list[Any]
    outputs: list[Any]
    status: Any
    first: Any
    last: Any

    def size(self, expr: Expr) -> Size:
        """The value of a size: an int where it is static."""
        return sizes.evaluate(expr, self.dims)

    def shape(self, shape: Sequence[Expr]) -> tuple[Size, ...]:
        """The values of a shape."""
        return tuple(self.size(expr) for expr in shape)


@contextmanager
def function(spec: Spec, machine: Machine, checks: bool = False) -> Iterator[Frame]:
    """Emits the kernel's function; its body is what the `with` emits."""
    kind = ir.TypeAttr.get(ir.Type.parse("!llvm.func<void (ptr, ptr, i64, i64)>"))
    # No builtins: LLVM must not turn a loop into a call of memcpy or memset.
    options = ir.ArrayAttr.get([ir.StringAttr.get("no-builtins"), ir.StringAttr.get("nounwind")])
    width = str(8 * machine.vector_bytes)
    made = llvm.LLVMFuncOp(NAME, kind, passthrough=options, prefer_vector_width=width)
    pointer = emit.pointer_type()
    entry = made.body.blocks.append(pointer, pointer, emit.integer(64), emit.integer(64))
    with ir.InsertionPoint(entry):
        dims, buffers, first, last = entry.arguments
        found = {name: _item(dims, i, emit.integer(64)) for i, name in enumerate(spec.dims)}
        count = len(spec.buffers) + checks
        pointers = [_item(buffers, i, pointer) for i in range(count)]
        reads = len(spec.inputs)
        writes = pointers[reads : len(spec.buffers)]
        status = pointers[-1] if checks else None
        # Arguments of a block come without their operators until they are computed with.
        first, last = (emit.Number(value) for value in (first, last))
        yield Frame(spec, machine, found, pointers[:reads], writes, status, first, last)
        llvm.return_([])


def _item(base: Any, number: int, kind: Any) -> Any:
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
    return 4 if dtype in ("float16", "bfloat16") else emit.ITEM_SIZE[dtype]


def over_lanes(start: Size, stop: Size, lanes: int, body: Callable[[Any, Any], None]) -> None:
    """Calls `body(i, mask)` for vectors of `lanes`: whole ones (mask None), then a masked rest."""
    count = stop - start
    if isinstance(count, int):
        whole: Size = start + count // lanes * lanes
    else:
        whole = start + count - sizes.mod(count, lanes)
    for i in emit.loop(start, whole, lanes):
        body(i, None)
    if isinstance(whole, int) and isinstance(stop, int):
        if whole < stop:
            body(emit.index(whole), memory.first_lanes(emit.index(stop - whole), lanes))
        return
    with emit.when(emit.compare("less", emit.as_index(whole), stop)):
        body(whole, memory.first_lanes(stop - whole, lanes))
