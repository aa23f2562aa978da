"""`heddle inspect`: what an artifact holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from heddle.pipelines.cli.console import bytes_text, listed, print_json, table
from heddle.pipelines.cli.inspect_kernel import FORMS, Wanted, afresh, of_artifact
from heddle.pipelines.cli.options import Location


@click.command(
    short_help="Show what an artifact holds.",
    epilog=listed(
        "Examples:",
        "heddle inspect minilm.heddle",
        "heddle inspect minilm.heddle --json | jq .inputs",
        "heddle inspect minilm.heddle --kernel attention --arch x86-64-v4",
        "heddle inspect --kernel softmax --show mlir --set n=384",
    ),
)
@click.argument("artifact", required=False, type=Location())
@click.option("--json", "as_json", is_flag=True, help="Print JSON, complete.")
@click.option("--kernel", help="One kernel of ARTIFACT; without one, of 'heddle bench list'.")
@click.option("--show", type=click.Choice(FORMS), help="How; default: as the machine's code.")
@click.option("--arch", help="The architecture; default: the best.")
@click.option("--set", "sizes", multiple=True, help="Without ARTIFACT: NAME=SIZE; repeatable.")
@click.option("--dtype", help="Without ARTIFACT; default: float32.")
@click.option("--target", type=click.Choice(["cpu", "cuda"]), help="Without ARTIFACT; or cpu.")
def inspect(
    artifact: Path | None,
    as_json: bool,
    kernel: str | None,
    show: str | None,
    arch: str | None,
    sizes: tuple[str, ...],
    dtype: str | None,
    target: str | None,
) -> None:
    """Show the signature, symbols, weights, kernels, buffer plan and origin of ARTIFACT.

    With --kernel the code of one kernel: that of ARTIFACT, or without one a kernel of
    'heddle bench list', or of those that run for it, built afresh.
    """
    if kernel is not None:
        refuse("without --kernel", {"--json": as_json})
        wanted = Wanted(kernel, show, arch)
        if artifact is None:
            click.echo(afresh(wanted, sizes, dtype, target or "cpu"))
            return
        refuse("without ARTIFACT", {"--set": sizes, "--dtype": dtype, "--target": target})
        click.echo(of_artifact(artifact, wanted))
        return
    options = {"--show": show, "--arch": arch, "--set": sizes, "--dtype": dtype}
    refuse("with --kernel", {**options, "--target": target})
    if artifact is None:
        raise click.UsageError("wanted an ARTIFACT, or --kernel NAME")
    from heddle.runtime import Artifact

    everything = Artifact.load(artifact).describe()
    if as_json:
        print_json(everything)
        return
    size = bytes_text(everything["bytes"])
    click.secho(f"{everything['name']}", bold=True, nl=False)
    click.echo(f"  {size}, format {everything['format']}, {everything['path']}\n")
    show_signature(everything)
    show_weights(everything["weights"], everything["constant_bytes"])
    for program in everything["programs"]:
        show_program(program)
    show_origin(everything)


def refuse(where: str, options: dict[str, Any]) -> None:
    """Raises a usage error where one of `options` was given."""
    for name, value in options.items():
        if value:
            raise click.UsageError(f"{name}: is for use {where}")


def tensor_text(row: dict[str, Any]) -> str:
    """A tensor's type: `float32 [batch, 384]`."""
    return f"{row['dtype']} [{', '.join(map(str, row['shape']))}]"


def show_signature(everything: dict[str, Any]) -> None:
    """Inputs, outputs and symbols."""
    rows = [
        (kind, row["name"], tensor_text(row))
        for kind in ("input", "output")
        for row in everything[f"{kind}s"]
    ]
    for row in everything["symbols"]:
        rows.append(("symbol", row["name"], f"{row['minimum']} to {row['maximum']}"))
    table("Signature", ("", "name", "type or range"), rows)


def show_weights(weights: list[dict[str, Any]], constant_bytes: int) -> None:
    """Weights, those of a kind in one row: `*` stands for the number in their names."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in weights:
        key = (re.sub(r"\d+", "*", row["name"]), tensor_text(row), bound(row))
        groups.setdefault(key, []).append(row)
    rows = [
        (
            name if len(alike) > 1 else alike[0]["name"],
            type_text,
            where,
            f"{len(alike)}",
            bytes_text(sum(row["bytes"] for row in alike)),
        )
        for (name, type_text, where), alike in groups.items()
    ]
    total = bytes_text(sum(row["bytes"] for row in weights))
    title = f"Weights: {len(weights)}, {total}; constants {bytes_text(constant_bytes)}"
    table(title, ("name", "type", "bound", "count>", "size>"), rows)


def bound(weight: dict[str, Any]) -> str:
    """Where a weight's elements come from; a settled one is in constants, as kernels read it."""
    for way in ("settled", "embedded"):
        if weight[way]:
            return way
    return "sha256 recorded" if weight["sha256"] else "name only"


def show_program(program: dict[str, Any]) -> None:
    """One target's kernels, and its plan of memory and steps."""
    steps = [step for name in ("init", "main") for step in program[name]["instructions"]]
    archs = list(
        dict.fromkeys(code["arch"] for kernel in program["kernels"] for code in kernel["codes"])
    )
    rows = []
    for kernel in program["kernels"]:
        labels = [step["label"] for step in steps if step.get("kernel") == kernel["name"]]
        codes = [code_text(arch, kernel["codes"]) for arch in archs]
        rows.append((kernel["name"], f"{len(labels)}", labels[0] if labels else "", *codes))
    title = f"{program['target']}: kernels"
    table(title, ("kernel", "steps>", "first of them", *(f"{arch}>" for arch in archs)), rows)
    plan = [
        (
            name,
            f"{len(program[name]['instructions'])}",
            str(program[name]["arena_bytes"]),
        )
        for name in ("init", "main")
    ]
    state = bytes_text(program["state_bytes"])
    title = f"{program['target']}: plan; {state} kept from init on"
    table(title, ("routine", "steps>", "arena bytes"), plan)


def code_text(arch: str, codes: list[dict[str, Any]]) -> str:
    """A kernel's code for one architecture: `6.1 KiB, 32 registers, PTX`."""
    parts = []
    for code in codes:
        if code["arch"] == arch:
            size = bytes_text(code["bytes"])
            parts.append("PTX" if code["format"] == "ptx" else size)
            parts += [f"{code['registers']} registers"] if code["registers"] else []
            parts += [f"{code['spilled_bytes']} B spilled"] if code["spilled_bytes"] else []
    return ", ".join(parts)


def show_origin(everything: dict[str, Any]) -> None:
    """What a machine needs to run the artifact, and where the artifact comes from."""
    rows = [(row["target"], " or ".join(row["any_of"])) for row in everything["requirements"]]
    table("Runs on", ("target", "with"), rows)
    table("Origin", ("key", "value"), list(everything["provenance"].items()))
