"""Builds whole kernels for the emulator's own tests, and assembles them as the product does."""

from collections.abc import Callable
from typing import Any

from heddle.graph.compiler.codegen import cuda, ptx
from heddle.kernels import emit
from heddle.kernels.mlir import dialect, ir

arith, llvm, nvvm = (dialect(name) for name in ("arith", "llvm", "nvvm"))

DYNAMIC = -(2**31)
SHARED = "!llvm.ptr<3>"


def kernel(pointers: int, threads: int, shared: int, body: Callable[..., None], **attributes):
    """A module with one kernel over `pointers` pointers; `shared` bytes are named `@tile`.

    `body` gets the pointers and the base of shared memory, aligned to 1024 bytes.
    """
    module = ir.Module.parse(
        f"llvm.mlir.global private @tile() {{addr_space = 3 : i32, alignment = 1024 : i64}}"
        f" : !llvm.array<{shared} x i8>"
    )
    kinds = [emit.pointer_type()] * pointers
    with ir.InsertionPoint(module.body):
        parameters = ", ".join(map(str, kinds))
        kind = ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({parameters})>"))
        function = llvm.LLVMFuncOp(cuda.NAME, kind)
        function.attributes["nvvm.kernel"] = ir.UnitAttr.get()
        function.attributes["nvvm.reqntid"] = ir.DenseI32ArrayAttr.get([threads])
        for name, text in attributes.items():
            function.attributes[f"nvvm.{name}"] = ir.Attribute.parse(text)
    with ir.InsertionPoint(function.body.blocks.append(*kinds)):
        base = llvm.AddressOfOp(ir.Type.parse(SHARED), "tile").result
        body(*function.body.blocks[0].arguments, base)
        llvm.return_()
    module.operation.verify()
    return module


def to_ptx(module: ir.Module, arch: str) -> str:
    """The module's PTX, by the product's passes."""
    return cuda._generate(cuda.llvm_ir(module), arch)


def assemble(module: ir.Module, arch: str) -> tuple[str, ptx.Cubin | None]:
    """The PTX, and the cubin where an assembler is installed."""
    text = to_ptx(module, arch)
    return text, ptx.assemble(text, arch)


def i32(number: int) -> Any:
    return emit.constant(emit.integer(32), number)


def thread() -> Any:
    """The number of this thread in its block, i32."""
    return nvvm.read_ptx_sreg_tid_x(results=[emit.integer(32)])


def block() -> Any:
    """The number of this block, i32."""
    return nvvm.read_ptx_sreg_ctaid_x(results=[emit.integer(32)])


def at(base: Any, offset: Any, element: str = "i8") -> Any:
    """The pointer to element `offset` (an int or a value) behind `base`."""
    offset = offset if isinstance(offset, ir.Value) else i32(offset)
    kind, flags = ir.Type.parse(element), llvm.GEPNoWrapFlags.none
    return llvm.getelementptr(base.type, base, [offset], [DYNAMIC], kind, flags)


def get(base: Any, offset: Any) -> Any:
    """The word, i32, that lies `offset` bytes behind `base`."""
    return llvm.load(emit.integer(32), at(base, offset), alignment=4)


def put(base: Any, offset: Any, value: Any) -> None:
    """Stores a word `offset` bytes behind `base`."""
    llvm.store(value, at(base, offset), alignment=4)


def global_pointer(pointer: Any) -> Any:
    """A generic pointer as one to global memory."""
    return llvm.addrspacecast(ir.Type.parse("!llvm.ptr<1>"), pointer)


def attribute(text: str) -> Any:
    return ir.Attribute.parse(text)
