"""A user's own tuning tables: the folder that `HEDDLE_TUNING` names, as far as they fit."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path

from heddle.graph.targets import native_cpu
from heddle.kernels.registry import PLACES
from heddle.kernels.tuning import Table, TableError
from heddle.runtime import config
from heddle.runtime.errors import CompileError


class TuningWarning(UserWarning):
    """A tuning table is not used."""


def own_tables(native: bool) -> tuple[Table, ...]:
    """The user's tables that may be used.

    Args:
        native: Whether to compile for the CPU of this machine: then a CPU's table that was tuned on
            another one is not used, and a `TuningWarning` says so.

    Raises:
        CompileError: There is no such folder, or a file in it is no tuning table.
    """
    text = config.get("HEDDLE_TUNING")
    if not text:
        return ()
    folder = Path(text)
    if not folder.is_dir():
        raise CompileError(f"HEDDLE_TUNING: wanted a folder of tuning tables, got {text!r}")
    try:
        tables = [Table.read(path) for path in sorted(folder.glob("*.json"))]
    except (OSError, TableError) as error:
        raise CompileError(f"HEDDLE_TUNING: {error}") from None
    for table in tables:
        if table.place not in PLACES:
            wanted = ", ".join(PLACES)
            raise CompileError(f"HEDDLE_TUNING: wanted tables for {wanted}; got {table.place!r}")
    return tuple(table for table in tables if not native or _fits(table))


def described(tables: Sequence[Table]) -> tuple[tuple[str, str], ...]:
    """What an artifact's provenance says of the user's tables: nothing where there are none."""
    texts = [
        f"{table.place} {hashlib.sha256(table.to_json().encode()).hexdigest()[:16]}"
        for table in tables
    ]
    return (("tuning", ", ".join(texts)),) if texts else ()


def _fits(table: Table) -> bool:
    """Whether the table is of this CPU, or of a GPU."""
    here = native_cpu()
    if table.cpu == here or PLACES[table.place] == "cuda":
        return True
    message = f"{table.place}.json: tuned on {table.cpu} ({table.model}), this CPU is {here}"
    warnings.warn(f"tuning: {message}; the table is not used", TuningWarning, stacklevel=3)
    return False
