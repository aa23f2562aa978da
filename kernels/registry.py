"""Every kernel as one row: op, target, what it can do, how it is launched and emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from heddle.kernels.spec import Expr, Launch, Spec
from heddle.kernels.tuning import Space


@dataclass(frozen=True)
class Machine:
    """What code is emitted for.

    `target` is `"cpu"` or `"cuda"`; `arch` is LLVM's name of the CPU, or `"sm_80"`, `"sm_90a"`.
    `vector_bytes` is the register width (32 or 64 on a CPU, 16 on CUDA). Of a CPU, `dots` says that
    it adds products of pairs of bfloat16 and of fours of int8 to 32 bits (AVX512-BF16 and
    AVX512-VNNI), and `tiles` that it multiplies tiles (AMX). Of a GPU, `overlaps` says that it
    starts a kernel before the one in front of it has ended (programmatic dependent launch), and
    `float8` that it has instructions that convert floats of 8 bits.
    """

    target: str
    arch: str
    vector_bytes: int
    dots: bool = False
    tiles: bool = False
    overlaps: bool = False
    float8: bool = False


MACHINES = {
    row.arch: row
    for row in (
        Machine("cpu", "x86-64-v3", 32),
        Machine("cpu", "x86-64-v4", 64),
        Machine("cpu", "cooperlake", 64, dots=True),
        Machine("cpu", "sapphirerapids", 64, dots=True, tiles=True),
        Machine("cuda", "sm_80", 16),
        Machine("cuda", "sm_90a", 16, overlaps=True, float8=True),
    )
}


AHEAD = "ahead"
"""The attribute of a spec whose kernel reads its operands `Kernel.ahead` before all others."""

PLACES = {row.arch: row.target for row in MACHINES.values()}
PLACES |= {target: target for target in PLACES.values()}
"""What there can be a tuning table for: each architecture and each kind, with its kind."""


@dataclass(frozen=True)
class Portion:
    """A spec that computes a portion of an op: some of its calls, or a part of each.

    Attributes:
        spec: What is computed.
        condition: A size that is 1 for those calls and 0 for all others, for which `spec` is not
            started.
        buffers: The numbers of its buffers among those of the op's spec; what comes behind the last
            of them is the result of the spec's `gate`, in memory. None: it has all buffers.
    """

    spec: Spec
    condition: Expr = 1
    buffers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Kernel:
    """A registry row.

    Attributes:
        op: The root op that it computes (`Spec.op`).
        target: `"cpu"` or `"cuda"`.
        emit: Emits the body of one function for a spec on a machine.
        launch: How a spec is started on every machine that has no launch of its own.
        own_launch: How a spec is started on one architecture, or None where it is as anywhere. What
            memory it takes (workspace, counters) is there for the other architectures too.
        split: The portions of a spec, all of its calls together.
        supports: None when the spec can be computed, else the reason why not, as a phrase.
        checks: The kernel checks values of its input and takes the status word.
        updates: So many of the first operands and outputs are one memory each: the kernel writes
            only what changes.
        overwrites: Inputs that an output of the same type may lie over, because each element is
            read just before the result is written to its place, and by no other task: `"epilogue"`,
            or `"all"` where that holds for the root's operands and the prologue, too.
        space: The parameters that it is tuned by.
        uses: Which of a CPU's `dots` and `tiles` the kernel computes with.
        moves: It rounds nothing: what it writes are elements of its input as they are, or integers.
        late: Whether a kernel says itself when the next one may start: once it asks for no more of
            what it streams, of which the other would take its share. Else that may start at once.
        ahead: The inputs that it can read before the kernels in front of it have ended. Where the
            graph is given all of them, so that no kernel writes them, each of the spec's products
            has the attribute `AHEAD`, and the kernel itself waits for those in front.
    """

    op: str
    target: str
    emit: Callable[[Spec, Machine], None]
    launch: Callable[[Spec], Launch]
    supports: Callable[[Spec], str | None]
    checks: bool = False
    updates: int = 0
    overwrites: Literal["", "epilogue", "all"] = ""
    space: Space | None = None
    uses: Callable[[Spec], tuple[str, ...]] = lambda spec: ()
    moves: bool = False
    own_launch: Callable[[Spec, Machine], Launch | None] = lambda spec, machine: None
    split: Callable[[Spec], tuple[Portion, ...]] = lambda spec: (Portion(spec),)
    late: Callable[[Spec, Machine], bool] = lambda spec, machine: False
    ahead: Callable[[Spec], tuple[int, ...]] = lambda spec: ()

    def depends(self, spec: Spec) -> tuple[str, ...]:
        """Which of a CPU's `dots` and `tiles` the code for `spec` depends on.

        A level that adds others alone has no code of its own. With `dots` comes the instruction
        that rounds to bfloat16.
        """
        rounds = () if self.moves or not _rounds(spec) else ("dots",)
        return tuple(sorted({*self.uses(spec), *rounds}))

    def launch_on(self, spec: Spec, machine: Machine) -> Launch:
        """How `spec` is started on `machine`."""
        launch = self.own_launch(spec, machine) or self.launch(spec)
        return replace(launch, overlaps=machine.overlaps)

    def launches(self, spec: Spec) -> tuple[Launch, ...]:
        """Every way in which `spec` is started on the machines of the target, each once."""
        machines = [machine for machine in MACHINES.values() if machine.target == self.target]
        return tuple(dict.fromkeys(self.launch_on(spec, machine) for machine in machines))

    def extras(self, spec: Spec) -> tuple[str, ...]:
        """The pointers that follow the buffers: of workspace, counters and status those it takes.

        The same on every machine of the target.
        """
        launches = self.launches(spec)
        wanted = {
            "workspace": any(launch.workspace != 0 for launch in launches),
            "counters": any(launch.counters for launch in launches),
            "status": self.checks,
        }
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def _rounds(spec: Spec) -> bool:
    """Whether numbers become bfloat16 at the end of `spec` or on the way."""
    bodies = [body for body in (spec.prologue, spec.epilogue) if body]
    written = {operand.dtype for operand in (spec.result, *spec.outputs)}
    computed = {step.dtype for body in bodies for step in body.steps}
    others = [other for other in (spec.source, spec.gate, *spec.beside) if other]
    return "bfloat16" in written | computed or any(map(_rounds, others))


def find(op: str, target: str) -> Kernel | None:
    """The kernel that computes `op` on `target`, or None; imports the target's kernels."""
    return next((row for row in every(target) if row.op == op), None)


def every(target: str) -> tuple[Kernel, ...]:
    """The rows of `target`; imports its kernels."""
    rows: tuple[Kernel, ...] = import_module(f"heddle.kernels.{target}").KERNELS
    return rows
