"""What is benched, from the options of a command: every combination of names, sizes and dtypes."""

from __future__ import annotations

import os
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
    chosen = workloads.WORKLOADS if names == ("all",) else dict.fromkeys(names)
    given = read_sizes(sizes)
    caches = ("cold", "warm") if cache == "both" else (cache,)
    cases = []
    for workload in map(workloads.find, chosen):
        for name in dict.fromkeys(dtypes.split(",")) if dtypes else (None,):
            dtype = workloads.dtype_of(workload, name)
            for size in workloads.grid(workload, given):
                check_sizes(workload, size, dtype)
                cases += [
                    Case(
                        name=workload.name,
                        sizes=size,
                        dtype=dtype.name,
                        cache=each,
                        baselines=tuple(dict.fromkeys(baselines)),
                        threads=threads or len(os.sched_getaffinity(0)),
                        **others,
                    )
                    for each in caches
                ]
    return cases


def check_sizes(workload: Workload, sizes: dict[str, int], dtype: DType) -> None:
    """Raises InputError where the workload's op, or this machine, does not take these sizes."""
    from heddle.pipelines.bench import data, machine

    try:
        result = workload.result(sizes, dtype)
    except GraphError as error:
        raise InputError(f"{workload.name}: {shape_text(sizes)}: {error}") from None
    needed, there = data.total_bytes([*workload.types(sizes, dtype), result]), machine.memory()
    if needed > there:
        raise InputError(
            f"{workload.name}: {shape_text(sizes)}: wanted operands and a result of at most "
            f"{bytes_text(there)}, this machine's memory, got {bytes_text(needed)}"
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
