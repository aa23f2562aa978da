"""The rows of `heddle bench run` for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heddle.pipelines.cli.console import WIDE

if TYPE_CHECKING:
    from heddle.pipelines.bench.limits import Limits
    from heddle.pipelines.bench.rows import Row, Writer

COLUMNS = (
    *("name", "impl", "dtype", "shape", "device", "cache", "time [us]>", "±ci>", "p95>"),
    *("GB/s>", "%limit>", "TFLOP/s>", "%limit>", "bound", "ratio>", "error", "flags"),
)

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
            full = judged(row, self.limits, self.levels) if self.limits else row
            self.failures += full["status"] not in ("ok", "missing")
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
        """The table on stdout, and below it what went wrong, in words."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=None, pad_edge=False, header_style="bold")
        for column in COLUMNS:
            title, right = Text(column.rstrip(">")), column.endswith(">")
            grid.add_column(title, justify="right" if right else "left", no_wrap=True)
        for row in self.rows:
            style = STYLES.get(row["status"], "red")
            grid.add_row(*(Text(cell, style=style) for cell in cells(row)))
        console = Console()
        if not console.is_terminal:
            console.width = WIDE
        console.print(grid)
        for row in self.rows:
            if "error" in row:
                style = STYLES.get(row["status"], "red")
                message = f"{row['impl']}, {row['name']}: {row['status']}: "
                text = f"{message}{row['error']['type']}: {row['error']['message']}"
                console.print(Text(text, style=style))

    @staticmethod
    def shape_text(sizes: Mapping[str, int]) -> str:
        """`m=64 n=512`."""
        return " ".join(f"{name}={size}" for name, size in sizes.items())


def cells(row: Row) -> tuple[str, ...]:
    """The columns of one row."""
    head = (row["name"], row["impl"], row["dtype"], Report.shape_text(row["shape"]))
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
        error = f"{row['max_error']:.1e} {row['status']}"
    return (*head, *place, *times, *rates, row.get("bound", ""), ratio, error, *[flags(row)])


def flags(row: Row) -> str:
    """The flags in one cell, and a GPU's time on the host."""
    host = [f"host {number(row['host_us'])} us"] if "host_us" in row else []
    return ",".join([*row["flags"], *host])


def number(value: Any) -> str:
    """Three digits that count, or more before the point."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}" if value else "0"


def share(value: Any) -> str:
    """A share as a percentage."""
    return "" if value is None else f"{100 * value:.0f}%"
