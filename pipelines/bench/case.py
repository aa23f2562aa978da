"""One case: a workload with its sizes on a device, timed beside its baselines in this process."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from heddle.contexts.numeric import is_number, is_whole
from heddle.graph import DType, compile
from heddle.pipelines.bench import baselines, data, machine, workloads
from heddle.pipelines.bench.device_time import ModelCall, device_clock
from heddle.pipelines.bench.machine import BUSY, PER_CACHE
from heddle.pipelines.bench.measure import Call, Clock, Timing, host_clock, interleaved
from heddle.pipelines.bench.missing import MissingError
from heddle.pipelines.bench.rows import Row
from heddle.pipelines.bench.verification import HEDDLE, Verification
from heddle.pipelines.bench.workload import Workload
from heddle.runtime import CPU, Accelerator, Buffer, InferenceSession
from heddle.runtime._core import cuda_info
from heddle.runtime.errors import HeddleError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.runtime import Device, Model

HOST_S = 1.0
"""Seconds for the host's side of a call on a GPU."""


CHOICES = {"target": ("cpu", "cuda"), "cache": ("cold", "warm"), "inputs": ("normal", "zeros")}
"""What these fields of a case may be."""


@dataclass(frozen=True)
class Case:
    """What is measured together; the fields are those of `heddle bench run`.

    `sizes` has one for each name that `heddle bench list` shows for the kernel `name`.
    """

    name: str
    sizes: dict[str, int]
    dtype: str = "float32"
    target: str = "cpu"
    cache: str = "warm"
    threads: int = 1
    baselines: tuple[str, ...] = ()
    verify: bool = False
    inputs: str = "normal"
    max_time: float = 5.0

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `Case(**values)` is this again."""
        return {**asdict(self), "baselines": list(self.baselines)}

    def row(self, impl: str, status: str) -> Row:
        """The columns that are known before anything runs."""
        workload = workloads.WORKLOADS.get(self.name)
        return {
            "name": self.name,
            "op": workload.op if workload else "",
            "impl": impl,
            "dtype": self.dtype,
            **({"products": workload.products} if workload and workload.products else {}),
            "shape": dict(self.sizes),
            "device": self.target,
            "cache": self.cache,
            "threads": self.threads,
            "status": status,
            "flags": ["zeros"] if self.inputs == "zeros" else [],
        }

    def failed(self, status: str, kind: str, message: str, impl: str = HEDDLE) -> Row:
        """The row of something that has no figures: what kind of error, and its message."""
        return {**self.row(impl, status), "error": {"type": kind, "message": message}}


@dataclass(frozen=True)
class Prepared:
    """The operands in `sets`, the output of each, and what they hold."""

    workload: Workload
    dtype: DType
    arrays: list[NDArray[Any]]
    sets: list[list[Buffer]]
    outputs: list[Buffer]


def run(case: Case) -> Iterator[Row]:
    """Compiles, checks and times `case`: a row for Heddle, then one for each baseline.

    Raises:
        HeddleError: The case cannot be run: a name, a dtype, a size, a device.
    """
    workload = workloads.find(case.name)
    check_fields(case, workload)
    dtype = workloads.dtype_of(workload, case.dtype)
    device = device_of(case)
    session = InferenceSession(devices=[device], threads=case.threads)
    prepared = prepare(case, workload, dtype, device)
    models = load(case, prepared, session)
    candidates = {HEDDLE: heddle_calls(prepared, models)}
    missing: dict[str, str] = {}
    for name in case.baselines:
        try:
            candidates[name] = baselines.calls(name, case, prepared)
        except MissingError as error:
            missing[name] = str(error)
    check = Verification(case, prepared, session) if case.verify else None
    errors = {name: check.row(name, calls) for name, calls in candidates.items()} if check else {}
    pause = case.threads > 1
    clock = clock_of(case, len(prepared.sets))
    timings = interleaved(list(candidates.values()), case.max_time, pause, *clock)
    rows = {
        name: timed_row(case, prepared, name, timing)
        for name, timing in zip(candidates, timings, strict=True)
    }
    rows[HEDDLE]["arch"] = sorted(set(models[0].archs))
    if case.target != "cpu":
        (host,) = interleaved([candidates[HEDDLE]], min(case.max_time, HOST_S), pause=False)
        rows[HEDDLE]["host_us"] = 1e6 * host.interval[0]
    ours = rows[HEDDLE]["time_us"]
    for name, row in rows.items():
        if check:
            row |= check.row(name, candidates[name], errors[name])
        if name != HEDDLE:
            row["ratio"] = row["time_us"] / ours
    ratios = [row["ratio"] for row in rows.values() if "ratio" in row]
    if ratios:
        rows[HEDDLE]["ratio"] = min(ratios)
    yield from rows.values()
    for name, reason in missing.items():
        yield case.failed("missing", "MissingError", reason, name)


def check_fields(case: Case, workload: Workload) -> None:
    """Refuses fields that no command line lets through.

    Raises:
        InputError: A size that is missing, unknown or none; another choice or number.
    """
    if case.sizes.keys() != workload.sizes.keys():
        wanted, got = ", ".join(workload.sizes), ", ".join(case.sizes) or "none"
        raise InputError(f"{case.name}: sizes: wanted {wanted}, got {got}")
    numbers = {f"sizes: {name}": (size, 0) for name, size in case.sizes.items()}
    for name, (value, least) in {**numbers, "threads": (case.threads, 1)}.items():
        if not is_whole(value) or value < least:
            raise InputError(
                f"{case.name}: {name}: wanted an integer of at least {least}, got {value!r}"
            )
    for name, choices in CHOICES.items():
        if (value := getattr(case, name)) not in choices:
            raise InputError(f"{case.name}: {name}: wanted {' or '.join(choices)}, got {value!r}")
    if not is_number(case.max_time) or not 0 < case.max_time < math.inf:
        raise InputError(
            f"{case.name}: max_time: wanted a finite number of seconds above 0, got "
            f"{case.max_time!r}"
        )


def clock_of(case: Case, sets: int) -> tuple[Clock, int]:
    """What times its calls, and how many of them at the least, where they go round so many sets.

    A graph of a GPU runs more than once for one time: it goes through all sets, so that none of
    them is in the cache when its turn comes again.
    """
    return (host_clock, 1) if case.target == "cpu" else (device_clock, sets)


def device_of(case: Case) -> Device:
    """Where the case runs."""
    return CPU() if case.target == "cpu" else Accelerator()


def prepare(case: Case, workload: Workload, dtype: DType, device: Device) -> Prepared:
    """Draws the operands and copies them into as many sets as the cache asks for."""
    types = workload.types(case.sizes, dtype)
    result = workload.result(case.sizes, dtype)
    last = last_cache(case)
    weighted = any(operand.weight for operand in workload.operands)
    held, used = data.total_bytes([*types, result]), used_bytes(case, workload, dtype)
    count = data.sets_wanted(held, used, last, weighted) if case.cache == "cold" else 1
    arrays = data.draw(workload, case.sizes, dtype, case.inputs)
    sets = [
        [
            data.buffer_of(array, type.dtype, CPU() if operand.weight else device)
            for array, type, operand in zip(arrays, types, workload.operands, strict=True)
        ]
        for _ in range(count)
    ]
    shape = tuple(map(int, result.shape))
    outputs = [Buffer(result.dtype.name, shape, device) for _ in range(count)]
    return Prepared(workload, dtype, arrays, sets, outputs)


def last_cache(case: Case) -> int:
    """Bytes of the last cache before memory, of the CPU or of the GPU; 0 where it is not known."""
    if case.target != "cpu":
        return int(cuda_info()["devices"][0]["l2_bytes"])
    return machine.last_cache(case.threads)


def used_bytes(case: Case, workload: Workload, dtype: DType) -> int:
    """Bytes of a set that a call touches: of a table only what is picked from it."""
    cost = workload.cost(case.sizes, dtype)
    return int(cost.read) + int(cost.written)


def load(case: Case, prepared: Prepared, session: InferenceSession) -> list[Model]:
    """The compiled artifact, loaded: once, or once for each set where there are weights."""
    graph = prepared.workload.graph(case.sizes, prepared.dtype)
    artifact = compile(graph, ["cpu:native" if case.target == "cpu" else case.target])
    if not graph.weights:
        return [session.load(artifact)] * len(prepared.sets)
    pairs = [zip(prepared.workload.operands, buffers, strict=True) for buffers in prepared.sets]
    weights = [[buffer for operand, buffer in pair if operand.weight] for pair in pairs]
    return [
        session.load(artifact, {f"w{i}": buffer for i, buffer in enumerate(buffers)})
        for buffers in weights
    ]


def heddle_calls(prepared: Prepared, models: list[Model]) -> list[Call]:
    """`execute` into the caller's output, for each set."""
    operands = prepared.workload.operands
    inputs = [
        tuple(b for o, b in zip(operands, buffers, strict=True) if not o.weight)
        for buffers in prepared.sets
    ]
    sets = zip(models, inputs, prepared.outputs, strict=True)
    if models[0].device.kind == "cpu":
        return [partial(model.execute, *taken, out=[out]) for model, taken, out in sets]
    return [ModelCall(model, taken, out) for model, taken, out in sets]


