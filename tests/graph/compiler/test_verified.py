"""What a kernel's author got wrong is named by its file and line."""

import pytest

from heddle.graph.compiler.codegen import cpu, cuda
from heddle.kernels import emit
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Launch
from heddle.runtime.errors import CompileError


def wrong():
    real = emit.constant(emit.memory_type("float32"), 1)
    return real + emit.index(3)


LINE = wrong.__code__.co_firstlineno + 2


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_an_invalid_kernel_is_named_by_its_line(kind):
    machine = next(machine for machine in MACHINES.values() if machine.target == kind)
    makers = {
        "cpu": lambda: cpu.function(machine, wrong),
        "cuda": lambda: cuda.function(1, 0, Launch((1, 1, 1), 1, (32, 1, 1)), wrong),
    }
    with context(), ir.Location.unknown(), pytest.raises(CompileError) as error:
        makers[kind]()
    assert str(error.value) == (
        f"test_verified.py:{LINE}: 'arith.addf' op operand #1 must be floating-point-like, "
        "but got 'i64'"
    )
