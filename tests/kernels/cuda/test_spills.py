"""Products of few and of many known rows, by every kind of weight, assemble without a spill.

Sums fill the registers there, and what is left differs from kind to kind: a kernel that spills
nothing for rows of run time may do so for exactly as many as its strips have, and with a body.
"""

from dataclasses import replace

import pytest
from assembler import needs_assembler
from test_tensor_cores import floats, integers, product, quantized

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Body, Spec, Step

SIZE = 4096
HALVES = ("bfloat16", "float16")


def gated(spec: Spec) -> Spec:
    """With `silu(result) * other` behind it."""
    steps = (Step("silu", (0,), spec.result.dtype), Step("mul", (2, 1), spec.result.dtype))
    return replace(spec, epilogue=Body((spec.result,) * 2, steps, (3,)))


def scaled(dtype: str, held: str, group: int, rows: int) -> Spec:
    bits = 4 if held == "uint8" else 8
    return quantized(dtype, rows, SIZE, SIZE, bits, group, held)


SCALED = {
    f"{dtype} by {held}": (dtype, held)
    for dtype in HALVES
    for held in ("float8_e4m3fn", "float8_e5m2", "int8", "uint8")
}

OTHERS = {
    "bfloat16": lambda m: gated(product("bfloat16", m, SIZE, SIZE, True)),
    "bfloat16 in columns": lambda m: product("bfloat16", m, SIZE, SIZE, False),
    "float16": lambda m: gated(product("float16", m, SIZE, SIZE, True)),
    "float8_e4m3fn": lambda m: floats("e4m3fn", "e4m3fn", m, SIZE, SIZE, True),
    "float8_e5m2": lambda m: gated(floats("e5m2", "e5m2", m, SIZE, SIZE, True)),
    "int8": lambda m: integers("int8", m, SIZE, SIZE, True),
}


def check(spec: Spec, arch: str) -> None:
    cubin = ptx.assemble(to_ptx(spec, MACHINES[arch]), arch)
    assert cubin.spills == 0
    assert cubin.registers <= 255


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", SCALED)
def test_by_weights_of_8_and_4_bits(name, arch):
    for group, rows, body in ((32, 64, False), (128, 64, False), (128, 512, True)):
        spec = scaled(*SCALED[name], group, rows)
        check(gated(spec) if body else spec, arch)


@needs_assembler
@pytest.mark.parametrize("name", SCALED)
def test_lines_that_are_no_power_of_two(name):
    """Who brings single elements counts their lines by multiplications."""
    dtype, held = SCALED[name]
    check(quantized(dtype, 300, 520, 1152, 4 if held == "uint8" else 8, 32, held), "sm_90a")


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", OTHERS)
def test_as_many_rows_as_a_strip(name, arch):
    check(OTHERS[name](64), arch)
