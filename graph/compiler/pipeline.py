"""The compiler from top to bottom: a module goes through these passes, once for each target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes.canonicalize import canonicalize
from heddle.graph.compiler.passes.cut import cut
from heddle.graph.compiler.passes.fold_constants import fold_constants
from heddle.graph.compiler.passes.fuse import fuse
from heddle.graph.compiler.passes.hoist import hoist
from heddle.graph.compiler.passes.join import join
from heddle.graph.compiler.passes.legalize import legalize
from heddle.graph.compiler.passes.pack import pack
from heddle.graph.compiler.passes.plan import plan
from heddle.graph.compiler.passes.recognize import recognize
from heddle.graph.compiler.passes.select import select
from heddle.graph.compiler.passes.settle import settle
from heddle.graph.compiler.passes.sink import sink
from heddle.graph.compiler.passes.turn import turn
from heddle.kernels.mlir import ir
from heddle.runtime import config
from heddle.runtime.errors import CompileError

Pass = Callable[[Any, str], None]
"""Changes a module in place for a kind of target, `"cpu"` or `"cuda"`."""

PASSES: tuple[Pass, ...] = (
    canonicalize,  # the same graph, simpler
    fold_constants,  # what is known now is computed now
    recognize,  # what is written out in other ops becomes one
    cut,  # what slices leave out is not computed
    legalize,  # only forms that kernels take
    sink,  # channels stay last from one convolution to the next
    pack,  # CPU: matmuls read packed panels
    turn,  # CUDA: right sides lie as tensor cores want them
    fuse,  # groups of ops become kernels
    join,  # a decoder's step writes its cache in one kernel
    hoist,  # what depends on weights alone runs at load
    settle,  # embedded weights lie as kernels read them
    select,  # each group has a kernel, or an error says why not
    plan,  # each value has its place in memory
)


def lower(module: Any, kind: str, *, embedded: bool = False, stop_after: str | None = None) -> Any:
    """A copy of `module` after the passes for `kind`, verified after each.

    Args:
        module: The graph's module, which stays as it is.
        kind: `"cpu"` or `"cuda"`.
        embedded: The weights will be in the artifact, and this is its only program.
        stop_after: The name of the last pass to run; None runs all.

    Raises:
        CompileError: No such pass; or a pass failed: its name, the op and the user's line.
    """
    passes = passes_until(stop_after)
    module = m.clone(module)
    _dump(module, kind, 0, "input")
    with module.context, ir.Location.unknown():
        if embedded:
            for operation in m.operations(module):
                if m.name(operation) == "weight":
                    operation.attributes["embedded"] = ir.UnitAttr.get()
        for number, each in enumerate(passes, 1):
            _apply(each, module, kind)
            _dump(module, kind, number, each.__name__)
    return module


def passes_until(name: str | None) -> tuple[Pass, ...]:
    """The passes up to the one called `name`; None means all.

    Raises:
        CompileError: No such pass.
    """
    names = [each.__name__ for each in PASSES]
    if name is not None and name not in names:
        raise CompileError(f"stop_after: wanted one of {', '.join(names)}, got {name!r}")
    return PASSES if name is None else PASSES[: names.index(name) + 1]


def _apply(each: Pass, module: Any, kind: str) -> None:
    try:
        each(module, kind)
        module.operation.verify()
    except m.RefusalError as refusal:
        where = m.label(refusal.operation)
        raise CompileError(f"{each.__name__}: {where}: {refusal}") from None
    except ir.MLIRError as error:
        raise CompileError(f"{each.__name__}: invalid result: {_first(error)}") from error


def _first(error: Any) -> str:
    """The first diagnostic of an MLIR error, with the op's line."""
    for diagnostic in error.error_diagnostics:
        typed = ir.Location.from_attr(diagnostic.location.attr)  # else it is a bare Location
        return f"{m.line_of(typed)}: {diagnostic.message}"
    return str(error)


def _dump(module: Any, kind: str, number: int, name: str) -> None:
    folder = config.get("HEDDLE_DUMP")
    if folder:
        path = Path(folder) / kind / f"{number:02}_{name}.mlir"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{module}\n")
        except OSError as error:
            raise CompileError(f"HEDDLE_DUMP: {path}: {error.strerror}") from None
