"""What the commands print and read with. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

import click

from heddle.pipelines.json_files import finite
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 10_000
"""Columns where the output is no terminal: nothing is wrapped for a program that reads it."""

READABLE = 100
"""Columns of a table for a person alone where the output is no terminal."""

DELAY_S = 1.0
"""Work that ends within this time shows no progress."""


def listed(title: str, *lines: str) -> str:
    """A list for the end of a help text, which click is told not to wrap."""
    return "\b\n" + "\n".join([title, *(f"  {line}" for line in lines)])


def stdin() -> TextIO:
    """Stdin as UTF-8; other bytes become lone surrogates, as Python reads them in arguments.

    Raises:
        InputError: It is closed.
    """
    if sys.stdin is None:
        raise InputError("stdin: wanted a text, got none: it is closed")
    assert isinstance(sys.stdin, TextIOWrapper)
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    return sys.stdin


def print_json(value: Any) -> None:
    """One JSON document on stdout; numbers that are not finite, which JSON lacks, are null."""
    made = finite(value, instead=lambda name: None)
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))


def table(
    title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], width: int = WIDE
) -> None:
    """A table on stdout; columns named with a trailing `>` are aligned to the right.

    `width` is its columns at most where the output is no terminal.
    """
    from rich.table import Table
    from rich.text import Text

    # Of a str Rich would take what stands in brackets, as in "time [us]", for its markup.
    grid = Table(title=Text(title, "bold"), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        right = column.endswith(">")
        grid.add_column(Text(column.rstrip(">")), justify="right" if right else "left")
    for row in rows:
        grid.add_row(*map(Text, row))
    console = make_console(width)
    console.print(grid)
    console.print()


def make_console(width: int = WIDE) -> Console:
    """Stdout; a program that reads it finds each row in one line, but for a lesser `width`."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = width
    return console


def width_of(grid: Table, console: Console) -> int:
    """The columns that a table takes where nothing is wrapped."""
    return console.measure(grid, options=console.options.update(width=WIDE)).maximum


@contextmanager
def progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr that appears after `DELAY_S`; the caller reports (what, done, all).

    Nothing is drawn between reports: a thread that moves a bar would disturb what is timed.
    """
    import time

    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    start = time.monotonic()
    shown = console.is_terminal
    with Progress(console=console, transient=True, disable=not shown, auto_refresh=False) as bar:
        task = bar.add_task(title, total=None, visible=False)

        def report(what: str, done: int, total: int) -> None:
            late = time.monotonic() - start > DELAY_S
            bar.update(
                task, description=what, completed=done, total=total, visible=late, refresh=True
            )

        yield report


def packages_of_generate() -> AbstractContextManager[None]:
    """As `packages_of` the extra `generate`."""
    return packages_of("generate")


@contextmanager
def packages_of(extra: str) -> Iterator[None]:
    """Says what to install where an import inside lacks a package of this extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "heddle").partition(".")[0]
        if package == "heddle":
            raise
        raise ModuleNotFoundError(
            f"wanted the package {package}, which is not installed; pip install 'heddle[{extra}]'"
        ) from None


def bytes_text(size: int) -> str:
    """A number of bytes as a person reads it: `86.7 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
