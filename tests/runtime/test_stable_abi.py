"""The bindings keep to the stable ABI of Python 3.12: with that and later ones they are built so.

Older ones build them against all of CPython, where what is not in it goes unnoticed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nanobind
import pytest

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
SOURCES = sorted((ROOT / "runtime/src/bindings").glob("*.cc"))
PROBE = """
#include "bindings.h"
const char* name_of(PyTypeObject* type) { return type->tp_name; }
"""


def errors(source: Path) -> str:
    """What a C++ compiler says of a file that may use the stable ABI alone."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    python = Path(sysconfig.get_path("include"))
    if compiler is None or not (python / "Python.h").exists() or sys.version_info < (3, 11):
        pytest.skip("needs a C++ compiler, and the headers of Python 3.11 or later")
    bindings = ROOT / "runtime/src/bindings"
    paths = ROOT / "runtime/include", bindings, nanobind.include_dir(), python
    command = [compiler, "-std=c++17", "-fsyntax-only", "-fvisibility=hidden"]
    command += [
        "-DPy_LIMITED_API=0x030C0000",
        "-include",
        HERE / "stable_abi.h",
        *(f"-I{path}" for path in paths),
        source,
    ]
    return subprocess.run(command, capture_output=True, text=True).stderr


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_bindings_keep_to_the_stable_abi(source):
    assert errors(source) == ""


def test_what_is_not_in_it_is_refused(tmp_path):
    (tmp_path / "probe.cc").write_text(PROBE)
    assert "PyTypeObject" in errors(tmp_path / "probe.cc")
