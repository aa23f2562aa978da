"""Rows as JSON lines: each stands on its own, with the schema's version and its environment."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any

from heddle.pipelines.bench.statistics import median_interval
from heddle.pipelines.json_files import finite
from heddle.runtime.errors import InputError

SCHEMA = 1

Row = dict[str, Any]
"""One row; docs/bench.md has its fields."""


class Writer:
    """Appends rows to a file, each in one write that is on the disk before the next begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._is_file = S_ISREG(os.fstat(self._file).st_mode)
        self._mend()

    def write(self, row: Row, environment: Row) -> None:
        """Adds `row`; where that fails the file is as it was before.

        Raises:
            OSError: The disk is full, or fails; it names the file.
        """
        # The error of a result that is no number is not finite.
        made = finite({"schema": SCHEMA, **row, "environment": environment}, instead=str)
        line = json.dumps(made) + "\n"
        contents, end = line.encode(), os.fstat(self._file).st_size
        try:
            while contents:  # What a full disk took in part, it refuses the rest of.
                contents = contents[os.write(self._file, contents) :]
            if self._is_file:  # a pipe has no disk
                os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, end)
            error.filename = str(self.path)
            raise

    def _mend(self) -> None:
        """Ends the line that another run left unfinished, so that it stays one bad line."""
        if self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n"):
            os.write(self._file, b"\n")

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)


def read(path: Path) -> tuple[list[Row], int]:
    """The rows of a file and how many lines were cut off by a run that ended early.

    Raises:
        InputError: The file has no rows, or rows of another schema.
        OSError: It cannot be read.
    """
    rows, broken = [], 0
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            broken += 1
            continue
        schema = row.get("schema") if isinstance(row, dict) else None
        if schema != SCHEMA:
            raise InputError(f"{path}:{number}: wanted a row of schema {SCHEMA}, got {schema}")
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: wanted rows of 'heddle bench run --json', found none")
    return rows, broken


def wrong(row: Row) -> str:
    """What a row has that the bench would not write; else nothing."""
    for name in ("name", "impl", "dtype", "device", "cache", "threads", "status", "flags"):
        if name not in row:
            return f"one without {name}"
    for name, kind in (("shape", dict), ("environment", dict), ("flags", list)):
        if not isinstance(row.get(name), kind):
            return f"one with {row.get(name)!r} as {name}"
    for name in ("host", "cpu", "cores", "heddle", "date"):
        if name not in row["environment"]:
            return f"one whose environment has no {name}"
    if "time_us" in row or "turns_us" in row:
        turns = row.get("turns_us")
        for time in (row.get("time_us"), *(turns if isinstance(turns, list) and turns else [None])):
            if not isinstance(time, (int, float)) or not 0 < time < math.inf:
                return f"one with {time!r} among its times"
    return ""


def key(row: Row) -> tuple[str, ...]:
    """What makes two rows the same case; of zeros a kernel is another one."""
    shape = ",".join(f"{name}={size}" for name, size in row["shape"].items())
    names = ("name", "impl", "dtype", "device", "cache")
    zeros = "zeros" if "zeros" in row["flags"] else ""
    return (*(row[name] for name in names), shape, str(row["threads"]), zeros)


def pooled(rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    """Rows by case, those of the same case as one; where one of them failed, that one."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        before = found.get(key(row))
        found[key(row)] = _joined(before, row) if before else row
    return found


RATES = ("gb_s", "gb_s_share", "tflop_s", "tflop_s_share")
"""What a row has so many times more of where its time is so many times less."""


OF_ONE_RUN = ("ratio", "p95_us")
"""What says nothing of several runs' turns together."""


def failed(row: Row) -> bool:
    """Whether a row is of a wrong result, or lacks figures that it should have."""
    return row["status"] not in ("ok", "missing")


def _joined(a: Row, b: Row) -> Row:
    """Two rows of a case as one: the turns of both, and what follows from them."""
    for row in (b, a):
        if failed(row):
            return row
    if "turns_us" not in a or "turns_us" not in b:
        return a if "turns_us" in a else b
    turns = a["turns_us"] + b["turns_us"]
    middle, *interval = median_interval(turns)
    rates = {name: b[name] * b["time_us"] / middle for name in RATES if b.get(name)}
    flags = list(dict.fromkeys((*a["flags"], *b["flags"])))
    times = {"time_us": middle, "ci_us": interval, "turns_us": turns}
    kept = {name: value for name, value in b.items() if name not in OF_ONE_RUN}
    return {**kept, **times, **rates, "flags": flags}


def timed(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows that have a time."""
    return (row for row in rows if "time_us" in row)


def number(value: Any) -> str:
    """Three digits that count, or more before the point."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}" if value else "0"


def shape_text(sizes: Mapping[str, int]) -> str:
    """`m=64 n=512`, as well of the parameters of a kernel."""
    return " ".join(f"{name}={size}" for name, size in sizes.items())
