"""A codegen child: reads one job for each line of standard input, answers with one line each.

A job is `{"spec": <Spec.to_json()>, "arch": ..., "values": {...}, "sources": <fingerprint>}`, an
answer `{"codes": [...]}` or `{"error": "..."}`. Whatever LLVM prints goes to standard error, where
the parent finds the reason of a crash. Without a job for `PATIENCE` seconds the child ends.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import traceback
from pathlib import Path
from typing import Any

from heddle import kernels
from heddle.graph.compiler.cache import encode, fingerprint
from heddle.graph.compiler.codegen.pool import PATIENCE
from heddle.kernels import tuning
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Spec
from heddle.runtime.artifact import Code
from heddle.runtime.errors import HeddleError

KERNELS = Path(kernels.__file__).parent


def main() -> None:
    """Serves jobs until no more come."""
    gc.set_threshold(20_000)  # emission makes many objects, and hardly a cycle
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # no print of a library may mix with the answers
    while select.select([sys.stdin], [], [], PATIENCE)[0] and (line := sys.stdin.readline()):
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    if job["sources"] != fingerprint(MACHINES[job["arch"]].target):
        # The parent would file the code under sources that did not make it.
        return {"error": "the compiler's sources have changed since this process began"}
    try:
        spec = Spec.from_json(job["spec"])
        with tuning.forced({spec.op: job["values"]}):
            return {"codes": encode(compile_kernel(spec, job["arch"]))}
    except Exception as error:  # the parent raises it, with the op and the user's line
        traceback.print_exc()
        return {"error": f"{_place(error)}{type(error).__name__}: {error}"}


def _place(error: Exception) -> str:
    """The line of a kernel that `error` came through; of one that is refused on purpose, none."""
    if isinstance(error, HeddleError):
        return ""
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(KERNELS)
    ]
    rooms = KERNELS / "cpu", KERNELS / "cuda"
    # Not the helpers that it calls, which lie in packages or have an underscore.
    own = [(path, line) for path, line in frames if path.parent in rooms and path.name[0] != "_"]
    path, line = (own or frames or [(KERNELS, None)])[-1]
    return f"kernels/{path.relative_to(KERNELS)}:{line}: " if line else ""


def compile_kernel(spec: Spec, arch: str) -> tuple[Code, ...]:
    """The machine code of `spec` for `arch`."""
    machine = MACHINES[arch]
    if machine.target == "cpu":
        from heddle.graph.compiler.codegen.cpu import compile_cpu

        return (compile_cpu(spec, machine),)
    from heddle.graph.compiler.codegen.cuda import compile_cuda

    return compile_cuda(spec, machine)
