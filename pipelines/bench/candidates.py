"""Candidates of a tuning, timed in turns in this process: one case, compiled by several values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heddle.kernels import tuning
from heddle.pipelines.bench import workloads
from heddle.pipelines.bench.case import (
    Case,
    clock_of,
    device_of,
    heddle_calls,
    load,
    prepare,
)
from heddle.pipelines.bench.measure import Call, interleaved
from heddle.pipelines.bench.rows import Row
from heddle.pipelines.bench.verification import HEDDLE, Verification
from heddle.runtime import InferenceSession
from heddle.runtime.errors import HeddleError


def run(case: Case, candidates: Sequence[Mapping[str, tuning.Values]]) -> list[Row]:
    """A row for each candidate: its `status` and `turns_us`, or a `message` that says what failed.

    Args:
        case: What to time, without baselines; `case.verify` checks each candidate's result.
        candidates: For each the values of parameters by kernel.
    """
    workload = workloads.find(case.name)
    device = device_of(case)
    session = InferenceSession(devices=[device], threads=case.threads)
    prepared = prepare(case, workload, workloads.dtype_of(workload, case.dtype), device)
    check = Verification(case, prepared, session) if case.verify else None
    rows: list[Row] = [{"status": "ok", "turns_us": []} for _ in candidates]
    calls: dict[int, list[Call]] = {}
    for number, values in enumerate(candidates):
        try:
            with tuning.forced(values):
                made = heddle_calls(prepared, load(case, prepared, session))
            if check:
                rows[number] |= check.row(HEDDLE, made)
        except HeddleError as error:
            rows[number] |= {"status": "error", "message": str(error)}
        if rows[number]["status"] == "ok":
            calls[number] = made
    timings = (
        interleaved(list(calls.values()), case.max_time, False, *clock_of(case, len(prepared.sets)))
        if calls
        else []
    )
    for number, timing in zip(calls, timings, strict=True):
        rows[number]["turns_us"] = [1e6 * turn for turn in timing.turns]
        if check:
            rows[number] |= check.row(HEDDLE, calls[number], rows[number])
    return [_plain(row) for row in rows]


def _plain(row: Row) -> dict[str, Any]:
    """The row with a message wherever it is not ok."""
    if row["status"] == "wrong":
        message = f"wrong by {row['max_error']:.1e}, allowed are {row['tolerance']:.1e}"
        return {**row, "message": message}
    return row
