"""A kernel for x86-64: MLIR to LLVM IR, to an object file (llvmlite), to a flat image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from heddle.graph.compiler.codegen.image import flatten
from heddle.graph.compiler.codegen.llvm_text import lowered
from heddle.graph.compiler.codegen.verified import verified
from heddle.kernels.cpu._bfloat16 import conversions
from heddle.kernels.emit import registers_of, shared_constants
from heddle.kernels.mlir import context, dialect, ir
from heddle.kernels.registry import Machine, find
from heddle.kernels.spec import Spec
from heddle.runtime.artifact import Code
from heddle.runtime.errors import CompileError

SYMBOL = "kernel"
TRIPLE = "x86_64-unknown-linux-gnu"
MOST = 3  # LLVM's highest level of optimization.

LOWERING = (
    "canonicalize{top-down=false},cse,convert-scf-to-cf,convert-vector-to-llvm,convert-to-llvm,"
    "reconcile-unrealized-casts,canonicalize{top-down=false},cse"
)


def compile_cpu(spec: Spec, machine: Machine) -> Code:
    """The kernel's machine code as one position-independent image.

    Raises:
        CompileError: There is no such kernel, or its code needs something outside the image.
    """
    with context(), ir.Location.unknown():
        return assemble(build(spec, machine), machine)


def assemble(module: Any, machine: Machine) -> Code:
    """The machine code of a module that `function` made, in the current context."""
    image = flatten(to_object(llvm_ir(module), machine), SYMBOL)
    return Code(machine.arch, "image", image.data, image.entry, image.alignment, SYMBOL)


def llvm_ir(module: Any) -> str:
    """The LLVM IR of a module that `function` made, which is lowered in place."""
    return lowered(module, LOWERING)


def build(spec: Spec, machine: Machine) -> Any:
    """The kernel in MLIR, in the current context: one function named `SYMBOL`.

    Raises:
        CompileError: There is no such kernel, or it does not take this spec.
    """
    kernel = find(spec.op, "cpu")
    reason = kernel.supports(spec) if kernel else "there is no such kernel"
    if kernel is None or reason is not None:
        raise CompileError(f"{spec.op} for {machine.arch}: {reason}")
    with conversions(machine):
        return function(machine, lambda: kernel.emit(spec, machine))


def function(machine: Machine, emit: Callable[[], None]) -> Any:
    """A module with one function named `SYMBOL`, whose entry block `emit` fills."""
    return verified(lambda: _function(machine, emit))


def _function(machine: Machine, emit: Callable[[], None]) -> Any:
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        made = dialect("llvm").LLVMFuncOp(
            SYMBOL,
            ir.TypeAttr.get(ir.Type.parse("!llvm.func<void (ptr, ptr, i64, i64)>")),
            # No builtins: LLVM must not turn a loop into a call of memcpy or memset.
            passthrough=[ir.StringAttr.get(text) for text in ("no-builtins", "nounwind")],
            prefer_vector_width=str(8 * machine.vector_bytes),
        )
        pointer, size = ir.Type.parse("!llvm.ptr"), ir.IntegerType.get_signless(64)
        entry = made.body.blocks.append(pointer, pointer, size, size)
    with ir.InsertionPoint(entry), shared_constants(), registers_of(machine.vector_bytes):
        emit()
        dialect("llvm").return_()
    return module


def to_object(text: str, machine: Machine, effort: int = MOST) -> bytes:
    """The relocatable object file of LLVM IR; `effort`: of LLVM, from 0, no passes, to `MOST`."""
    module, target = optimized(text, machine, effort)
    return bytes(target.emit_object(module))


def optimized(text: str, machine: Machine, effort: int = MOST) -> tuple[Any, Any]:
    """LLVM IR after LLVM's passes, and the target that writes it as an object or as assembly."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    target = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=machine.arch, opt=effort, reloc="pic", codemodel="small"
    )
    module.triple = TRIPLE
    module.data_layout = str(target.target_data)
    module.verify()
    if effort == 0:
        return module, target
    # Kernels are written with their vectors and unrolling; LLVM's own would only add to them.
    options = llvm.create_pipeline_tuning_options(speed_level=effort)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(target, options)
    passes.getModulePassManager().run(module, passes)
    return module, target
