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


def check_products_overlap(cubin: ptx.Cubin) -> None:
    """Asserts that ptxas made no product of warpgroups wait for the one before it.

    C7510 and its like say so, and that setmaxnreg is without effect. nvJitLink says it also of
    kernels that ptxas takes as they are.
    """
    if ptx.find_ptxas():
        assert not re.search(r"C75\d\d|serializ", cubin.log)


def machine_code(cubin: ptx.Cubin) -> str:
    """The instructions of a kernel, none of which puts a register into memory."""
    code = disassembly.sass(cubin.data)
    assert not re.search(r"\b(LDL|STL)", code)
    return code
