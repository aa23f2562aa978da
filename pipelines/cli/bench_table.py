"""The rows of `heddle bench run` for a person."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heddle.pipelines.bench.rows import failed, number, shape_text
from heddle.pipelines.cli.console import make_console, width_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from heddle.pipelines.bench.limits import Limits
    from heddle.pipelines.bench.rows import Row, Writer

Line = tuple[tuple[str, ...], str]
"""The cells of a row and its style."""

COLUMNS = (
    *("name", "impl", "dtype", "shape", "device", "cache", "time [us]>", "±ci>", "p95>"),
    *("GB/s>", "%limit>", "TFLOP/s>", "%limit>", "bound", "ratio>", "error", "flags"),
)

IMPL = COLUMNS.index("impl")

STYLES = {"ok": "", "wrong": "bold red", "missing": "yellow"}
"""By status; what is not here failed, in red."""


class Report:
    """Rows as they come: judged, kept, written to the file at once, and shown at the end.

    `failures` counts the rows that are wrong, or that have no figures though they should.
    """

    def __init__(self, limits: Limits | None, writer: Writer | None) -> None:
        from heddle.pipelines.bench import gpu_limits, machine

        self.limits, self.writer = limits, writer
        self.levels = machine.caches()
        if limits and "gpu" in limits:
            self.levels = gpu_limits.levels(limits)
        self.rows: list[Row] = []
        self.failures = 0

    def __enter__(self) -> Report:
        return self

    def add(self, rows: list[Row]) -> None:
        """Takes the rows of one case; raises OSError where the file takes no more."""
        from heddle.pipelines.bench.judge import judged
        from heddle.pipelines.bench.machine import describe

        for row in rows:
            for text in row.get("warnings", ()):
                warnings.warn(text, stacklevel=2)
            full = judged(row, self.limits, self.levels)
            self.failures += failed(full)
            self.rows.append(full)
            if self.writer:
                self.writer.write(full, describe())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.writer:
            self.writer.__exit__(kind, error, traceback)
        if self.rows:
            self.show()

    def show(self) -> None:
        """The rows on stdout, and below them what went wrong, in words.

        Where one table is wider than the terminal, each case has a small one of its own.
        """
        from rich.text import Text

        console = make_console()
        lines = [(cells(row), STYLES.get(row["status"], "red")) for row in self.rows]
        grid = grid_of(COLUMNS, lines, 2)
        if width_of(grid, console) <= console.width:
            console.print(grid)
        else:
            for place, group in groupby(lines, key=lambda line: " ".join(without_impl(line[0]))):
                console.print(Text(place, style="bold"))
                show_case(console, list(group))
        lacking = [row for row in self.rows if "error" in row]
        for text, status in dict.fromkeys((failure_text(row), row["status"]) for row in lacking):
            console.print(Text(text, style=STYLES.get(status, "red")))


def grid_of(columns: Sequence[str], lines: Sequence[Line], between: int) -> Table:
    """A table whose cells are never cut; so many spaces stand between its columns."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, between, 0, 0), header_style="bold")
    for column in columns:
        title, right = Text(column.rstrip(">")), column.endswith(">")
        grid.add_column(title, justify="right" if right else "left", no_wrap=True)
    for texts, style in lines:
        grid.add_row(*(Text(text, style=style) for text in texts))
    return grid


def show_case(console: Console, lines: Sequence[Line]) -> None:
    """The rows of one case where there is little room: figures, then a line for what is said."""
    from rich.text import Text

    figures = slice(COLUMNS.index("time [us]>"), COLUMNS.index("error"))
    narrow = [((texts[IMPL], *texts[figures]), style) for texts, style in lines]
    console.print(grid_of((COLUMNS[IMPL], *COLUMNS[figures]), narrow, 1))
    for texts, style in lines:
        notes = ", ".join(filter(None, texts[figures.stop :]))
        if notes:
            console.print(Text(f"{texts[IMPL]}: {notes}", style=style))
    console.print()


def without_impl(texts: Sequence[str]) -> Sequence[str]:
    """The cells that say which case it is: name, dtype, shape, device, cache."""
    return [*texts[:IMPL], *texts[IMPL + 1 : COLUMNS.index("time [us]>")]]


def failure_text(row: Row) -> str:
    """Why a row has no figures: of an error of Python also which."""
    error = row["error"]
    kind = f"{error['type']}: " if row["status"] == "error" else ""
    return f"{row['name']}, {row['impl']}: {row['status']}: {kind}{error['message']}"


def cells(row: Row) -> tuple[str, ...]:
    """The columns of one row."""
    head = (row["name"], row["impl"], row["dtype"], shape_text(row["shape"]))
    threads = f"x{row['threads']}" if row["device"] == "cpu" else ""
    place = (f"{row['device']}{threads}", row["cache"])
    if "time_us" not in row:
        return (*head, *place, *[""] * 9, row["status"], "")
    low, high = row["ci_us"]
    times = (number(row["time_us"]), number((high - low) / 2), number(row["p95_us"]))
    rates = (
        *(number(row.get("gb_s")), share(row.get("gb_s_share"))),
        *(number(row.get("tflop_s")), share(row.get("tflop_s_share"))),
    )
    ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
    error = ""
    if "max_error" in row:
        within = row["max_error"] <= row["tolerance"]
        error = f"{row['max_error']:.1e} {'ok' if within else 'wrong'}"
    return (*head, *place, *times, *rates, row.get("bound", ""), ratio, error, *[flags(row)])


def flags(row: Row) -> str:
    """The flags in one cell, and a GPU's time on the host."""
    host = [f"host {number(row['host_us'])} us"] if "host_us" in row else []
    return ", ".join([*row["flags"], *host])


def share(value: Any) -> str:
    """A share as a percentage."""
    return "" if value is None else f"{100 * value:.0f}%"
