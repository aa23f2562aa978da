"""The one place where the environment is read.

Every setting is a row of `SETTINGS`; `heddle doctor` prints the table with the values in force.
"""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from heddle.runtime.errors import HeddleError


MOST_THREADS = 65536
"""Of a session."""


class Setting(NamedTuple):
    """An environment variable: its name, its default as text, and what it does.

    `most` is the largest number that it may be, which may be infinite; None: it is no number.
    """

    name: str
    default: str
    meaning: str
    most: float | None = None


SETTINGS = (
    Setting(
        "HEDDLE_CACHE",
        "",
        "kernel cache folder; empty: heddle in XDG_CACHE_HOME or ~/.cache; 'off': no cache",
    ),
    Setting("HEDDLE_DUMP", "", "folder that receives the module after each compiler pass"),
    Setting("HEDDLE_JOBS", "0", "codegen processes; 0: one for each core", inf),
    Setting(
        "HEDDLE_THREADS", "0", "CPU threads of a session; 0: one for each usable core", MOST_THREADS
    ),
    Setting("HEDDLE_TUNING", "", "folder of your own tuning tables, used before those shipped"),
)


def get(name: str) -> str:
    """The value in force of the setting `name`: the environment's, else the default."""
    row = next(row for row in SETTINGS if row.name == name)
    return os.environ.get(name, row.default)


def number(name: str, error: type[HeddleError]) -> int:
    """The value in force of a setting that counts something; `error` if it is none."""
    if text := problem(name):
        raise error(text)
    return int(get(name))


def problem(name: str) -> str | None:
    """What is wrong with the value in force of a setting, or None."""
    most = next(row.most for row in SETTINGS if row.name == name)
    text = get(name)
    decimal = text.isascii() and text.isdecimal() and len(text) < 20  # Python's own limit is 4300
    if most is None or (decimal and int(text) <= most):
        return None
    wanted = "of 0 or more" if most == inf else f"from 0 to {most}"
    return f"{name}: wanted a number {wanted}, got {text!r}"


def put(name: str, value: str) -> None:
    """Sets `name` for this process and its children, as a command-line option does."""
    os.environ[name] = value


def cache_folder() -> Path | None:
    """The kernel cache's folder, or None when the cache is off, or the user has no home for it."""
    # Its import takes as long as that of the whole runtime, where no folder is asked for.
    from pathlib import Path

    value = get("HEDDLE_CACHE")
    if value == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    if value:
        return Path(value)
    try:
        return Path(base).expanduser() / "heddle"
    except RuntimeError:  # neither HOME nor an entry of the user, as in containers
        return None
