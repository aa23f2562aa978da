"""What a kernel leaves open: its parameters, and which of their values a spec gets.

Values come from tables, `tuned/<arch>.json`; where a parameter shapes the launch, which an artifact
has once for all architectures, from `tuned/<kind of target>.json`. The tables are part of the
package, never of the machine that compiles: the same graph gives the same bytes everywhere.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.kernels.setting import Setting
from heddle.kernels.spec import Expr, Spec

if TYPE_CHECKING:
    from heddle.kernels.registry import Kernel, Machine

SCHEMA = 1

CHECKED_IN = Path(__file__).parent / "tuned"
"""The folder of the package's tables."""

Values = Mapping[str, int]
"""Parameters by name."""


class TableError(ValueError):
    """A file is no tuning table; the message says where and why."""


@dataclass(frozen=True)
class Parameter:
    """A number that a kernel is emitted by: the `values` it may have, and the `default`.

    `launch`: it shapes the launch as well, so it is the same for every architecture of a kind.
    """

    name: str
    values: tuple[int, ...]
    default: int
    launch: bool = False


@dataclass(frozen=True)
class Row:
    """The values of a kernel's parameters for one dtype and class of shapes.

    `shape` has the class of each size (see `class_of`). `date` says when it was measured, `sources`
    by which sources of the kernel (see `fingerprint`).
    """

    op: str
    dtype: str
    shape: Values
    values: Values
    date: str
    sources: str


@dataclass(frozen=True)
class Table:
    """The rows for an architecture or a kind of target: `place`, the name of the file.

    `cpu` is LLVM's name of the CPU (or the GPU's name) that all rows were measured on, `model` what
    its maker calls it.
    """

    place: str
    cpu: str
    model: str
    rows: tuple[Row, ...] = ()

    @staticmethod
    def read(path: Path) -> Table:
        """The table in a file.

        Raises:
            TableError: It holds something else.
            OSError: It cannot be read.
        """
        try:
            content = json.loads(path.read_text())
            if content["schema"] != SCHEMA or content["place"] != path.stem:
                raise KeyError("schema or place")
            rows = tuple(map(_row, content["rows"]))
            return Table(path.stem, str(content["cpu"]), str(content["model"]), rows)
        except (ValueError, KeyError, TypeError) as error:
            message = f"{path}: wanted a tuning table of schema {SCHEMA} for {path.stem}"
            raise TableError(f"{message}: {error!r}") from None

    def to_json(self) -> str:
        """The text of the file, a line for each row."""
        lines = [json.dumps(asdict(row)) for row in self.rows]
        head = {"schema": SCHEMA, "place": self.place, "cpu": self.cpu, "model": self.model}
        return json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(lines) + "\n]}\n"

    def with_row(self, new: Row) -> Table:
        """This table with `new` in the place of the row of the same kernel, dtype and class."""
        rows = [row for row in self.rows if _key(row) != _key(new)]
        return Table(self.place, self.cpu, self.model, tuple(sorted([*rows, new], key=_key)))


def _row(content: Mapping[str, Any]) -> Row:
    row = Row(**content)
    for name, value in content.items():
        if not isinstance(value, dict if name in ("shape", "values") else str):
            raise TypeError(f"{name} {value!r}")
    for number in (*row.shape.values(), *row.values.values()):
        if not isinstance(number, int):
            raise TypeError(f"number {number!r}")
    return row


def _key(row: Row) -> tuple[Any, ...]:
    return row.op, row.dtype, tuple(row.shape.items())


@dataclass(frozen=True)
class Space:
    """The parameters of a kernel, and the named sizes of a spec that its shape class is made of."""

    parameters: tuple[Parameter, ...]
    sizes: Callable[[Spec], Mapping[str, Expr]]

    def value(self, name: str, spec: Spec, place: str) -> int:
        """The value in force of the parameter `name`.

        Args:
            name: The parameter's name.
            spec: What is asked of the kernel.
            place: The architecture; the kind of target for a parameter that shapes the launch.
        """
        parameter = next(row for row in self.parameters if row.name == name)
        forced = _forced.get()
        if forced is not None and spec.op in forced:
            return forced[spec.op].get(name, parameter.default)
        for table in (*_own.get(), checked_in(place)):
            row = self._row(table, spec, place)
            if row is not None and row.values.get(name) in parameter.values:
                return row.values[name]
        return parameter.default

    def _row(self, table: Table | None, spec: Spec, place: str) -> Row | None:
        """The row that fits; of several, for sizes of run time, that of the largest sizes."""
        if table is None or table.place != place:
            return None
        sizes, dtype = self.sizes(spec), dtype_of(spec)
        fitting = [
            row
            for row in table.rows
            if (row.op, row.dtype) == (spec.op, dtype)
            and all(
                not isinstance(size, int) or row.shape.get(name) == class_of(size)
                for name, size in sizes.items()
            )
        ]
        return max(fitting, key=lambda row: math.prod(row.shape.values()), default=None)

    def values(self, spec: Spec, machine: Machine) -> dict[str, int]:
        """The values in force of all parameters."""
        return {
            row.name: self.value(row.name, spec, place_of(row, machine)) for row in self.parameters
        }

    def shape_class(self, spec: Spec) -> dict[str, int]:
        """The class of a spec whose sizes are all known; others are left out."""
        found = self.sizes(spec).items()
        return {name: class_of(size) for name, size in found if isinstance(size, int)}


