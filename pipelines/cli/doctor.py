"""`heddle doctor`: what this machine can run, and what it can compile for."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

COMPILER = ("torch-mlir", "llvmlite", "pyelftools")
"""The packages that compiling for any target needs."""

ASSEMBLER = "nvidia-nvjitlink"
"""The package that makes cubins; without it (and ptxas) artifacts have PTX alone."""


@click.command(short_help="Show what this machine can run and compile for.")
@click.argument("artifact", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, artifact: Path | None, as_json: bool) -> None:
    r"""Show CPU levels, threads, GPUs, what is missing for which target, and the settings.

    With ARTIFACT also whether it runs here, and on which code; exit code 1 when it does not.

    \b
    Examples:
      heddle doctor
      heddle doctor minilm.heddle
    """
    from heddle.pipelines.cli.console import print_json

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
    from heddle.runtime import config, cpu_info, cuda_info

    cpu = cpu_info()
    levels = [{"level": level, "missing": lacks} for level, lacks in cpu["missing"].items()]
    settings = [
        {"name": row.name, "value": config.get(row.name), "meaning": row.meaning}
        for row in config.SETTINGS
    ]
    return {
        "heddle": version("heddle"),
        "cpu": {"cores": cpu["cores"], "usable": len(os.sched_getaffinity(0)), "levels": levels},
        "cuda": cuda_info(),
        "targets": [{"target": name, "missing": lacks} for name, lacks in compiling().items()],
        "settings": settings,
    }


def compiling() -> dict[str, list[str]]:
    """What is missing here to compile for each kind of target, as packages to install."""
    lacks = [name for name in COMPILER if not installed(name)]
    assembler = installed(ASSEMBLER) or shutil.which("ptxas")
    return {"cpu": lacks, "cuda": lacks if assembler else [*lacks, f"{ASSEMBLER} or ptxas"]}


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
    for row in artifact.requirements:
        judge = cpu_code if row["target"] == "cpu" else cuda_code
        arch, problem = judge(row["any_of"], report)
        rows.append({**row, "runs": arch is not None, "code": arch, "problem": problem})
    return {"name": artifact.name, "path": str(path), "targets": rows}


def cpu_code(archs: list[str], report: dict[str, Any]) -> tuple[str | None, str]:
    """The best of `archs` that this CPU runs; levels are listed best first."""
    lacks = {row["level"]: row["missing"] for row in report["cpu"]["levels"]}
    for level, missing in lacks.items():
        if level in archs and not missing:
            return level, ""
    least = min(archs, key=lambda arch: len(lacks.get(arch, [arch])))
    return None, f"{least} needs {', '.join(lacks.get(least, [least]))}"


def cuda_code(archs: list[str], report: dict[str, Any]) -> tuple[str | None, str]:
    """What the first GPU of the machine runs of `archs`."""
    cuda = report["cuda"]
    if cuda["problem"]:
        return None, cuda["problem"]
    if not cuda["devices"]:
        return None, "there is a driver, but no GPU"
    capability = cuda["devices"][0]["capability"]
    for arch in sorted(archs, key=sm_number, reverse=True):
        if runs_on(arch, capability):
            return arch, ""
    return None, f"the GPU has compute capability {capability}, the code needs {archs}"


def sm_number(arch: str) -> int:
    """`"sm_90a"` as 90."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def runs_on(arch: str, capability: str) -> bool:
    """Whether a GPU runs a cubin (CUDA C++ Programming Guide, application compatibility).

    Code for an `a` architecture runs on exactly that one, other code on the same major
    version from its minor on.
    """
    major, minor = map(int, capability.split("."))
    if arch.endswith("a"):
        return sm_number(arch) == 10 * major + minor
    return sm_number(arch) // 10 == major and sm_number(arch) % 10 <= minor


def show(report: dict[str, Any]) -> None:
    """The report for a person."""
    from heddle.pipelines.cli.console import bytes_text, table

    cpu, cuda = report["cpu"], report["cuda"]
    rows = [(row["level"], lack_text(row["missing"])) for row in cpu["levels"]]
    table(f"CPU: {cpu['cores']} cores, {cpu['usable']} usable", ("level", "missing"), rows)
    click.secho("CUDA: ", bold=True, nl=False)
    click.echo(cuda["problem"] or f"driver for CUDA {cuda['driver']}")
    for gpu in cuda["devices"]:
        memory = bytes_text(gpu["memory_bytes"])
        click.echo(f"  {gpu['index']}  {gpu['name']}, capability {gpu['capability']}, {memory}")
    click.echo()
    rows = [(row["target"], lack_text(row["missing"])) for row in report["targets"]]
    table("Compiling for", ("target", "missing"), rows)
    rows = [(row["name"], row["value"], row["meaning"]) for row in report["settings"]]
    table("Settings", ("variable", "value", "meaning"), rows)
    if "artifact" in report:
        rows = [
            (row["target"], " or ".join(row["any_of"]), row["code"] or "no: " + row["problem"])
            for row in report["artifact"]["targets"]
        ]
        table(f"{report['artifact']['path']}", ("target", "needs", "runs here"), rows)


def lack_text(missing: list[str]) -> str:
    """What is missing, or that nothing is."""
    return ", ".join(missing) or "nothing"
