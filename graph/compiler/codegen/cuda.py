"""A kernel for CUDA: MLIR to LLVM IR, to PTX (llvmlite's NVPTX), to a cubin.

The PTX stays beside the cubin, for drivers of GPUs that no cubin in the artifact fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.llvm_text import lowered
from heddle.graph.compiler.codegen.verified import verified
from heddle.kernels import emit
from heddle.kernels.cuda import _overlap
from heddle.kernels.cuda._rounding import conversions
from heddle.kernels.cuda._special import functions
from heddle.kernels.mlir import context, dialect, ir
from heddle.kernels.registry import AHEAD, Machine, find
from heddle.kernels.spec import Launch, Spec
from heddle.runtime.artifact import Code
from heddle.runtime.errors import CompileError

NAME = "heddle"
"""The symbol of a function, and what that of an op's kernel begins with, as profilers show it."""

TRIPLE = "nvptx64-nvidia-cuda"
FEATURES = {"sm_80": "+ptx80", "sm_90a": "+ptx84"}
"""The PTX version: the first that has what is emitted, so that drivers need not be newer."""

LOWERING = (
    "canonicalize{top-down=false},cse,convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,"
    "convert-to-llvm,reconcile-unrealized-casts,canonicalize{top-down=false},cse"
)


def compile_cuda(spec: Spec, machine: Machine) -> tuple[Code, ...]:
    """The kernel as a cubin, where a PTX assembler is installed, and as PTX.

    Raises:
        CompileError: The assembler refuses what was generated.
    """
    return _codes(to_ptx(spec, machine), machine, symbol(spec))


def symbol(spec: Spec) -> str:
    """The symbol of the kernel's function."""
    return f"{NAME}_{spec.op}"


def assemble(module: Any, machine: Machine) -> tuple[Code, ...]:
    """The same of a module that `function` made, in the current context."""
    return _codes(_generate(llvm_ir(module), machine.arch), machine, NAME)


def _codes(text: str, machine: Machine, symbol: str) -> tuple[Code, ...]:
    assembled = ptx.assemble(text, machine.arch)
    portable = Code(machine.arch, "ptx", text.encode() + b"\0", symbol=symbol)
    if assembled is None:
        return (portable,)
    cubin = Code(
        machine.arch,
        "cubin",
        assembled.data,
        symbol=symbol,
        registers=assembled.registers,
        spills=assembled.spills,
    )
    return cubin, portable


def to_ptx(spec: Spec, machine: Machine) -> str:
    """The PTX text of one kernel function, named `symbol(spec)`."""
    with context(), ir.Location.unknown():
        text = llvm_ir(build(spec, machine))
    return _generate(text, machine.arch)


def llvm_ir(module: Any) -> str:
    """The LLVM IR of a module that `build` made, which is lowered in place."""
    return lowered(module, LOWERING)


def build(spec: Spec, machine: Machine) -> Any:
    """A module with the kernel's function, in the current context.

    Its parameters are those of `docs/design.md`: `(buffers..., workspace?, counters?, status?,
    dims..., tensor maps...)`.

    Raises:
        CompileError: There is no CUDA kernel for `spec`.
    """
    kernel = find(spec.op, machine.target)
    reason = kernel.supports(spec) if kernel else "no such kernel"
    if kernel is None or reason:
        raise CompileError(f"{spec.op} on {machine.arch}: {reason}")
    pointers = len(spec.buffers) + len(kernel.extras(spec))
    with conversions(machine), functions():
        return function(
            pointers,
            len(spec.dims),
            kernel.launch_on(spec, machine),
            lambda: kernel.emit(spec, machine),
            Start(kernel.late(spec, machine), bool(spec.attr(AHEAD))),
            symbol(spec),
        )


@dataclass(frozen=True)
class Start:
    """What a kernel says itself: `late`, when the next one may start; `ahead`, when it waits.

    Every block waits for the kernels in front, so that whoever waits for this one has done so, too.
    """

    late: bool = False
    ahead: bool = False


def function(
    pointers: int,
    dims: int,
    launch: Launch,
    body: Callable[[], None],
    start: Start = Start(),
    symbol: str = NAME,
) -> Any:
    """A module with one kernel, whose body is what `body` emits, in the current context.

    Its parameters are so many pointers and dims, and the tensor maps of `launch`.
    """
    return verified(lambda: _function(pointers, dims, launch, body, start, symbol))


def _function(
    pointers: int, dims: int, launch: Launch, body: Callable[[], None], start: Start, symbol: str
) -> Any:
    kinds = [emit.pointer_type()] * pointers + [emit.integer(64)] * dims
    kinds += [emit.pointer_type()] * len(launch.tensor_maps)
    parameters = ", ".join(str(kind) for kind in kinds)
    llvm_dialect = dialect("llvm")
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        kind = ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({parameters})>"))
        made = llvm_dialect.LLVMFuncOp(symbol, kind)
        made.attributes["nvvm.kernel"] = ir.UnitAttr.get()
        made.attributes["nvvm.reqntid"] = ir.DenseI32ArrayAttr.get([launch.block[0]])
        if launch.cluster > 1:
            made.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([launch.cluster])
        if launch.tensor_maps:
            made.attributes["arg_attrs"] = _by_value(len(kinds), len(launch.tensor_maps))
    with ir.InsertionPoint(made.body.blocks.append(*kinds)), emit.shared_constants():
        if launch.overlaps and not start.late:
            _overlap.let_next_start()
        if launch.overlaps and not start.ahead:
            _overlap.wait()
        body()
        llvm_dialect.return_()
    return module


def _by_value(count: int, maps: int) -> Any:
    """The attributes of `count` parameters, of which the last `maps` are tensor maps."""
    tensor_map = ir.DictAttr.get(
        {
            "llvm.byval": ir.TypeAttr.get(ir.Type.parse("!llvm.array<128 x i8>")),
            "llvm.align": ir.IntegerAttr.get(emit.integer(64), 64),
            "nvvm.grid_constant": ir.UnitAttr.get(),
        }
    )
    return ir.ArrayAttr.get([ir.DictAttr.get({})] * (count - maps) + [tensor_map] * maps)


def _generate(text: str, arch: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=arch, features=FEATURES[arch], opt=3, reloc="default", codemodel="default"
    )
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return str(machine.emit_assembly(module))