def place_of(parameter: Parameter, machine: Machine) -> str:
    """The table that a parameter's value is in."""
    return machine.target if parameter.launch else machine.arch


def class_of(size: int) -> int:
    """The least power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()


def dtype_of(spec: Spec) -> str:
    """The dtypes of a spec's operands, each once: `"float32"`, `"float32 bfloat16"`."""
    return " ".join(dict.fromkeys(operand.dtype for operand in spec.operands))


# What is in force

_forced: Setting[Mapping[str, Values] | None] = Setting("forced", None)
_own: Setting[Sequence[Table]] = Setting("own", ())


def forced(values: Mapping[str, Values]) -> AbstractContextManager[None]:
    """Within this, kernels of the ops in `values` get these values and no table's."""
    return _forced.to(values)


def using(tables: Sequence[Table]) -> AbstractContextManager[None]:
    """Within this, the rows of `tables` come before those of the package."""
    return _own.to(tables)


@cache
def checked_in(place: str) -> Table | None:
    """The package's table for an architecture or a kind of target; None where there is none."""
    path = CHECKED_IN / f"{place}.json"
    return Table.read(path) if path.exists() else None


# Whether a row still speaks of its kernel


def fingerprint(kernel: Kernel) -> str:
    """What a kernel's own code is: its file, and what it imports of its target but other kernels.

    Comments, docstrings and layout do not count.
    """
    module = sys.modules[kernel.emit.__module__]
    assert module.__file__ is not None
    return _fingerprint(Path(module.__file__))


@cache
def _fingerprint(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(_with_own(path, path.parent, set())):
        digest.update(repr(_shape(ast.parse(file.read_text()))).encode())
    return digest.hexdigest()[:16]


def _with_own(path: Path, folder: Path, found: set[Path]) -> set[Path]:
    """`path` and what it needs of `folder`: modules of its packages, or with an underscore."""
    found.add(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                _, _, inside = f".{name}".partition(f".{folder.name}.")
                other = folder / f"{inside.replace('.', '/')}.py"
                own = inside.startswith("_") or "." in inside
                if own and other.exists() and other not in found:
                    _with_own(other, folder, found)
    return found


def _shape(node: Any) -> Any:
    """A syntax tree as plain values, without places and docstrings, in every Python the same."""
    if isinstance(node, list):
        texts = [isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in node]
        return [_shape(item) for item, text in zip(node, texts, strict=True) if not text]
    if not isinstance(node, ast.AST):
        return node
    fields = ((name, _shape(value)) for name, value in ast.iter_fields(node))
    return type(node).__name__, [pair for pair in fields if pair[1] not in (None, [])]


def orphaned(kernels: Sequence[Kernel], tables: Sequence[Table]) -> list[str]:
    """The rows that belong to none of `kernels`, a sentence each."""
    known = {kernel.op for kernel in kernels}
    return [
        f"{_where(table, row)}: no kernel of this name has parameters"
        for table in tables
        for row in table.rows
        if row.op not in known
    ]


def stale(kernels: Sequence[Kernel], tables: Sequence[Table]) -> list[str]:
    """What is wrong with rows of `kernels` in `tables`, a sentence each; empty where all is well.

    A row is stale when its kernel's code has changed since it was measured, or when its kernel has
    no such parameter or value any more.
    """
    problems = []
    for table in tables:
        for kernel, row in ((k, r) for k in kernels for r in table.rows if r.op == k.op):
            parameters = kernel.space.parameters if kernel.space else ()
            allowed = {parameter.name: parameter.values for parameter in parameters}
            where = _where(table, row)
            for name, value in row.values.items():
                if value not in allowed.get(name, ()):
                    problems.append(f"{where}: the kernel has no {name}={value}")
            if row.sources != fingerprint(kernel):
                problems.append(f"{where}: measured on {row.date} with other sources")
    return problems


def _where(table: Table, row: Row) -> str:
    """A row in words."""
    sizes = " ".join(f"{name}={size}" for name, size in row.shape.items())
    return f"{table.place}.json: {row.op} {row.dtype} {sizes}"
