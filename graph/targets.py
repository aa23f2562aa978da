"""What a graph is compiled for: names such as `"cpu"` or `"cuda:sm_90a"`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from heddle.kernels.registry import MACHINES, Machine
from heddle.runtime.errors import CompileError, DeviceError

DEFAULTS = {
    kind: tuple(m for m in MACHINES.values() if m.target == kind) for kind in ("cpu", "cuda")
}

# What each level needs beyond the level before it; llvm's names of the features.
_LEVELS = (
    ("x86-64-v3", ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    ("cooperlake", ("avx512bf16", "avx512vnni")),
    ("sapphirerapids", ("amx-tile", "amx-bf16", "amx-int8", "avx512fp16")),
)


class TargetWarning(UserWarning):
    """A target gets less than it could, because a tool for it is missing here."""


@dataclass(frozen=True)
class Target:
    """A kind of device and the machines whose code goes into the artifact.

    Attributes:
        kind: `"cpu"` or `"cuda"`.
        machines: One or more; at load the runtime takes the best one that the device can run.
    """

    kind: str
    machines: tuple[Machine, ...]

    @staticmethod
    def parse(text: str) -> Target:
        """The target called `text`.

        `"cpu"` and `"cuda"` mean every architecture of their kind, `"cpu:x86-64-v4"` or
        `"cuda:sm_90a"` one of them, and `"cpu:native"` the best level of this machine.

        Raises:
            CompileError: There is no such target; the message lists those that exist.
            DeviceError: `"cpu:native"`, and this machine has no level that is compiled for.
        """
        kind, _, arch = text.partition(":")
        if kind in DEFAULTS and text == kind:
            return Target(kind, DEFAULTS[kind])
        if text == "cpu:native":
            arch = native_level()
        machine = MACHINES.get(arch)
        if machine is None or machine.target != kind:
            raise CompileError(f"target {text!r}: wanted one of {', '.join(known())}")
        return Target(kind, (machine,))

    @staticmethod
    def merge(targets: tuple[str | Target, ...]) -> tuple[Target, ...]:
        """`targets` parsed, with one entry for each kind: cpu first, machines in table order.

        Raises:
            CompileError: There are none, or one is not known.
        """
        if not targets:
            raise CompileError(f"targets: wanted at least one of {', '.join(known())}, got none")
        parsed = [t if isinstance(t, Target) else Target.parse(t) for t in targets]
        wanted = {machine for target in parsed for machine in target.machines}
        kinds = {kind: tuple(m for m in DEFAULTS[kind] if m in wanted) for kind in DEFAULTS}
        return tuple(Target(kind, machines) for kind, machines in kinds.items() if machines)


Targets: TypeAlias = "Sequence[str | Target] | str | Target"


def listed(targets: Targets) -> tuple[str | Target, ...]:
    """One target or several, as a tuple.

    Raises:
        CompileError: They are something else.
    """
    if isinstance(targets, (str, Target)):
        return (targets,)
    for target in targets if isinstance(targets, Sequence) else [targets]:
        if not isinstance(target, (str, Target)):
            raise CompileError(f"targets: wanted names of targets or Targets, got {target!r}")
    return tuple(targets)


def known() -> list[str]:
    """Every name that `Target.parse` takes."""
    names = [
        name
        for kind, rows in DEFAULTS.items()
        for name in (kind, *(f"{kind}:{m.arch}" for m in rows))
    ]
    return sorted([*names, "cpu:native"])


def native_cpu() -> str:
    """LLVM's name of this machine's CPU, `"znver5"`: its microarchitecture, not its clock."""
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def native_level() -> str:
    """The best x86-64 level that this machine runs.

    Raises:
        DeviceError: It runs none of them.
    """
    from llvmlite import binding  # heavy, and only this one name needs it

    features = binding.get_host_cpu_features()
    best = None
    for level, needed in _LEVELS:
        if not all(features.get(name) for name in needed):
            break
        best = level
    if best is None:
        raise DeviceError("target 'cpu:native': this machine lacks x86-64-v3, the lowest level")
    return best
