"""Timings of a kit, and steps, once more with other constants, in turns with those that ship.

    python benchmarks/gpu_kit.py KIT.tar.xz --match matmul --variant cuda.products.by_rows.FEW=32

A machine with a GPU compiles nothing, so that what is to be compared there comes with the kit. A
variant is constants of modules in kernels/, as they are named there; several with commas between
them. Where another module has taken the constant over (`from ... import FEW`) that one is named,
too. The kit has those timings of a variant whose code differs from what ships; `gpu.py` says for
each how many times as fast it is, and fails one whose result is another. A kit without `--match`
has variants of decoding steps as well: what a kernel gains alone it may lose beside others.
"""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from heddle.graph import compile
from heddle.graph.compiler.codegen import pool, worker
from heddle.kernels import tuning


@contextmanager
def varied(variant: str) -> Iterator[None]:
    """What is compiled in it has the constants of `variant`: here, without children or a cache.

    Raises:
        SystemExit: There is no such module or constant, or its value is of another type.
    """
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, HEDDLE_CACHE="off"))
        stack.enter_context(mock.patch.object(pool, "run", _run))
        for assignment in variant.split(","):
            place, _, text = assignment.strip().partition("=")
            path, _, name = place.rpartition(".")
            module = _module(path)
            stack.enter_context(mock.patch.object(module, name, _value(module, place, text)))
        yield


def write(
    folder: Path, path: str, graph: Any, target: str, variants: Sequence[str]
) -> dict[str, str]:
    """Writes the artifacts of those `variants` that are others than the one at `path`."""
    shipped, found = (folder / f"{path}.heddle").read_bytes(), {}
    for number, variant in enumerate(variants):
        with varied(variant):
            artifact = compile(graph, target)
        if artifact.to_bytes() != shipped:
            found[variant] = f"{path}v{number}"
            artifact.save(folder / f"{found[variant]}.heddle")
    return found


def _run(jobs: Sequence[Any], done: Callable[[Any, Any], None], **_: Any) -> None:
    for job in jobs:
        with tuning.forced({job.spec.op: dict(job.values)}):
            done(job, worker.compile_kernel(job.spec, job.arch))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"heddle.kernels.{name}")
    except ModuleNotFoundError as error:
        raise SystemExit(f"--variant: wanted a module of kernels/, got {name!r}: {error}") from None


def _value(module: Any, place: str, text: str) -> Any:
    """The value that `text` gives the constant at `place`, of the type that it has."""
    path, _, name = place.rpartition(".")
    constants = {key: value for key, value in vars(module).items() if key.isupper()}
    if name not in constants:
        known = ", ".join(constants) or "none"
        raise SystemExit(f"--variant: wanted a constant of {path}: {known}; got {name!r}")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = None
    if type(value) is not type(constants[name]):
        kind = type(constants[name]).__name__
        raise SystemExit(f"--variant: {place}: wanted one of type {kind}, got {text!r}")
    return value
