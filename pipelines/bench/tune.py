"""The search of a kernel's configuration space, and the table that it ends in.

Successive halving (Jamieson and Talwalkar, 2016): all candidates are timed for a short while, in
turns with the default; the better half goes on, and the last few are timed longer and verified.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

from heddle.graph.targets import native_cpu, native_level
from heddle.kernels import tuning
from heddle.kernels.registry import MACHINES, Kernel, Machine, every, find
from heddle.kernels.spec import Spec
from heddle.kernels.tuning import Row, Table
from heddle.pipelines.bench import machine, runner, workloads
from heddle.pipelines.bench.case import Case
from heddle.pipelines.bench.reading import specs_of, workloads_of
from heddle.pipelines.bench.statistics import CONFIDENCE, holm, mann_whitney
from heddle.runtime import whole_file
from heddle.runtime._core import cuda_info
from heddle.runtime.errors import DeviceError, InputError

FINALISTS = 3
GAIN = 0.02
"""The share of the default's time that a candidate has to save, beyond noise, to take its place."""

PROCESSES = 5
"""How many children time the last few, each in another order: equal code differs by percents from
one process to the next, with where its memory lies. Where it differs by 2% (standard deviation),
one of three equal candidates saves `GAIN` in all of so many once in 400 searches."""

Values = dict[str, int]
Ask = Callable[[dict[str, Any], float], Any]


@dataclass(frozen=True)
class Problem:
    """What is tuned: a kernel for a spec on a machine, by a case of the bench that runs it."""

    case: Case
    kernel: Kernel
    spec: Spec
    machine: Machine

    @property
    def default(self) -> Values:
        """The values that the kernel's author chose."""
        assert self.kernel.space
        return {parameter.name: parameter.default for parameter in self.kernel.space.parameters}

    @property
    def others(self) -> list[Values]:
        """Every other point of the space."""
        assert self.kernel.space
        parameters = self.kernel.space.parameters
        names = [parameter.name for parameter in parameters]
        points = itertools.product(*(parameter.values for parameter in parameters))
        found = [dict(zip(names, point, strict=True)) for point in points]
        return [values for values in found if values != self.default]


@dataclass(frozen=True)
class Result:
    """A candidate's times beside the default's, in the same process: both in microseconds, by turn.

    `status` is `"ok"`, or why there are no times: `"wrong"`, `"error"`, `"crashed"`, `"hung"`.
    `ratios` has the medians' ratio in each process.
    """

    values: Values
    status: str
    turns: tuple[float, ...] = ()
    default: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """The candidate's median over the default's: the median of those of the processes."""
        return median(self.ratios)

    def joined(self, other: Result) -> Result:
        """This and what another process found, where both are ok; else the one that is not."""
        if self.status != "ok" or other.status != "ok":
            return self if self.status != "ok" else other
        return Result(
            self.values,
            "ok",
            self.turns + other.turns,
            self.default + other.default,
            self.ratios + other.ratios,
        )


def problems(case: Case) -> list[Problem]:
    """The kernels with parameters among those that run `case`.

    Raises:
        InputError: There is none, and the message lists those whose kernels have some; or a size
            is 0, of which there is nothing to time.
    """
    empty = next((name for name, size in case.sizes.items() if size == 0), None)
    if empty is not None:
        raise InputError(f"{case.name}: --set: wanted sizes of 1 or more, got {empty}=0")
    workload = workloads.find(case.name)
    here = machine_of(case.target)
    dtype = workloads.dtype_of(workload, case.dtype)
    found = []
    for spec in specs_of(workload, case.sizes, dtype, case.target):
        kernel = find(spec.op, case.target)
        if kernel is not None and kernel.space is not None:
            found.append(Problem(case, kernel, spec, here))
    if not found:
        names = ", ".join(workloads_of({k.op for k in tunable(case.target)}, case.target))
        raise InputError(f"{case.name}: its kernels have no parameters; those of {names} have")
    return found


def tunable(target: str) -> list[Kernel]:
    """The kernels of a target that have parameters."""
    return [kernel for kernel in every(target) if kernel.space is not None]


def machine_of(target: str) -> Machine:
    """What this machine runs of `target`: the best level of its CPU, or its GPU's architecture."""
    if target == "cpu":
        return MACHINES[native_level()]
    devices = cuda_info()["devices"]
    nine = bool(devices) and devices[0]["capability"].startswith("9.")
    return MACHINES["sm_90a" if nine else "sm_80"]


