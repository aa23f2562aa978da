"""`heddle bench env`, `compare` and `plot`: what is made of limits and rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.console import listed, print_json, progress, table
from heddle.pipelines.cli.options import THREADS, Finite, Location
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.pipelines.bench.compare import Verdict
    from heddle.pipelines.bench.limits import Limits
    from heddle.pipelines.bench.rows import Row

STYLES = {"FASTER": "green", "SLOWER": "red", "BROKEN": "red", "GONE": "red", "UNSURE": "yellow"}


@click.command("env", short_help="This machine's limits.")
@click.option("--threads", type=THREADS, help="Default: one, and one for each core.")
@click.option("--measure", is_flag=True, help="Measure again; the better of both figures count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def env_command(threads: int | None, measure: bool, as_json: bool) -> None:
    """Show what this machine can do: bandwidth, arithmetic, the cost of a call.

    Limits are measured once for each number of threads and a GPU, and kept in the cache folder.
    """
    from heddle.pipelines.bench import datasheet, gpu_limits, limits, machine

    counts = [threads] if threads else sorted({1, len(os.sched_getaffinity(0))})
    found = []
    with progress("limits") as bar:
        for number, count in enumerate(counts):
            bar(f"limits of {count} threads", number, len(counts))
            found.append(limits.of(count, measure))
        gpu = gpu_limits.of(measure)
    sheet = datasheet.of(machine.cpu_fields())
    gpu_sheet = datasheet.of_gpu(gpu["gpu"]) if gpu else None
    if as_json:
        file = limits.path()
        report = {
            "limits": found,
            "datasheet": vars(sheet) if sheet else None,
            "gpu": gpu,
            "gpu_datasheet": vars(gpu_sheet) if gpu_sheet else None,
            "file": str(file) if file else None,
        }
        print_json({"machine": machine.describe(), **report})
        return
    here = machine.describe()
    sizes = " ".join(f"{level.name} {level.size // 1024} KiB" for level in machine.caches())
    click.echo(f"{here['cpu']}, {here['cores']} cores; {sizes}\n")
    titles = tuple(f"x{row['threads']}>" for row in found)
    table("Threads", ("limit", *titles, "datasheet"), limit_rows(found, sheet))
    if any(row["others_share"] > machine.BUSY for row in found):
        click.echo("Measured while other processes were busy: the limits may be higher.")
    if gpu:
        table(gpu["gpu"], ("limit", "measured>", "datasheet"), gpu_rows(gpu, gpu_sheet))


def gpu_rows(found: Limits, sheet: Any) -> list[tuple[str, ...]]:
    """The lines of the table of a GPU's limits."""
    rows = []
    for kind, title in (("read_gb_s", "read"), ("copy_gb_s", "copy")):
        for level, rate in found[kind].items():
            note = f"{sheet.memory_gb_s:g}" if sheet and level == "memory" else ""
            rows.append((f"{title} {level} [GB/s]", f"{rate:.0f}", note))
    for name, rate in found["tflop_s"].items():
        stated = sheet.tflop_s.get(name, sheet.tflop_s.get(name.split()[1])) if sheet else None
        rows.append((f"{name} [TFLOP/s]", f"{rate:.1f}", f"{stated:g}" if stated else ""))
    call = ("call in a graph [us]", f"{found['call_us']:.3f}", "")
    return [*rows, call, ("measured", found["date"], "")]


def limit_rows(found: list[Limits], sheet: Any) -> list[tuple[str, ...]]:
    """The lines of the table of limits."""
    rows = []
    for kind, title in (("read_gb_s", "read"), ("copy_gb_s", "copy")):
        for level in found[0][kind]:
            stated = f"{sheet.memory_gb_s:g} a socket ({sheet.name})" if sheet else ""
            cells = [f"{row[kind][level]:.1f}" for row in found]
            note = stated if (level, title) == ("memory", "read") else ""
            rows.append((f"{title} {level} [GB/s]", *cells, note))
    for name in found[0]["tflop_s"]:
        operations = sheet.operations.get(name) if sheet else None
        note = f"{operations} a cycle and core" if operations else ""
        rows.append((f"{name} [TFLOP/s]", *(f"{row['tflop_s'][name]:.3f}" for row in found), note))
    calls = [f"{row['call_us']:.3f}" for row in found]
    return [*rows, ("call [us]", *calls, ""), ("measured", *(row["date"] for row in found), "")]


