"""`heddle inspect --kernel`: one kernel as MLIR, LLVM IR or machine code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from heddle.pipelines.cli import disassembly
from heddle.pipelines.cli.options import usage_errors
from heddle.runtime.errors import InputError

FORMS = ("mlir", "llvm", "asm", "ptx", "sass")

HELD = {"image": "asm", "ptx": "ptx", "cubin": "sass"}
"""What the code in an artifact is shown as, by its format."""


@dataclass(frozen=True)
class Wanted:
    """The kernel's name, how to show it (None: as the machine's code), for which architecture."""

    kernel: str
    form: str | None
    arch: str | None


def of_artifact(path: Path, wanted: Wanted) -> str:
    """A kernel's code in the artifact at `path`.

    Raises:
        InputError: The artifact has no such kernel, or not in this form; the message says what it
            has.
    """
    from heddle.runtime import Artifact

    artifact = Artifact.load(path)
    kernels = [kernel for program in artifact.programs for kernel in program["kernels"]]
    held = [(HELD[code["format"]], code) for code in codes_of(kernels, wanted.kernel)]
    fitting = [
        (form, code)
        for form, code in held
        if wanted.form in (None, form) and wanted.arch in (None, code["arch"])
    ]
    if not fitting:
        there = ", ".join(f"{form} for {code['arch']}" for form, code in held)
        what = " for ".join(filter(None, (wanted.form or "code", wanted.arch)))
        raise InputError(
            f"{path}: {wanted.kernel}: wanted {what}, it has {there}; without an artifact, "
            "'heddle inspect --kernel NAME --show FORM' builds a kernel afresh"
        )
    form, code = fitting[-1]
    click.echo(f"{wanted.kernel}: {form} for {code['arch']}", err=True)
    data = artifact.to_bytes()[code["offset"] : code["offset"] + code["bytes"]]
    if form == "ptx":
        return data.rstrip(b"\0").decode()
    return disassembly.sass(data) if form == "sass" else disassembly.x86(data, code["entry"])


def codes_of(kernels: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The codes of the kernel `name`, which may be the start of one kernel's name."""
    found = list(dict.fromkeys(k["name"] for k in kernels if k["name"].startswith(name)))
    chosen = [name] if name in found else found
    if len(chosen) != 1:
        wanted = ", ".join(found or dict.fromkeys(kernel["name"] for kernel in kernels))
        raise InputError(f"--kernel: wanted one of {wanted}; got {name!r}")
    return [code for kernel in kernels if kernel["name"] == chosen[0] for code in kernel["codes"]]


def afresh(wanted: Wanted, sizes: tuple[str, ...], dtype: str | None, target: str) -> str:
    """A kernel of the bench's workloads, built for one architecture.

    Raises:
        UsageError: There is no such kernel, size, dtype or architecture, or the target has no such
            form; the message lists what there is.
        CompileError: It cannot be built.
    """
    from heddle.graph.compiler.tuned import own_tables
    from heddle.kernels import tuning
    from heddle.kernels.registry import find
    from heddle.pipelines.bench import reading
    from heddle.pipelines.cli.bench_cases import read_sizes

    form = wanted.form or {"cpu": "asm", "cuda": "ptx"}[target]
    if form not in reading.FORMS[target]:
        forms = ", ".join(reading.FORMS[target])
        raise click.UsageError(f"--show: wanted one of {forms} for {target}; got {form!r}")
    given = read_sizes(sizes)
    for name, several in given.items():
        if len(several) > 1:
            raise click.UsageError(f"--set {name}: wanted one size, got {len(several)}")
    with usage_errors():
        machine = reading.machine_for(target, wanted.arch)
        spec = reading.find_spec(wanted.kernel, given, dtype, target)
    with tuning.using(own_tables(native=target == "cpu" and wanted.arch is None)):
        row = find(spec.op, target)
        values = row.space.values(spec, machine) if row and row.space else {}
        tuned = "".join(f", {name}={value}" for name, value in values.items())
        click.echo(f"{spec.op}: {form} for {machine.arch}{tuned}", err=True)
        if form == "sass":
            return disassembly.sass(reading.cubin(spec, machine))
        return reading.text(spec, machine, form)