def search(problem: Problem, max_time: float, ask: Ask = runner.ask) -> Iterator[list[Result]]:
    """The results of each round, the best first; those of the last one are verified.

    Args:
        problem: What to tune.
        max_time: Seconds of measuring for all rounds together.
        ask: Sends a request to a child.
    """
    survivors, rounds = problem.others, 1
    while len(survivors) >> (rounds - 1) > FINALISTS:
        rounds += 1
    for number in range(rounds):
        last = number == rounds - 1
        times = PROCESSES if last else 1
        seconds = max_time / rounds / times
        runs = [measure(problem, survivors, seconds, last, ask, turn) for turn in range(times)]
        results = [reduce(Result.joined, found) for found in zip(*runs, strict=True)]
        timed = sorted((r for r in results if r.status == "ok"), key=lambda r: r.ratio)
        yield [*timed, *(result for result in results if result.status != "ok")]
        survivors = [result.values for result in timed[: max(FINALISTS, len(timed) // 2)]]


def measure(
    problem: Problem,
    candidates: Sequence[Values],
    seconds: float,
    verify: bool,
    ask: Ask,
    turn: int = 0,
) -> list[Result]:
    """The candidates' times, taken in turns in one child, which begins with the one at `turn`.

    Where the child crashes or hangs, each half is measured in a child of its own, until it is
    known whose fault it was.
    """
    if not candidates:
        return []
    every = [{problem.spec.op: values} for values in (problem.default, *candidates)]
    turn %= len(every)
    every = every[turn:] + every[:turn]
    case = {**problem.case.to_json(), "max_time": seconds, "verify": verify}
    request = {"case": case, "candidates": every, "threads": problem.case.threads}
    try:
        rows = ask(request, runner.SETUP_S + 2 * seconds)
    except runner.ChildError as error:
        if len(candidates) == 1:
            return [Result(candidates[0], error.status)]
        middle = len(candidates) // 2
        halves = candidates[:middle], candidates[middle:]
        each = [measure(problem, half, seconds / 2, verify, ask, turn) for half in halves]
        return [result for results in each for result in results]
    default, *others = rows[len(rows) - turn :] + rows[: len(rows) - turn]
    if default["status"] != "ok":
        raise InputError(f"{problem.case.name}: the default: {default['message']}")
    return [
        _result(values, row, default["turns_us"])
        for values, row in zip(candidates, others, strict=True)
    ]


def _result(values: Values, row: dict[str, Any], default: Sequence[float]) -> Result:
    if row["status"] != "ok":
        return Result(values, row["status"])
    ratio = median(row["turns_us"]) / median(default)
    return Result(values, "ok", tuple(row["turns_us"]), tuple(default), (ratio,))


def winner(problem: Problem, finalists: Sequence[Result]) -> Values:
    """The fastest candidate that beats the default by `GAIN` and beyond noise, or the default.

    Beyond noise: by as much in every process, and by Mann and Whitney's test on the turns at 5%,
    adjusted after Holm.
    """
    timed = [result for result in finalists if result.status == "ok"]
    ps = holm([mann_whitney(result.turns, result.default) for result in timed])
    better = [
        result
        for result, p in zip(timed, ps, strict=True)
        if p < 1 - CONFIDENCE and max(result.ratios) < 1 - GAIN
    ]
    return min(better, key=lambda result: result.ratio).values if better else problem.default


def check_folder(problem: Problem, folder: Path) -> None:
    """Makes the folder, and raises what `keep` would raise, before anything is measured."""
    assert problem.kernel.space
    for parameter in problem.kernel.space.parameters:
        place = tuning.place_of(parameter, problem.machine)
        table_at(folder / f"{place}.json", problem.case.target)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: cannot be written: give another folder with --output")


def keep(problem: Problem, values: Values, folder: Path) -> list[Path]:
    """Writes `values` to the tables in `folder`, each in one step; returns their files.

    Raises:
        InputError: A table there was tuned on another CPU.
        OSError: The folder cannot be written.
    """
    space = problem.kernel.space
    assert space is not None
    by_place: dict[str, Values] = {}
    for parameter in space.parameters:
        place = tuning.place_of(parameter, problem.machine)
        by_place.setdefault(place, {})[parameter.name] = values[parameter.name]
    paths = []
    for place, chosen in by_place.items():
        row = Row(
            problem.spec.op,
            tuning.dtype_of(problem.spec),
            space.shape_class(problem.spec),
            chosen,
            datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            tuning.fingerprint(problem.kernel),
        )
        path = folder / f"{place}.json"
        _write(path, table_at(path, problem.case.target).with_row(row))
        paths.append(path)
    return paths


def table_at(path: Path, target: str) -> Table:
    """The table in `path`, or an empty one for this machine.

    Raises:
        InputError: The table was tuned on another CPU, whose rows would no longer be alike.
    """
    cpu, model = processor(target)
    if not path.exists():
        return Table(path.stem, cpu, model)
    found = read_table(path)
    if found.cpu != cpu:
        raise InputError(
            f"{path}: tuned on {found.cpu} ({found.model}), this is {cpu} ({model}): "
            "give another folder with --output, and use it with HEDDLE_TUNING"
        )
    return found


def read_table(path: Path) -> Table:
    """The table in a file; raises InputError where it holds something else."""
    try:
        return Table.read(path)
    except tuning.TableError as error:
        raise InputError(str(error)) from None


def processor(target: str) -> tuple[str, str]:
    """What a table is tuned on here: LLVM's name and the maker's; of a GPU, its name twice.

    Raises:
        DeviceError: There is no GPU.
    """
    if target == "cpu":
        return native_cpu(), machine.cpu_fields().get("model name", "unknown")
    info = cuda_info()
    if not info["devices"]:
        raise DeviceError(f"cuda: {info['problem'] or 'there is no GPU'}")
    name = info["devices"][0]["name"]
    return name, name


def _write(path: Path, table: Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.save(path, table.to_json().encode())
