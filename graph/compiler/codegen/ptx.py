"""PTX to cubin without a GPU: by `ptxas`, else libnvJitLink in this process, else not at all.

nvJitLink makes code to be linked with other code: there setmaxnreg has no effect, and products by
wgmma wait for one another in a kernel that divides, as a division may be a call. ptxas makes whole
programs, so that it comes first; nvJitLink is there wherever PyTorch is.

Sources: the nvJitLink header of CUDA 13.0 (options, status, exported names), the CUDA Binary
Utilities manual for `ptxas -v`. Both assemblers print the same log, which `resources` reads.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heddle.runtime.errors import CompileError


@dataclass(frozen=True)
class Cubin:
    """Assembled code of one kernel, and what a thread or block of it needs.

    `spills` is bytes stored and loaded for spilled registers plus the stack frame; `shared` is the
    static shared memory in bytes; `log` is what the assembler said.
    """

    data: bytes
    registers: int
    spills: int
    shared: int
    log: str


def assemble(ptx: str, arch: str) -> Cubin | None:
    """Assembles `ptx` for `arch` (`"sm_90a"`); None where no assembler is installed.

    Raises:
        CompileError: The assembler refuses the PTX; the message ends with its log.
    """
    for find, run in _ASSEMBLERS:
        found = find()
        if found is not None:
            return run(found, ptx, arch)
    return None


def find_ptxas() -> Path | None:
    """`ptxas` of the package nvidia-cuda-nvcc (the extra `cuda`), else of a toolkit on PATH."""
    found = _packaged("bin/ptxas") or shutil.which("ptxas")
    return Path(found) if found else None


def find_nvjitlink() -> Path | None:
    """The library of the package nvidia-nvjitlink, if it is installed."""
    return _packaged("lib/libnvJitLink.so.13")


def _packaged(name: str) -> Path | None:
    """A file of NVIDIA's packages for CUDA 13."""
    try:
        package = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        return None
    folders = (package.submodule_search_locations or ()) if package else ()
    files = [Path(folder) / name for folder in folders]
    return next((file for file in files if file.exists()), None)


def with_nvjitlink(library: Path, ptx: str, arch: str) -> Cubin:
    """Assembles with libnvJitLink, in this process; arguments and errors as `assemble`."""
    link = ctypes.CDLL(str(library))
    options = (f"-arch={arch}".encode(), b"-O3", b"-Xptxas=-v", b"-no-cache")
    handle = ctypes.c_void_p()

    def call(name: str, *arguments: object) -> int:
        # Since CUDA 12 the header maps every name to one that carries the version.
        return int(link[f"__nvJitLink{name}_13_0"](*arguments))

    def read(what: str) -> bytes:
        size = ctypes.c_size_t()
        call(f"Get{what}Size", handle, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        if size.value:
            call(f"Get{what}", handle, data)
        return data.raw

    created = call(
        "Create", ctypes.byref(handle), len(options), (ctypes.c_char_p * len(options))(*options)
    )
    if created:
        raise CompileError(f"nvJitLink: wanted a linker for {arch}, got status {created}")
    try:
        data = ptx.encode() + b"\0"
        is_ptx = 2
        status = call("AddData", handle, is_ptx, data, ctypes.c_size_t(len(data)), b"kernel")
        status = status or call("Complete", handle)
        if status:
            raise _refused("nvJitLink", arch, _text(read("ErrorLog")))
        return resources(read("LinkedCubin"), _text(read("InfoLog")))
    finally:
        call("Destroy", ctypes.byref(handle))


def with_ptxas(program: Path, ptx: str, arch: str) -> Cubin:
    """Assembles with the program `ptxas`; arguments and errors as `assemble`."""
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [str(program), "-v", f"-arch={arch}", "-O3", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _refused("ptxas", arch, done.stdout + done.stderr)
        return resources(target.read_bytes(), done.stdout + done.stderr)


def resources(cubin: bytes, log: str) -> Cubin:
    """Reads registers, spills and shared memory of the one kernel from an assembler's log.

    Raises:
        CompileError: The log names no register count.
    """

    def find(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    registers = find(r"Used (\d+) registers")
    if not registers:
        raise CompileError(f"PTX assembler: wanted 'Used N registers' in its log, got {log!r}")
    spills = sum(
        find(rf"(\d+) bytes {what}") for what in ("stack frame", "spill stores", "spill loads")
    )
    return Cubin(cubin, registers, spills, find(r"(\d+) bytes smem"), log)


_ASSEMBLERS: tuple[tuple[Callable[[], Path | None], Callable[[Path, str, str], Cubin]], ...] = (
    (lambda: find_ptxas(), with_ptxas),
    (lambda: find_nvjitlink(), with_nvjitlink),
)


def _refused(name: str, arch: str, log: str) -> CompileError:
    return CompileError(f"{name}: wanted a cubin for {arch}, the PTX was refused:\n{log.strip()}")


def _text(log: bytes) -> str:
    return log.decode(errors="replace").rstrip("\0")
