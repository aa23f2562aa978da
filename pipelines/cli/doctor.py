"""`heddle doctor`: what this machine can run, and what it can compile for."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from heddle.pipelines.cli.console import READABLE, bytes_text, listed, print_json, table
from heddle.pipelines.cli.options import Location

COMPILER = ("llvmlite", "pyelftools")
"""The packages that compiling for any target needs beside MLIR's bindings."""

BINDINGS = "torch-mlir"
"""The package to install where none has these."""

ASSEMBLERS = ("nvidia-cuda-nvcc", "nvidia-nvjitlink")
"""Packages that make cubins; without either (and ptxas) artifacts have PTX alone."""

Code = tuple[str, str]
"""The architecture and the format of machine code: `("sm_90a", "cubin")`."""

NO_KERNELS = "any"
"""What a program without kernels runs on: each CPU, or each GPU."""


@click.command(
    short_help="Show what this machine can run and compile for.",
    epilog=listed(
        "Examples:",
        "heddle doctor",
        "heddle doctor minilm.heddle",
    ),
)
@click.argument("artifact", required=False, type=Location())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, artifact: Path | None, as_json: bool) -> None:
    """Show CPU levels, threads, GPUs, what is missing for which target, and the settings.

    With ARTIFACT also whether it runs here, and on which code; exit code 1 when it does not.
    """
    report = machine()
    if artifact is not None:
        report["artifact"] = fitness(artifact, report)
    if as_json:
        print_json(report)
    else:
        show(report)
    if artifact is not None and not any(row["runs"] for row in report["artifact"]["targets"]):
        context.exit(1)


def machine() -> dict[str, Any]:
    """Everything about this machine, as JSON has it."""
    from heddle.runtime import config
    from heddle.runtime._core import cpu_info, cuda_info

    cpu = cpu_info()
    levels = [{"level": level, "missing": lacks} for level, lacks in cpu["missing"].items()]
    settings = [
        {
            "name": row.name,
            "value": config.get(row.name),
            "meaning": row.meaning,
            "problem": config.problem(row.name),
        }
        for row in config.SETTINGS
    ]
    return {
        "heddle": version("heddle"),
        "cpu": {"cores": cpu["cores"], "usable": cpu["usable"], "levels": levels},
        "cuda": cuda_info(),
        "targets": [{"target": name, "missing": lacks} for name, lacks in compiling().items()],
        "settings": settings,
    }


def compiling() -> dict[str, list[str]]:
    """What is missing here to compile for each kind of target, as packages to install."""
    lacks = [] if has_bindings() else [BINDINGS]
    lacks += [name for name in COMPILER if not installed(name)]
    assembler = any(map(installed, ASSEMBLERS)) or shutil.which("ptxas")
    return {"cpu": lacks, "cuda": lacks if assembler else [*lacks, f"{ASSEMBLERS[0]} or ptxas"]}


def has_bindings() -> bool:
    """Whether some package has MLIR's bindings; they are imported, as the compiler does it."""
    try:
        from heddle.kernels import mlir
    except ImportError:
        return False
    return bool(mlir.PROVIDER)


def installed(package: str) -> bool:
    """Whether the Python package is installed; it is not imported."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def fitness(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    """For each target in the artifact: the code that runs here, or why none does."""
    from heddle.runtime import Artifact

    artifact = Artifact.load(path)
    rows = []
    for needs, program in zip(artifact.requirements, artifact.programs, strict=True):
        judge = cpu_code if needs["target"] == "cpu" else cuda_code
        codes = codes_of_all(program["kernels"])
        code, problem = judge(codes, report) if codes != [] else (None, "its kernels share no code")
        rows.append({**needs, "runs": code is not None, "code": code, "problem": problem})
    return {"name": artifact.name, "path": str(path), "targets": rows}


def codes_of_all(kernels: list[dict[str, Any]]) -> list[Code] | None:
    """The architectures and formats in which every kernel is there; None where there are none."""
    sets = [{(code["arch"], code["format"]) for code in kernel["codes"]} for kernel in kernels]
    return sorted(set.intersection(*sets)) if sets else None


def cpu_code(codes: list[Code] | None, report: dict[str, Any]) -> tuple[str | None, str]:
    """The best code that this CPU runs; levels are listed best first."""
    if codes is None:
        return NO_KERNELS, ""
    archs = [arch for arch, _ in codes]
    lacks = {row["level"]: row["missing"] for row in report["cpu"]["levels"]}
    for level, missing in lacks.items():
        if level in archs and not missing:
            return level, ""
    least = min(archs, key=lambda arch: len(lacks.get(arch, [arch])))
    return None, f"{least} needs {', '.join(lacks.get(least, [least]))}"


def cuda_code(codes: list[Code] | None, report: dict[str, Any]) -> tuple[str | None, str]:
    """What the first GPU of the machine runs: a cubin before PTX, then the later architecture."""
    cuda = report["cuda"]
    if cuda["problem"]:
        return None, cuda["problem"]
    if not cuda["devices"]:
        return None, "there is a driver, but no GPU"
    if codes is None:
        return NO_KERNELS, ""
    capability = cuda["devices"][0]["capability"]
    fit = [code for code in codes if runs_on(*code, capability)]
    if not fit:
        return None, f"the GPU has compute capability {capability}"
    arch, form = max(fit, key=lambda code: (code[1] == "cubin", sm_number(code[0])))
    return f"{arch} (PTX)" if form == "ptx" else arch, ""


def sm_number(arch: str) -> int:
    """`"sm_90a"` as 90."""
    return int(arch.removeprefix("sm_").rstrip("a"))


def runs_on(arch: str, form: str, capability: str) -> bool:
    """Whether a GPU runs the code (CUDA C++ Programming Guide, "Application Compatibility").

    Code for an `a` architecture runs on exactly that one. Other cubins run on the same major
    version from their minor on, other PTX on everything later.
    """
    major, minor = map(int, capability.split("."))
    number, device = sm_number(arch), 10 * major + minor
    if arch.endswith("a"):
        return number == device
    return number <= device and (form == "ptx" or number // 10 == major)


def show(report: dict[str, Any]) -> None:
    """The report for a person."""
    cpu, cuda = report["cpu"], report["cuda"]
    rows = [(row["level"], lack_text(row["missing"])) for row in cpu["levels"]]
    title = f"CPU: {cpu['cores']} cores, {cpu['usable']} usable"
    table(title, ("level", "missing"), rows, READABLE)
    click.secho("CUDA: ", bold=True, nl=False)
    click.echo(cuda["problem"] or f"driver for CUDA {cuda['driver']}")
    for gpu in cuda["devices"]:
        memory = bytes_text(gpu["memory_bytes"])
        click.echo(f"  {gpu['index']}  {gpu['name']}, capability {gpu['capability']}, {memory}")
    click.echo()
    targets = [(row["target"], lack_text(row["missing"])) for row in report["targets"]]
    table("Compiling for", ("target", "missing"), targets)
    settings = [(row["name"], row["value"], row["meaning"]) for row in report["settings"]]
    table("Settings", ("variable", "value", "meaning"), settings, READABLE)
    for row in report["settings"]:
        if row["problem"]:
            click.secho(row["problem"], fg="red")
    if "artifact" in report:
        fit = [
            (row["target"], row["code"] or f"no: {row['problem']}")
            for row in report["artifact"]["targets"]
        ]
        table(report["artifact"]["path"], ("target", "runs here"), fit)


def lack_text(missing: list[str]) -> str:
    """What is missing, or that nothing is."""
    return ", ".join(missing) or "nothing"
