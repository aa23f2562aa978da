"""The tables at the head of docs/performance.md: what the results' files say, a line for each work.

`report.py` puts them there. A cell is the geometric mean of a column over the rows of one file,
with the least and the greatest of them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from measure import RESULTS

Row = dict[str, Any]
Table = tuple[list[str], list[list[str]]]
"""The columns, and the cells of each line."""

CPUS = {"Intel with AMX": "_amx", "Zen 5": "", "Zen 4": "_zen4", "Zen 3, AVX2": "_avx2"}
"""The CPUs of the results, by the ends of their files' names."""


class Work(NamedTuple):
    """A line: where its figures are, and which of them."""

    name: str
    beside: str
    file: str
    column: str = "ratio"
    rows: Callable[[Row], bool] = lambda row: True


def _of(**wanted: Any) -> Callable[[Row], bool]:
    """Rows with `wanted` in their columns; of words their beginning is enough."""

    def as_wanted(row: Row) -> bool:
        return all(
            row[key].startswith(value) if isinstance(value, str) else row[key] == value
            for key, value in wanted.items()
        )

    return as_wanted


ENGINES = "fastest of ONNX Runtime, OpenVINO and PyTorch's compiler"
LIBRARIES = "faster of oneDNN and OpenBLAS"
CONVOLUTIONS = "oneDNN; of pooling PyTorch"
PEERS = [
    Work("MiniLM, float32", ENGINES, "minilm"),
    Work("MiniLM, bfloat16", "faster of OpenVINO and PyTorch's compiler", "minilm_bfloat16"),
    Work("networks from ONNX files", "faster of ONNX Runtime and OpenVINO", "onnx_models"),
    Work("networks of pictures, exported", "faster of ONNX Runtime and OpenVINO", "vision_models"),
    Work("language model, int8", "llama.cpp", "decode_int8"),
    Work("language model, int4", "llama.cpp", "decode_int4"),
    *(
        Work(f"products, {dtype}", LIBRARIES, "gemm", rows=_of(dtype=dtype))
        for dtype in ("float32", "bfloat16", "int8")
    ),
    *(
        Work(f"convolutions and pooling, {dtype}", CONVOLUTIONS, "conv", rows=_of(dtype=dtype))
        for dtype in ("float32", "bfloat16")
    ),
    *(
        Work(f"attention, {dtype}", "PyTorch", "attention", rows=_of(dtype=dtype))
        for dtype in ("float32", "bfloat16")
    ),
    Work("norms, softmax, sums, moves, float32", "PyTorch, as called", "bandwidth"),
    Work(
        "softmax, sums, moves, float32", "PyTorch, given its output", "bandwidth", "ratio, given it"
    ),
]

_SHARE = "of its limit"
LIMITS = [
    *(
        Work(f"products, {dtype}", "registers", "gemm", "of peak", _of(dtype=dtype))
        for dtype in ("float32", "bfloat16", "int8")
    ),
    *(
        Work(f"1 row, {kind}", "reading, or products", "skinny", _SHARE, _of(weights=kind, rows=1))
        for kind in ("float32", "bfloat16", "int8", "int4")
    ),
    Work("8 rows, all weights", "reading, or products", "skinny", _SHARE, _of(rows=8)),
    Work("norms, softmax, sums, moves, float32", "a copy", "bandwidth", "share"),
]


HIGHLIGHTS = ("MiniLM, float32", "MiniLM, bfloat16", "language model, int4", "attention, float32")
"""Of `PEERS`, what README.md shows."""


def _values(rows: Iterable[Row], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row.get(column) not in (None, "")]


def cell(values: list[float]) -> str:
    """A geometric mean, and what it is the mean of: `1.10 (0.98 to 1.31)`."""
    if not values:
        return ""
    mean = f"{statistics.geometric_mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"


def _figures(work: Work, end: str) -> list[float]:
    path = RESULTS / f"{work.file}{end}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return _values(filter(work.rows, rows), work.column)


def _on_cpus(first: str, works: list[Work]) -> Table:
    rows = [
        [work.name, work.beside, *(cell(_figures(work, end)) for end in CPUS.values())]
        for work in works
    ]
    return ["work", first, *CPUS], rows


def _on_gpu(file: str) -> Table:
    """Ratios to what torch calls, by op and dtype, in the order in which they were timed."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in json.loads((RESULTS / f"{file}.json").read_text())["timings"]:
        if "ratio" in row:
            found.setdefault((row["name"], row["dtype"]), []).append(row["ratio"])
    rows = [[*key, str(len(ratios)), cell(ratios)] for key, ratios in found.items()]
    return ["op", "dtype", "sizes", "ratio"], rows


TABLES: dict[str, Callable[[], Table]] = {
    "peers": lambda: _on_cpus("beside", PEERS),
    "highlights": lambda: _on_cpus("beside", [w for w in PEERS if w.name in HIGHLIGHTS]),
    "limits": lambda: _on_cpus("limit", LIMITS),
    "gpu": lambda: _on_gpu("gpu_h200"),
}


def table(name: str) -> str:
    """The summary `name` as Markdown."""
    columns, rows = TABLES[name]()
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
