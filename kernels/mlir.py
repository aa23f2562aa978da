"""The one door to the MLIR Python bindings.

PyPI has the complete upstream bindings as `torch-mlir`; a genuine `mlir` package of the same
generation is preferred where one is installed (its entry on PyPI is an empty placeholder).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

PROVIDERS = ("mlir", "torch_mlir")
DIALECTS = ("arith", "cf", "func", "irdl", "llvm", "math", "nvvm", "scf", "ub", "vector")
"""What kernels and graphs are made of; the parser and the passes load what else they meet."""

_NEEDED = ("_mlir_libs", "dialects.ext", "dialects.x86")


def provider(candidates: tuple[str, ...] = PROVIDERS) -> str:
    """The first package of `candidates` that has all of the bindings that Heddle uses.

    Raises:
        ImportError: None of them does.
    """
    for package in candidates:
        if all(_exists(f"{package}.{module}") for module in _NEEDED):
            return package
    raise ImportError(
        f"MLIR Python bindings: wanted {' or '.join(candidates)} with {', '.join(_NEEDED)}, "
        "found none; pip install 'heddle[compiler]'"
    )


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


PROVIDER = provider()

ir: Any = import_module(f"{PROVIDER}.ir")
passmanager: Any = import_module(f"{PROVIDER}.passmanager")


def dialect(name: str) -> Any:
    """The bindings of the dialect `name`: `dialect("llvm")`."""
    return import_module(f"{PROVIDER}.dialects.{name}")


def operation(name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
    """The one result, of type `kind`, of a new operation.

    The functions of `dialect` make a Python object of each operation's own class as well, which
    takes three times as long: they are for operations that kernels have few of.
    """
    return ir.Operation.create(name, [kind], operands, attributes).result


def context() -> Any:
    """A new context, with every upstream dialect registered and those of kernels loaded.

    To load them all takes six times as long, and canonicalization would look at each.
    """
    return ir.Context(load_on_create_dialects=DIALECTS)
