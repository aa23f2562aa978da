"""What is benched, from the options of a command: every combination of names, sizes and dtypes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.bench.rows import shape_text
from heddle.pipelines.cli.console import bytes_text
from heddle.pipelines.cli.options import number_of, usage_errors
from heddle.runtime.errors import GraphError, InputError

if TYPE_CHECKING:
    from heddle.graph import DType
    from heddle.pipelines.bench.case import Case
    from heddle.pipelines.bench.workload import Workload


@usage_errors()
def make_cases(
    names: tuple[str, ...],
    sizes: tuple[str, ...],
    dtypes: str | None,
    cache: str,
    baselines: tuple[str, ...],
    threads: int | None,
    **others: Any,
) -> list[Case]:
    """Every combination that was asked for, after a check of all names."""
    from heddle.pipelines.bench import workloads
    from heddle.pipelines.bench.baselines import check
    from heddle.pipelines.bench.case import Case

    for baseline in baselines:
        check(baseline)
    given, wanted = read_sizes(sizes), tuple(dict.fromkeys(dtypes.split(","))) if dtypes else ()
    caches = ("cold", "warm") if cache == "both" else (cache,)
    cases = []
    for workload, own, kinds in chosen(names, given, wanted):
        for name in kinds or (None,):
            dtype = workloads.dtype_of(workload, name)
            for size in workloads.grid(workload, own):
                for each in caches:
                    case = Case(
                        name=workload.name,
                        sizes=size,
                        dtype=dtype.name,
                        cache=each,
                        baselines=tuple(dict.fromkeys(baselines)),
                        threads=threads or len(os.sched_getaffinity(0)),
                        **others,
                    )
                    check_sizes(case, workload, dtype)
                    cases.append(case)
    return cases


def chosen(
    names: tuple[str, ...], given: dict[str, tuple[int, ...]], dtypes: tuple[str, ...]
) -> Iterator[tuple[Workload, dict[str, tuple[int, ...]], tuple[str, ...]]]:
    """The workloads called `names`, each with what it takes of sizes and dtypes.

    Where `all` is among them each takes what it knows, and one that takes none of the dtypes is
    left out.

    Raises:
        InputError: There is no such workload, or none takes a size or a dtype.
    """
    from heddle.pipelines.bench import workloads

    if "all" not in names:
        yield from ((workloads.find(name), given, dtypes) for name in dict.fromkeys(names))
        return
    every = workloads.WORKLOADS.values()
    known = {
        "--set": (given, {size for workload in every for size in workload.sizes}),
        "--dtype": (dtypes, {name for workload in every for name in workload.dtypes()}),
    }
    for option, (asked, there) in known.items():
        for name in asked:
            if name not in there:
                raise InputError(
                    f"all: {option}: wanted one of {', '.join(sorted(there))}; got {name!r}"
                )
    for workload in every:
        own = {name: sizes for name, sizes in given.items() if name in workload.sizes}
        kinds = tuple(name for name in dtypes if name in workload.dtypes())
        if kinds or not dtypes:
            yield workload, own, kinds


def check_sizes(case: Case, workload: Workload, dtype: DType) -> None:
    """Raises InputError where the case's op, or this machine, does not take its sizes."""
    from heddle.pipelines.bench import data, machine

    place = f"{workload.name}: {shape_text(case.sizes)}"
    try:
        result = workload.result(case.sizes, dtype)
    except GraphError as error:
        raise InputError(f"{place}: {error}") from None
    held = data.total_bytes([*workload.types(case.sizes, dtype), result])
    # What is drawn, and on a CPU its copies: two at least where calls rotate.
    copies = 1 if case.target != "cpu" else 2 if case.cache == "warm" else 3
    needed, there = copies * held, machine.memory()
    if needed > there:
        raise InputError(
            f"{place}: wanted at most {bytes_text(there)}, this machine's memory, got "
            f"{bytes_text(needed)}: operands and a result, {copies} of each"
        )


def read_sizes(items: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """`m=1,64` as sizes by name."""
    found = {}
    for item in items:
        name, _, values = item.partition("=")
        numbers = [number_of(value) for value in values.split(",")]
        if None in numbers:
            raise click.UsageError(f"--set: wanted NAME=SIZE[,SIZE...], got {item!r}")
        if name in found:
            raise click.UsageError(
                f"--set {name}: wanted its sizes once, as {name}=SIZE,SIZE, got it twice"
            )
        found[name] = tuple(dict.fromkeys(number for number in numbers if number is not None))
    return found
