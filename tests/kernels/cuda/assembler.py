"""The marks of tests that assemble PTX, and what most of them look for."""

import re

import pytest

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Spec
from heddle.pipelines.cli import disassembly

needs_assembler = pytest.mark.skipif(
    not (ptx.find_nvjitlink() or ptx.find_ptxas()),
    reason="no PTX assembler: neither nvidia-nvjitlink nor ptxas is installed",
)
needs_ptxas = pytest.mark.skipif(not ptx.find_ptxas(), reason="ptxas is not installed")


def check_no_spills(spec: Spec, arch: str) -> str:
    """Asserts that all of a kernel's registers stay registers; its PTX."""
    text = to_ptx(spec, MACHINES[arch])
    assert ptx.assemble(text, arch).spills == 0
    return text


def machine_code(cubin: ptx.Cubin) -> str:
    """The instructions of a kernel, none of which puts a register into memory."""
    code = disassembly.sass(cubin.data)
    assert not re.search(r"\b(LDL|STL)", code)
    return code
