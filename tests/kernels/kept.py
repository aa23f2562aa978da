"""What LLVM and the PTX assemblers make of a text, kept for other tests, workers and runs.

Tests of kernels emit, verify and lower each time. Only what others' tools make of the outcome is
looked up, in the folder of the kernel cache: under the sha256 of the tool's version, of the code
that calls it and of all that it is given. So a kernel that changes, or that a test changes, never
meets what another text gave.
"""

import hashlib
import inspect
import pickle
import zlib
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from pathlib import Path

import pytest

from heddle.graph.compiler import cache
from heddle.graph.compiler.codegen import cpu, cuda, ptx
from heddle.runtime import config, whole_file

ADDRESS = "inttoptr (i64"
"""In a text that calls a function of this process, which is of no use to others."""

enabled = True


def install(patch: pytest.MonkeyPatch) -> None:
    """Puts `kept` around the tools."""
    folder = config.cache_folder()
    if folder is None:
        return
    llvm = f"llvmlite {version('llvmlite')}"
    for module, name in ((cpu, "to_object"), (cuda, "_generate")):
        patch.setattr(module, name, kept(folder / "tools", getattr(module, name), llvm))
    every = f"{cache.assembler()}, nvjitlink {cache._version('nvidia-nvjitlink')}"
    assemblers = []
    for find, run in ptx._ASSEMBLERS:
        again = kept(folder / "tools", run, every)
        patch.setattr(ptx, run.__name__, again)
        assemblers.append((find, again))
    patch.setattr(ptx, "_ASSEMBLERS", tuple(assemblers))


def kept(folder: Path, function: Callable, tool: str) -> Callable:
    """`function`, whose results are looked up in `folder`; what it raises is not kept."""
    maker = inspect.getsource(inspect.getmodule(function))

    @wraps(function)
    def call(*arguments):
        if not enabled or any(ADDRESS in str(argument) for argument in arguments):
            return function(*arguments)
        asked = repr((function.__name__, maker, tool, arguments))
        path = folder / hashlib.sha256(asked.encode()).hexdigest()
        if path.exists():
            return pickle.loads(zlib.decompress(path.read_bytes()))
        found = function(*arguments)
        folder.mkdir(parents=True, exist_ok=True)
        whole_file.save(path, zlib.compress(pickle.dumps(found), 1))
        return found

    return call