@click.command(
    "compare",
    short_help="Two runs, case by case.",
    epilog=listed("Example:", "heddle bench compare before.jsonl after.jsonl --tolerance 5"),
)
@click.argument("a", type=Location())
@click.argument("b", type=Location())
@click.option(
    "--tolerance",
    default=3.0,
    show_default=True,
    type=Finite(0),
    help="Percent of difference that does not matter.",
)
@click.option("--impl", default="heddle", show_default=True, help="Whose rows to compare.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def compare_command(
    context: click.Context, a: Path, b: Path, tolerance: float, impl: str, as_json: bool
) -> None:
    """Compare the rows in file B with those in file A: FASTER, SLOWER, SAME or UNSURE.

    Exit code 1 when a case is slower, broken, or gone.
    """
    from heddle.pipelines.bench.compare import compare, machines_differ, overall
    from heddle.runtime.errors import InputError

    before, after = read_rows(a), read_rows(b)
    verdicts = compare(before, after, tolerance / 100, impl)
    if not verdicts:
        names = sorted({row["impl"] for row in before + after})
        raise InputError(f"--impl: wanted one of {', '.join(names)}; got {impl!r}")
    warning = machines_differ(before, after)
    ratio = overall(verdicts)
    if as_json:
        rows = [verdict_json(verdict) for verdict in verdicts]
        print_json({"cases": rows, "overall": ratio, "warning": warning})
    else:
        show_verdicts(verdicts)
        if ratio is None:
            click.echo("No case has a time in both A and B.")
        else:
            click.echo(f"B takes {ratio:.3f} times as long as A (geometric mean).")
        if warning:
            click.secho(warning, fg="yellow", err=True)
    if any(verdict.bad for verdict in verdicts):
        context.exit(1)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; says on stderr where lines of it were cut off."""
    from heddle.pipelines.bench.rows import read, wrong

    rows, broken = read(path)
    for row in rows:
        if found := wrong(row):
            raise InputError(f"{path}: wanted rows of the bench, got {found}")
    if broken:
        click.secho(f"{path}: {broken} unfinished lines were left out", fg="yellow", err=True)
    return rows


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data."""
    names = ("name", "impl", "dtype", "shape", "device", "cache", "threads")
    middle, low, high = verdict.change
    return {
        **{name: verdict.row[name] for name in names},
        "verdict": verdict.word,
        "a_us": verdict.a_us,
        "b_us": verdict.b_us,
        "change": middle,
        "change_interval": [low, high],
        "p": verdict.p,
    }


def show_verdicts(verdicts: list[Verdict]) -> None:
    """The verdicts for a person."""
    from rich.console import Console
    from rich.text import Text

    from heddle.pipelines.bench.plot import label

    console = Console(highlight=False)
    width = max(len(label(verdict.row)) for verdict in verdicts)
    for verdict in verdicts:
        text = f"{verdict.word:7} {label(verdict.row):{width}}"
        if verdict.a_us:
            middle, low, high = verdict.change
            text += f" {verdict.a_us:10.4g} us {verdict.b_us:10.4g} us   x{middle:.3f}"
            text += f" ({low:.3f} to {high:.3f})  p {verdict.p:.2g}"
        elif verdict.word == "UNSURE":
            text += " no figures in A"
        console.print(Text(text, style=STYLES.get(verdict.word, "")), soft_wrap=True)


@click.command(
    "plot",
    short_help="A roofline and a bar chart.",
    epilog=listed("Example:", "heddle bench plot after.jsonl -o pictures"),
)
@click.argument("file", type=Location())
@click.option(
    "-o",
    "--output",
    default=Path("bench"),
    show_default=True,
    type=Location(file_okay=False),
    help="The folder for the files.",
)
def plot_command(file: Path, output: Path) -> None:
    """Draw the rows in FILE: `roofline.svg`, `bars.svg`, and `bench.html` with both."""
    from heddle.pipelines.bench.plot import save

    for path in save(read_rows(file), output):
        click.echo(path)
