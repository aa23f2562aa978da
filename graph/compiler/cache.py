"""The content-addressed kernel cache: machine code by what it was made from.

An entry is a file named after its key: the sha256 of its contents, a newline, the contents. It is
written beside its place and renamed, so that readers and other writers see all of it or none. An
entry whose checksum does not match, or that holds no codes of today, is a miss. A folder that
cannot be written costs one warning.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from heddle.graph.compiler.codegen import ptx
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Spec
from heddle.runtime.artifact import Code

_SOURCES = Path(__file__).parents[2]

Values = tuple[tuple[str, int], ...]
"""The kernel's parameters by name: what it was tuned to (`heddle.kernels.tuning`)."""

_TOOLS = ("torch-mlir", "mlir-python-bindings", "llvmlite")


class CacheWarning(UserWarning):
    """The kernel cache cannot be used; compiling goes on without it."""


class KernelCache:
    """Codes by job in `folder`; with None nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder / "kernels" if folder else None

    def get(self, spec: Spec, arch: str, values: Values = ()) -> tuple[Code, ...] | None:
        """The codes of `spec` for `arch`, or None where there is no sound entry."""
        if self.folder is None:
            return None
        try:
            data = self._path(spec, arch, values).read_bytes()
        except OSError:
            return None
        digest, _, contents = data.partition(b"\n")
        if digest != hashlib.sha256(contents).hexdigest().encode():
            return None
        try:
            return decode(json.loads(contents))
        except (ValueError, TypeError, KeyError):  # of a version whose codes have other fields
            return None

    def put(self, spec: Spec, arch: str, codes: Sequence[Code], values: Values = ()) -> None:
        """Keeps `codes`; where that fails, warns once and keeps nothing from then on."""
        if self.folder is None:
            return
        contents = json.dumps(encode(codes), sort_keys=True).encode()
        path = self._path(spec, arch, values)
        try:
            _write(path, hashlib.sha256(contents).hexdigest().encode() + b"\n" + contents)
        except OSError as error:
            self.folder = None
            message = f"kernel cache {path.parent}: {error.strerror}; compiling without it"
            warnings.warn(message, CacheWarning, stacklevel=2)

    def _path(self, spec: Spec, arch: str, values: Values) -> Path:
        assert self.folder is not None
        return self.folder / key(spec, arch, values)


def key(spec: Spec, arch: str, values: Values = ()) -> str:
    """What the code of `spec` for `arch` depends on, as sha256 in hex."""
    target = MACHINES[arch].target
    tool = assembler() if target == "cuda" else ""
    parts = (spec.to_json(), arch, fingerprint(target), tool, json.dumps(values))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def fingerprint(target: str) -> str:
    """sha256 over the sources that make a target's code and the versions of the tools behind."""
    digest = hashlib.sha256()
    codegen = Path(__file__).parent / "codegen"
    (other,) = {machine.target for machine in MACHINES.values()} - {target}
    for root in (_SOURCES / "kernels", codegen):
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(_SOURCES).with_suffix("")
            if other not in place.parts:
                digest.update(place.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for tool in _TOOLS:
        digest.update(f"{tool} {_version(tool)}\0".encode())
    return digest.hexdigest()


@cache
def assembler() -> str:
    """The PTX assembler in use, with its version; empty where there is none."""
    program = ptx.find_ptxas()
    if program is not None:
        return subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    if ptx.find_nvjitlink():
        return f"nvjitlink {_version('nvidia-nvjitlink')}"
    return ""


def encode(codes: Sequence[Code]) -> list[dict[str, Any]]:
    """`codes` as plain JSON values."""
    return [{**asdict(c), "data": base64.b64encode(c.data).decode()} for c in codes]


def decode(rows: list[dict[str, Any]]) -> tuple[Code, ...]:
    """The inverse of `encode`."""
    return tuple(Code(**{**row, "data": base64.b64decode(row["data"])}) for row in rows)


def _version(tool: str) -> str:
    try:
        return version(tool)
    except PackageNotFoundError:
        return "none"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
