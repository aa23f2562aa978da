"""Writes the tables of README.md and of the pages on performance from the results' files.

    python benchmarks/report.py

A table stands between `<!-- results: NAME -->` and `<!-- end -->`; everything else in the pages is
written by hand. `NAME.PART` is a part of what a GPU said (`gpu_tables.py`), `summary.NAME` has a
line for each work (`summary.py`).
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import gpu_tables
import summary
from measure import RESULTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "performance.md", *sorted((DOCS / "performance").glob("*.md"))]

MARKED = re.compile(r"(<!-- results: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def flat(row: dict[str, Any]) -> dict[str, str]:
    """The cells of a row by their column; the keys of an inner object are columns."""
    cells = {}
    for name, value in row.items():
        inner = value if isinstance(value, dict) else {"": value}
        for key, item in inner.items():
            cells[f"{key} {unit(name)}" if key else title(name)] = str(item)
    return cells


def unit(name: str) -> str:
    """`median_ms` as the unit that it ends with: `(ms)`."""
    return f"({name.rpartition('_')[2]})"


RATES = {"gb_s": "GB/s", "tflop_s": "TFLOP/s"}


def title(name: str) -> str:
    """`load_ms` as a column's title: `load (ms)`."""
    words, _, last = name.rpartition("_")
    known = {"ms": "ms", "s": "s", "us": "µs", "mib": "MiB"}
    if name in RATES:
        return RATES[name]
    return f"{words.replace('_', ' ')} ({known[last]})" if words and last in known else name


def table(name: str) -> str:
    """One results' file as Markdown: the rows, then the machine."""
    file, _, part = name.partition(".")
    if file == "summary":
        return summary.table(part)
    figures = json.loads((RESULTS / f"{file}.json").read_text())
    figures = gpu_tables.part_of(figures, part) if part else figures
    rows = [flat(row) for row in figures.pop("rows")]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " ---: |" * len(columns)]
    lines += ["| " + " | ".join(row.get(column, "") for column in columns) + " |" for row in rows]
    machine, date = figures.pop("machine"), figures.pop("date")
    notes = [place(machine), date]
    if "load_average" in machine:
        notes.append(f"load average before: {machine['load_average']}")
    notes += [f"{title(key)}: {words(value)}" for key, value in figures.items()]
    below = textwrap.wrap("; ".join(notes) + ".", 100, break_on_hyphens=False)
    return "\n".join([*lines, "", *below])


def place(machine: dict[str, Any]) -> str:
    """What a table says of the machine that it was measured on."""
    if "gpu" in machine:
        return f"{machine['gpu']}, driver for CUDA {machine['driver']}"
    return f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"


def words(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def render(page: str) -> str:
    """`page` with every table made anew."""
    return MARKED.sub(lambda match: f"{match[1]}{table(match[2])}\n{match[3]}", page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(render(page.read_text()))
