"""The kernels behind a workload, built afresh to be read: MLIR, LLVM IR, assembly, PTX, cubin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from heddle.graph import DType
from heddle.graph.compiler import assemble
from heddle.graph.compiler.codegen import cpu, cuda, ptx
from heddle.graph.compiler.pipeline import lower
from heddle.graph.location import read_from
from heddle.graph.targets import native_level
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES, Machine, every, find
from heddle.kernels.spec import Spec
from heddle.pipelines.bench import workloads
from heddle.pipelines.bench.rows import shape_text
from heddle.pipelines.bench.workload import Workload
from heddle.pipelines.bench.workloads import WORKLOADS
from heddle.runtime.errors import CompileError, HeddleError, InputError

FORMS = {"cpu": ("mlir", "llvm", "asm"), "cuda": ("mlir", "llvm", "ptx", "sass")}
"""What a kernel of each kind of target can be read as."""

Given = Mapping[str, tuple[int, ...]]
"""Sizes in the place of a workload's defaults, of which the first counts."""


def specs_of(workload: Workload, sizes: Mapping[str, int], dtype: DType, target: str) -> list[Spec]:
    """What the workload's program asks of kernels, in the order of its steps.

    Raises:
        GraphError: The op does not take these sizes, which the message begins with.
    """
    with read_from(shape_text(sizes), 0):
        module = lower(workload.graph(sizes, dtype).module, target)
    return [request.spec for _, request in assemble.requests(module, target)]


def find_spec(name: str, given: Given, dtype: str | None, target: str) -> Spec:
    """What is asked of the kernel `name`.

    Args:
        name: A workload (`"matmul"`), whose last kernel it is, or the op of a kernel that one of
            the workloads runs (`"pack_b"`).
        given: The workload's sizes.
        dtype: The workload's dtype, by default float32.
        target: `"cpu"` or `"cuda"`.

    Raises:
        InputError: There is no such kernel; the message lists those that there are.
    """
    if name in WORKLOADS:
        return _specs(WORKLOADS[name], given, dtype, target)[-1]
    taken: list[str] = []  # dtypes of the workloads that run it
    for workload in WORKLOADS.values() if find(name, target) else ():
        if any(spec.op == name for spec in _specs(workload, {}, None, target)):
            own = workload.dtypes()
            taken += own
            for spec in _specs(workload, given, dtype, target) if dtype in (None, *own) else ():
                if spec.op == name:
                    return spec
    if taken and dtype not in (None, *taken):
        wanted = ", ".join(dict.fromkeys(taken))
        raise InputError(f"{name}: --dtype: wanted one of {wanted}; got {dtype!r}")
    ops = ", ".join(kernel.op for kernel in every(target))
    known = f"a kernel of 'heddle bench list', or one that those run: {ops}"
    raise InputError(f"--kernel: wanted {known}; got {name!r}")


def workloads_of(ops: Collection[str], target: str) -> list[str]:
    """The workloads that run kernels of these ops, in their default sizes and dtype."""
    found = []
    for name, workload in WORKLOADS.items():
        with suppress(HeddleError):  # where the target has no kernel for it
            if any(spec.op in ops for spec in _specs(workload, {}, None, target)):
                found.append(name)
    return found


def _specs(workload: Workload, given: Given, dtype: str | None, target: str) -> list[Spec]:
    sizes = workloads.grid(workload, given)[0]
    return specs_of(workload, sizes, workloads.dtype_of(workload, dtype), target)


def machine_for(target: str, arch: str | None) -> Machine:
    """The machine to build for: by default the best level of this CPU, or the last CUDA one.

    Raises:
        InputError: The target has no such architecture; the message lists its own.
    """
    archs = [machine.arch for machine in MACHINES.values() if machine.target == target]
    chosen = arch or (native_level() if target == "cpu" else archs[-1])
    if chosen not in archs:
        raise InputError(f"--arch: wanted one of {', '.join(archs)}; got {chosen!r}")
    return MACHINES[chosen]


def text(spec: Spec, machine: Machine, form: str) -> str:
    """The kernel as `"mlir"` before lowering, `"llvm"` after it, `"asm"` or `"ptx"`.

    Raises:
        CompileError: It cannot be built.
    """
    if form == "ptx":
        return cuda.to_ptx(spec, machine)
    with context(), ir.Location.unknown():
        module = (cpu if machine.target == "cpu" else cuda).build(spec, machine)
        if form == "mlir":
            return str(module)
        lowered = (cpu if machine.target == "cpu" else cuda).llvm_ir(module)
    if form == "llvm":
        return str(lowered)
    optimized, target = cpu.optimized(lowered, machine)
    return str(target.emit_assembly(optimized))


def cubin(spec: Spec, machine: Machine) -> bytes:
    """The kernel as a cubin.

    Raises:
        CompileError: It cannot be built, or there is no PTX assembler.
    """
    assembled = ptx.assemble(cuda.to_ptx(spec, machine), machine.arch)
    if assembled is None:
        raise CompileError("sass: wanted a PTX assembler: pip install 'heddle[cuda]', or ptxas")
    return assembled.data
