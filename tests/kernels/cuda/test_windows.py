"""window_matmul and window_reduce on the emulator."""

from dataclasses import replace

import pytest
from assembler import check_no_spills, needs_assembler
from window_cases import check
from window_specs import plain, reducing

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand
from heddle.kernels.tuning import forced

CASES = {
    "padding and a stride": ((2, "d0", "d1", 8), 20, (3, 3), 1, (2, 1), (1, 1, 1, 1)),
    "a stem": ((1, 9, 10, 3), 8, (5, 5), 1, (2, 2), (2, 2, 2, 2)),
    "dilation and groups": ((1, "d0", 8, 16), 12, (2, 3), 2, None, (1, 0, 3, 1), (1, 2)),
    "one axis": (("d0", 9, 4), 6, (3,), 1, (2,), (1, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_multiply_adds(name):
    with forced({"window_matmul": {"square": 32}}):
        check(plain("float32", *CASES[name], biased=True))


@pytest.mark.parametrize("name", ["padding and a stride", "a stem", "dilation and groups"])
def test_tensor_cores(name):
    check(plain("bfloat16", *CASES[name], biased=True))


def test_unaligned():
    check(plain("float16", (1, 4, 5, 8), 8, (3, 3), 1, None, (1, 1, 1, 1)), shift=1)


@pytest.mark.parametrize("size", ["d0", 0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_windows_of_padding_alone(dtype, size):
    """x has no element, so that nothing of it can be read in the place of a tap outside."""
    check(plain(dtype, (1, size, 8), 8, (3,), 1, None, (2, 2), biased=True), dims={"d0": 0})


@pytest.mark.parametrize("kind", ["max", "mean", "product"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reductions(dtype, kind):
    check(reducing(kind, dtype, (2, "d0", 9, 8), (3, 3), (2, 1), (1, 1, 0, 2), (1, 2)))
    check(reducing(kind, dtype, (2, "d0", 3), (2,)), shift=1)


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_is_spilled(dtype, arch):
    for spec in (
        plain(dtype, ("d0", 56, 56, 64), 64, (3, 3), 1, None, (1, 1, 1, 1), biased=True),
        reducing("max", dtype, ("d0", 112, 112, 64), (3, 3), (2, 2), (1, 1, 1, 1)),
    ):
        check_no_spills(spec, arch)


def test_refusals():
    spec = plain("float32", (1, 5, 5, 4), 8, (3, 3))
    supports = find(spec.op, "cuda").supports
    other = Operand("float16", spec.operands[1].shape)
    mixed = replace(spec, operands=(spec.operands[0], other))
    assert supports(mixed) == "window_matmul of float16 and float32"
    before = Body(spec.operands[:1], (), (0,))
    assert supports(replace(spec, prologue=before)) == "it takes no prologue"
    spec = reducing("product", "float32", (1, 5, 5, 4), (3, 3), depth=2)
    supports = find(spec.op, "cuda").supports
    assert supports(spec) == "wanted weights of single channels, got groups of 2"
