"""Machine code as a person reads it, by the programs that their makers offer for it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from heddle.runtime.errors import InputError


def x86(image: bytes, entry: int) -> str:
    """The instructions of a CPU image from its entry on; constants follow the code.

    Raises:
        InputError: `objdump` is not there, or does not read the image.
    """
    program = shutil.which("objdump")
    if program is None:
        raise InputError(
            "asm: wanted objdump (binutils) on PATH, found none; 'heddle inspect --kernel NAME "
            "--show asm' builds a kernel afresh and needs none"
        )
    form = ("-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn")
    return _run([program, *form, f"--start-address={entry}"], image)


def sass(cubin: bytes) -> str:
    """The instructions of a cubin.

    Raises:
        InputError: Neither `nvdisasm` nor `cuobjdump` is there, or it refuses the cubin.
    """
    program = shutil.which("nvdisasm") or packaged_nvdisasm()
    if program is not None:
        return _run([str(program), "-c"], cubin)
    program = shutil.which("cuobjdump")
    if program is not None:
        return _run([program, "-sass"], cubin)
    raise InputError(
        "sass: wanted nvdisasm or cuobjdump on PATH, found none; pip install nvidia-cuda-nvdisasm"
    )


def packaged_nvdisasm() -> Path | None:
    """The program of the package nvidia-cuda-nvdisasm, if it is installed."""
    try:
        package = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        return None
    folders = (package.submodule_search_locations or ()) if package else ()
    programs = [Path(folder) / "bin" / "nvdisasm" for folder in folders]
    return next((program for program in programs if program.exists()), None)


def _run(command: list[str], code: bytes) -> str:
    with tempfile.NamedTemporaryFile(prefix="heddle-") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([*command, file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
