"""The mark of tests that assemble PTX."""

import pytest

from heddle.graph.compiler.codegen import ptx

needs_assembler = pytest.mark.skipif(
    not (ptx.find_nvjitlink() or ptx.find_ptxas()),
    reason="no PTX assembler: neither nvidia-nvjitlink nor ptxas is installed",
)
