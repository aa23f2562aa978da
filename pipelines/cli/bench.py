"""`heddle bench`: kernels timed out of compiled artifacts, beside their peers and the machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.bench_cases import make_cases
from heddle.pipelines.cli.bench_reports import compare_command, env_command, plot_command
from heddle.pipelines.cli.bench_table import Report
from heddle.pipelines.cli.bench_tune import tune_command
from heddle.pipelines.cli.console import listed, print_json, progress, table
from heddle.pipelines.cli.options import THREADS, Finite, Location

if TYPE_CHECKING:
    from heddle.pipelines.bench.limits import Limits

BASELINES_HELP = "numpy, torch, onednn or cublas, timed on the same buffers; may be repeated."


@click.group(
    short_help="Time kernels, beside their peers and this machine's limits.",
    epilog=listed(
        "Examples:",
        "heddle bench list",
        "heddle bench run softmax layer_norm",
        "heddle bench env",
    ),
)
def bench() -> None:
    """Time the kernels that artifacts ship, each in a process of its own.

    `heddle bench COMMAND --help` says more; docs/bench.md explains every column.
    """
    # As Ctrl-C: children end with it, and what is done stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@bench.command("list", short_help="What can be timed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(as_json: bool) -> None:
    """List the kernels with their parameters, default sizes and dtypes."""
    from heddle.pipelines.bench.baselines import BASELINES
    from heddle.pipelines.bench.workloads import WORKLOADS

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "op": workload.op,
            "operands": [operand.dims for operand in workload.operands],
            "sizes": {size: list(values) for size, values in workload.sizes.items()},
            "dtypes": workload.dtypes(),
        }
        for name, workload in WORKLOADS.items()
    ]
    if as_json:
        print_json({"kernels": rows, "targets": ["cpu", "cuda"], "baselines": list(BASELINES)})
        return
    cells = []
    for row in rows:
        operands = ", ".join(f"[{dims}]" for dims in row["operands"])
        sizes = " ".join(f"{n}={','.join(map(str, v))}" for n, v in row["sizes"].items())
        cells.append((row["name"], operands, sizes, dtypes_text(row["dtypes"])))
    table("Kernels", ("name", "operands", "--set", "--dtype"), cells)
    click.echo(f"Targets: cpu, cuda. Baselines: {', '.join(BASELINES)}.")


def dtypes_text(names: list[str]) -> str:
    """The dtypes in a few words: integers and floats have many."""
    integers = [name for name in names if name.lstrip("u").startswith("int")]
    rest = [name for name in names if name not in integers]
    if len(integers) < 8:
        return ", ".join(names)
    return ", ".join([*rest, "int8 to int64, uint8 to uint64"])


@bench.command(
    "run",
    short_help="Time kernels.",
    epilog=listed(
        "Examples:",
        "heddle bench run softmax --set m=64,4096 --baseline numpy --verify",
        "heddle bench run matmul --dtype float32,bfloat16 --cache both --json rows.jsonl",
        "heddle bench run all --max-time 1",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--set", "sizes", multiple=True, help="NAME=SIZE[,SIZE...]; may be repeated.")
@click.option("--dtype", "dtypes", help="One, or several with commas; default: float32.")
@click.option("--target", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option(
    "--cache", default="cold", show_default=True, type=click.Choice(["cold", "warm", "both"])
)
@click.option("--baseline", "baselines", multiple=True, help=BASELINES_HELP)
@click.option("--verify", is_flag=True, help="Check the results against the op's reference.")
@click.option("--threads", type=THREADS, help="CPU threads; default: one for each core.")
@click.option(
    "--inputs",
    default="normal",
    show_default=True,
    type=click.Choice(["normal", "zeros"]),
    help="How inputs are drawn; zeros flatter a kernel: they save power.",
)
@click.option(
    "--max-time",
    default=5.0,
    show_default=True,
    type=Finite(0, min_open=True),
    help="Seconds for a case; it ends earlier at an interval of half a percent.",
)
@click.option(
    "--json",
    "file",
    type=Location(dir_okay=False),
    help="Append the rows to this file, a line of JSON each.",
)
@click.pass_context
def run_command(context: click.Context, /, file: Path | None, **options: Any) -> None:
    """Time the kernels NAME, each case in a child process; `all` means every kernel.

    A row for Heddle and one for each baseline, timed in turns. Exit code 1 when a result is wrong,
    or a case ends with an error, a crash or a hang.
    """
    from heddle.pipelines.bench import runner
    from heddle.pipelines.bench.rows import Writer, shape_text

    cases = make_cases(**options)
    limits = limits_of(options["target"], cases[0].threads)
    writer = Writer(file) if file else None
    with Report(limits, writer) as report, progress("") as bar:
        for number, case in enumerate(cases):
            bar(f"{case.name} {shape_text(case.sizes)}", number, len(cases))
            report.add(runner.run(case))
    if report.failures:
        context.exit(1)


def limits_of(target: str, threads: int) -> Limits | None:
    """What rows are judged by; measured, where this is the first time."""
    from heddle.pipelines.bench import gpu_limits, limits
    from heddle.pipelines.bench.runner import ChildError

    device = gpu_limits.gpu()
    if target != "cpu" and device is None:
        return None
    key = threads if target == "cpu" or device is None else device["name"]
    before = limits.known().get(key)
    if not limits.settled(before):
        reason = "first; they are kept" if before is None else "again: others were busy meanwhile"
        click.echo(f"measuring this machine's limits {reason}", err=True)
    try:
        return limits.of(threads) if target == "cpu" else gpu_limits.of()
    except ChildError as error:
        click.secho(f"no limits: {error}", fg="yellow", err=True)
        return None


for command in (tune_command, env_command, compare_command, plot_command):
    bench.add_command(command)
