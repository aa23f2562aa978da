"""ONNX's own cases for its operators, built by the importer and computed by the reference.

    python tests/pipelines/onnx/conformance.py

writes the table of docs/onnx.md. A case gives all that an operator takes as inputs of a model, so
its settings (axes, pads, shapes), which have to be known while a file is read, become initializers:
the last input first, until the file can be read. So do numbers of dtypes that Heddle lacks.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from heddle.graph import reference
from heddle.pipelines.onnx import file, importer
from heddle.pipelines.onnx.table import canonical
from heddle.runtime.errors import GraphError

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
START, END = "<!-- table of operators: generated -->\n", "<!-- end of the table -->\n"

ROUNDED = {"bfloat16": 2**-6, "float16": 2**-9}
"""Relative tolerances of what is rounded at other places than in ONNX's reference."""

SETTINGS = ("known when the file is read", "made of sizes")
"""What errors say of inputs that have to be initializers."""


class Outcome(NamedTuple):
    """What became of a case: "" where it passed, else why not."""

    operator: str
    case: str
    why: str


def cases() -> list[Any]:
    """All that have tensors alone, for the operators that run (not those that train)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX makes its cases by overflowing on purpose
        found = load_model_tests(kind="node")
    return [case for case in found if not _operator(case).startswith("ai.onnx.preview")]


def outcomes() -> Iterator[Outcome]:
    """Runs all cases."""
    for case in cases():
        try:
            why = _run(case)
        except (GraphError, IndexError) as error:
            why = str(error)
        yield Outcome(_operator(case), case.name, why)


def _operator(case: Any) -> str:
    """The operator that a case is about; that of an expanded one is in its name alone."""
    name = case.name.partition("_expanded")[0]
    if name != case.name:
        return f"expanded {name}"
    node = case.model.graph.node[0]
    domain = canonical(node.domain)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _run(case: Any) -> str:
    names = [row.name for row in case.model.graph.input]
    for inputs, wanted in case.data_sets:
        if any(isinstance(value, (list, dict, type(None))) for value in (*inputs, *wanted)):
            return "a sequence, a map or an optional value"
        arrays = dict(zip(names, map(_array, inputs), strict=True))
        if any(array.dtype.kind in "OSU" for array in arrays.values()):
            return "texts"
        found, given = _built(case, arrays)
        results = reference.evaluate(found.graph, [arrays[name] for name in given], found.weights)
        for got, value in zip(results, map(_array, wanted), strict=True):
            if why := _difference(got, value, case):
                return why
    return ""


def _built(case: Any, arrays: dict[str, Any]) -> tuple[importer.Imported, list[str]]:
    """The case's graph, with as few initializers as it can be read with, and its inputs' names."""
    for count in range(len(arrays) + 1):
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        given = list(arrays)[: len(arrays) - count]
        for name in list(arrays)[len(given) :]:
            model.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
        try:
            found = importer.build(file.checked(model, case.name), case.name, case.name)
        except GraphError as error:
            if not given or not any(text in str(error) for text in SETTINGS):
                raise
        else:
            return found, given
    raise AssertionError("the last round returns or raises")


def _array(value: Any) -> np.ndarray:
    return (
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    )


def _difference(got: np.ndarray, wanted: np.ndarray, case: Any) -> str:
    """How a result differs from what ONNX says, or nothing."""
    if got.shape != wanted.shape:
        return f"shape {got.shape} instead of {wanted.shape}"
    held = np.dtype("float32") if _is_narrow(wanted.dtype) else wanted.dtype
    if got.dtype != held:
        return f"{got.dtype} instead of {wanted.dtype}"
    if wanted.dtype == bool or wanted.dtype.kind in "iu":
        return "" if np.array_equal(got, wanted) else "other integers"
    relative = max(case.rtol, ROUNDED.get(wanted.dtype.name, 0))
    close = np.allclose(
        got.astype(np.float64), wanted.astype(np.float64), relative, relative / 100, equal_nan=True
    )
    return "" if close else "other numbers"


def _is_narrow(dtype: np.dtype) -> bool:
    return dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)


def table(found: list[Outcome]) -> str:
    """The lines of the page: operators with cases that pass, and how many of them."""
    counts: dict[str, list[bool]] = defaultdict(list)
    for each in found:
        counts[each.operator].append(not each.why)
    plain = {name: passed for name, passed in counts.items() if not name.startswith("expanded ")}
    expanded = [not each.why for each in found if each.operator.startswith("expanded ")]
    whole = sorted(name for name, passed in plain.items() if all(passed))
    partly = sorted(name for name, passed in plain.items() if any(passed) and not all(passed))
    never = sorted(name for name, passed in plain.items() if not any(passed))
    every = [not each.why for each in found]
    lines = [
        f"ONNX {onnx.__version__} has {len(every)} cases for operators that run; {sum(every)} of "
        "them pass,",
        f"{sum(expanded)} of {len(expanded)} where an operator is replaced by the function that "
        "defines it.",
        "",
        "| | operators |",
        "|---|---|",
        f"| all cases pass | {', '.join(whole)} |",
        "| some pass | "
        + ", ".join(f"{name} ({sum(plain[name])} of {len(plain[name])})" for name in partly)
        + " |",
        f"| none | {', '.join(never)} |",
    ]
    return "\n".join(lines) + "\n"


def generated(page: str, lines: str) -> str:
    """The page with its table."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{lines}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    found = list(outcomes())
    PAGE.write_text(generated(PAGE.read_text(), table(found)))
    for each in found:
        if each.why:
            print(f"{each.operator}: {each.case}: {each.why[:160]}")


if __name__ == "__main__":
    main()
