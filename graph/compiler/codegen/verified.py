"""Emitted modules are verified; what is wrong is named by its line in the kernel's Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heddle.kernels import convert, emit, memory, mlir
from heddle.kernels.mlir import ir
from heddle.runtime.errors import CompileError

_HELPERS = {Path(str(module.__file__)).name for module in (convert, emit, memory, mlir)}


def verified(make: Callable[[], Any]) -> Any:
    """The module that `make` emits.

    Raises:
        CompileError: It is not valid; the message names the kernel's file and line.
    """
    module = make()
    try:
        module.operation.verify()
    except ir.MLIRError:  # with locations, which emission without an error does not pay for
        with ir.loc_tracebacks():
            again = make()
        try:
            again.operation.verify()
        except ir.MLIRError as error:
            first = error.error_diagnostics[0]
            raise CompileError(f"{_line(str(first.location))}: {first.message}") from None
    return module


def _line(location: str) -> str:
    """The innermost frame of a traceback that is not in a helper's file."""
    frames = [(Path(file).name, line) for file, line in re.findall(r'\("([^"]+)":(\d+)', location)]
    own = [frame for frame in frames if frame[0] not in _HELPERS]
    return ":".join((own or frames or [("unknown", "0")])[0])
