"""Writes the tables of docs/performance.md from the results' files.

    python benchmarks/report.py

A table stands between `<!-- results: NAME -->` and `<!-- end -->`; everything else in the page is
written by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from measure import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


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


def title(name: str) -> str:
    """`load_ms` as a column's title: `load (ms)`."""
    words, _, last = name.rpartition("_")
    known = {"ms": "ms", "s": "s", "us": "µs", "mib": "MiB"}
    return f"{words.replace('_', ' ')} ({known[last]})" if words and last in known else name


def table(name: str) -> str:
    """One results' file as Markdown: the rows, then the machine."""
    figures = json.loads((RESULTS / f"{name}.json").read_text())
    rows = [flat(row) for row in figures.pop("rows")]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " ---: |" * len(columns)]
    lines += ["| " + " | ".join(row.get(column, "") for column in columns) + " |" for row in rows]
    machine, date = figures.pop("machine"), figures.pop("date")
    notes = [f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}", date]
    notes.append(f"load average before: {machine['load_average']}")
    notes += [f"{title(key)}: {words(value)}" for key, value in figures.items()]
    return "\n".join([*lines, "", "; ".join(notes) + "."])


def words(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def render(page: str) -> str:
    """`page` with every table made anew."""
    return MARKED.sub(lambda match: f"{match[1]}{table(match[2])}\n{match[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
