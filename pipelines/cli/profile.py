"""What `heddle run --profile` shows: where a run's time goes, by kernel."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from heddle.pipelines.cli.console import table

Steps = Sequence[dict[str, Any]]


def by_kernel(runs: Sequence[Steps]) -> list[dict[str, Any]]:
    """One row for each kernel, the one that takes longest first.

    Args:
        runs: `Model.profile` of the same inputs, several times; each step counts with its median.

    Returns:
        Rows with `kernel`, `label` (of its first step), `calls`, `total_s`, `share` of all kernels,
        `gops` (the launch's estimate of operations, in 1e9 a second) and `gb` (bytes of its
        buffers, in 1e9 a second).
    """
    rows: dict[str, dict[str, Any]] = {}
    sums: dict[str, tuple[int, int]] = {}
    for steps in zip(*runs, strict=True):
        step = steps[0]
        name = step["kernel"]
        row = rows.setdefault(
            name, {"kernel": name, "label": step["label"], "calls": 0, "total_s": 0.0}
        )
        row["calls"] += 1
        row["total_s"] += statistics.median(each["seconds"] for each in steps)
        work, size = sums.get(name, (0, 0))
        sums[name] = work + step["work"], size + step["bytes"]
    total = sum(row["total_s"] for row in rows.values())
    for name, row in rows.items():
        work, size = sums[name]
        seconds = max(row["total_s"], 1e-9)
        row["share"] = row["total_s"] / total if total else 0.0
        row |= {"gops": 1e-9 * work / seconds, "gb": 1e-9 * size / seconds}
    return sorted(rows.values(), key=lambda row: -row["total_s"])


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The rows for a person."""
    columns = ("kernel", "calls>", "ms>", "share>", "Gop/s>", "GB/s>", "first of its steps")
    table(
        "Kernels",
        columns,
        [
            (
                row["kernel"],
                str(row["calls"]),
                f"{1e3 * row['total_s']:.3f}",
                f"{row['share']:.1%}",
                f"{row['gops']:.1f}",
                f"{row['gb']:.1f}",
                row["label"],
            )
            for row in rows
        ],
    )
