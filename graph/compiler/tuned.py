"""A user's own tuning tables: the folder that `HEDDLE_TUNING` names, as far as they fit."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path

from heddle.graph.targets import native_cpu
from heddle.kernels.registry import PLACES, find
from heddle.kernels.tuning import Row, Table, TableError, fingerprint
from heddle.runtime import config
from heddle.runtime.errors import CompileError


class TuningWarning(UserWarning):
    """A tuning table is not used, or may not be what is best any more."""


def own_tables(native: bool) -> tuple[Table, ...]:
    """The user's tables that may be used.

    Args:
        native: Whether to compile for the CPU of this machine: then a CPU's table that was tuned on
            another one is not used, and a `TuningWarning` says so.

    Raises:
        CompileError: There is no such folder, a file in it is no tuning table, or a kernel has no
            such parameter or value. Rows for a kernel whose code has changed since are used, and a
            `TuningWarning` says so.
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
        for row in table.rows:
            _check(row, table.place)
    return tuple(table for table in tables if not native or _fits(table))


def _check(row: Row, place: str) -> None:
    kernel = find(row.op, PLACES[place])
    space = {p.name: p.values for p in kernel.space.parameters} if kernel and kernel.space else {}
    where = f"HEDDLE_TUNING: {place}.json: {row.op}"
    for name, value in row.values.items():
        if name not in space:
            known = ", ".join(space) or "no parameter"
            raise CompileError(f"{where}: wanted one of {known}, got {name!r}")
        if value not in space[name]:
            raise CompileError(f"{where}: {name}: wanted one of {space[name]}, got {value}")
    if kernel is not None and row.sources != fingerprint(kernel):
        message = f"{place}.json: {row.op}: tuned for code that has changed since; tune it anew"
        warnings.warn(f"tuning: {message}", TuningWarning, stacklevel=4)


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