def timed_row(case: Case, prepared: Prepared, name: str, timing: Timing) -> Row:
    """The row of one candidate."""
    middle, low, high = timing.interval
    cost = prepared.workload.cost(case.sizes, prepared.dtype)
    last = last_cache(case)
    rotated = used_bytes(case, prepared.workload, prepared.dtype) * len(prepared.sets)
    short = case.cache == "cold" and (not last or rotated < PER_CACHE * last)
    flags = {
        "noisy": not timing.settled,
        "busy": timing.others > BUSY,
        "short-rotation": short,
        "zeros": case.inputs == "zeros",
        "oversubscribed": case.threads > len(os.sched_getaffinity(0)),
        "reference": baselines.is_reference(name, prepared.workload.row),
        "new-result": baselines.makes_result(name, prepared.workload.row),
    }
    return {
        **case.row(name, "ok"),
        "inputs": data.described(prepared.workload, prepared.dtype, case.inputs),
        "sets": len(prepared.sets),
        "rotated_bytes": rotated,
        "time_us": 1e6 * middle,
        "ci_us": [1e6 * low, 1e6 * high],
        "p95_us": 1e6 * timing.p95,
        "turns_us": [round(1e6 * value, 5) for value in timing.turns],
        "samples": len(timing.samples),
        "calls_per_sample": timing.calls,
        "others_share": round(timing.others, 3),
        "bytes_read": int(cost.read),
        "bytes_written": int(cost.written),
        "operations": int(cost.operations),
        "flags": [flag for flag, holds in flags.items() if holds],
    }


def run_safely(case: Case) -> list[Row]:
    """The rows of `case`, or the one row of the error that it ended with.

    What Heddle warned of meanwhile (a tuning table that is not used) is in the first row.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            rows = list(run(case))
        except (HeddleError, OSError, MemoryError) as error:
            rows = [case.failed("error", type(error).__name__, str(error))]
    texts = [str(found.message) for found in caught if issubclass(found.category, UserWarning)]
    if texts:
        rows[0]["warnings"] = list(dict.fromkeys(texts))
    return rows
