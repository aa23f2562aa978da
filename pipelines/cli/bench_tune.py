"""`heddle bench tune`: which values of its parameters make a kernel fastest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.bench.rows import shape_text
from heddle.pipelines.cli.bench_cases import make_cases
from heddle.pipelines.cli.console import listed, progress, table
from heddle.pipelines.cli.options import THREADS, Finite, Location, usage_errors
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.pipelines.bench.case import Case
    from heddle.pipelines.bench.tune import Problem, Result


@click.command(
    "tune",
    short_help="Search a kernel's parameters, write its tuning table.",
    epilog=listed(
        "Examples:",
        "heddle bench tune transpose --set m=1024,4096 --set n=4096",
        "heddle bench tune transpose --output my-tables",
        "heddle bench tune --check",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--set", "sizes", multiple=True, help="NAME=SIZE[,SIZE...]; may be repeated.")
@click.option("--dtype", "dtypes", help="One, or several with commas; default: float32.")
@click.option("--target", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--cache", default="cold", show_default=True, type=click.Choice(["cold", "warm"]))
@click.option("--threads", type=THREADS, help="CPU threads; default: one for each core.")
@click.option(
    "--max-time",
    default=60.0,
    show_default=True,
    type=Finite(0, min_open=True),
    help="Seconds of measuring for a shape.",
)
@click.option(
    "-o",
    "--output",
    type=Location(file_okay=False),
    help="The folder of the tables; by default those that are shipped with the kernels.",
)
@click.option("--check", is_flag=True, help="Measure nothing; exit code 1 when a row is stale.")
@click.pass_context
def tune_command(
    context: click.Context,
    /,
    names: tuple[str, ...],
    output: Path | None,
    check: bool,
    **options: Any,
) -> None:
    """Time every value of the parameters of the kernels NAME, and keep the fastest.

    The default stays where nothing is faster beyond noise. With --check: whether the rows of the
    tables were measured with the kernels as they are now; without NAME, all of them.
    """
    from heddle.kernels.tuning import CHECKED_IN
    from heddle.pipelines.bench import tune

    folder = output or CHECKED_IN
    if check:
        sentences = stale(names, folder, options)
        for sentence in sentences:
            click.secho(sentence, fg="red")
        if sentences:
            context.exit(1)
        click.echo("No row is stale.")
        return
    if not names:
        raise click.UsageError("wanted the NAME of a kernel, or --check")
    cases = make_cases(names, baselines=(), verify=False, inputs="normal", **options)
    found = problems(cases)
    for problem in found:
        tune.check_folder(problem, folder)
    for problem in found:
        click.echo(tune_one(problem, folder))


@usage_errors()
def problems(cases: list[Case]) -> list[Problem]:
    """What is tuned for `cases`."""
    from heddle.pipelines.bench import tune

    return [problem for case in cases for problem in tune.problems(case)]


def stale(names: tuple[str, ...], folder: Path, options: dict[str, Any]) -> list[str]:
    """What is wrong with the tables in `folder`, for the kernels that run `names`, or for all."""
    from heddle.kernels import tuning
    from heddle.pipelines.bench import tune

    if not folder.is_dir():
        raise InputError(f"--output: wanted a folder of tuning tables, got {str(folder)!r}")
    tables = [tune.read_table(path) for path in sorted(folder.glob("*.json"))]
    if names:
        cases = make_cases(names, baselines=(), **options)
        kernels = dict.fromkeys(problem.kernel for problem in problems(cases))
        return tuning.stale(list(kernels), tables)
    for option, given in (("--set", options["sizes"]), ("--dtype", options["dtypes"])):
        if given:
            raise click.UsageError(f"{option}: wanted the NAME of a kernel with it")
    every = [*tune.tunable("cpu"), *tune.tunable("cuda")]
    return [*tuning.stale(every, tables), *tuning.orphaned(every, tables)]


def tune_one(problem: Problem, folder: Path) -> str:
    """Tunes one kernel for one spec, shows the last round, keeps the winner, and says so."""
    from statistics import median

    from heddle.kernels.tuning import dtype_of
    from heddle.pipelines.bench import tune

    case = problem.case
    title = f"{problem.spec.op} {dtype_of(problem.spec)}, {case.name} {shape_text(case.sizes)}"
    rounds: list[list[Result]] = []
    with progress(title) as bar:
        for results in tune.search(problem, case.max_time):
            rounds.append(results)
            bar(f"{title}: {len(results)} candidates", len(rounds), len(rounds))
    cells: dict[str, tuple[str, ...]] = {}
    for number in range(len(rounds), 0, -1):
        note = "verified" if number == len(rounds) else f"out in round {number}"
        for result in rounds[number - 1]:
            cells.setdefault(shape_text(result.values), result_cells(result, note))
    turns = [turn for result in rounds[-1] for turn in result.default]
    time = f"{median(turns):.4g}" if turns else ""
    default = shape_text(problem.default), time, "1.000", "default"
    table(title, ("values", "time [us]>", "of default>", ""), [default, *cells.values()])
    chosen = tune.winner(problem, rounds[-1])
    paths = tune.keep(problem, chosen, folder)
    kept = "the default stays" if chosen == problem.default else shape_text(chosen)
    return f"{kept}; written to {', '.join(map(str, paths))}\n"


def result_cells(result: Result, note: str) -> tuple[str, ...]:
    """A candidate's line; `note` is for those that have times."""
    from statistics import median

    if result.status != "ok":
        return shape_text(result.values), "", "", result.status
    return (
        shape_text(result.values),
        f"{median(result.turns):.4g}",
        f"{result.ratio:.3f}",
        note,
    )
