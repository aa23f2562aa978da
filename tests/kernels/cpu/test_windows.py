"""window_matmul_packed and window_reduce."""

from dataclasses import replace

import pytest
from native import ARCHS, DOTS, check
from window_specs import packed, reducing

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand

CASES = {
    "one axis": (("d0", "d1", 5), 33, (3,), 1, (2,), (1, 1), (1,)),
    "padding all around": ((2, "d0", "d1", 16), 64, (3, 3), 1, None, (1, 1, 1, 1)),
    "a stem": ((1, 20, 23, 3), 40, (7, 7), 1, (2, 2), (3, 3, 3, 3)),
    "dilation": ((1, "d0", 12, 8), 32, (2, 3), 1, (1, 2), (2, 0, 3, 1), (1, 2)),
    "groups": ((2, "d0", 9, 12), 20, (3, 3), 4, (2, 1), (1, 1, 2, 0)),
    "groups of whole panels": ((1, 5, 9, 6), 64, (1, 3), 2, None, (0, 0, 1, 1)),
    "several stretches and panels": ((1, 4, 5, 600), 170, (2, 2)),
    "strides of single taps": ((1, 9, 7, 70), 30, (1, 1), 1, (2, 3)),
    "three axes": ((1, "d0", 5, 6, 4), 24, (2, 3, 2), 1, (1, 2, 1), (1, 0, 1, 1, 0, 1)),
}
ROWS = {
    "several stretches": ((1, 5, 8, 160), 70, (3, 3), 1, None, (1, 1, 1, 1)),
    "one vector of results": ((1, "d0", 14, 32), 32, (3, 3), 2, None, (1, 1, 1, 1)),
    "taps that no window has": ((2, "d0", 6, 4), 8, (3, 5), 1, (2, 1), (3, 3, 4, 4)),
    "groups that end in one vector of a panel": ((1, "d0", 14, 12), 68, (1, 1), 2),
    "groups that end in three": ((1, "d0", 9, 6), 104, (1, 3), 2, None, (0, 0, 1, 1)),
    "steps and gaps": ((1, "d0", 19, 6), 40, (2, 3), 1, (1, 2), (0, 0, 0, 1), (1, 3)),
}
"""Read in place."""

DIMS = {"d0": 7, "d1": 11}

LEVELS = [("float32", arch) for arch in ARCHS] + [("bfloat16", arch) for arch in DOTS]


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name):
    spec = packed("float32", *CASES[name], biased=True)
    check(spec, DIMS, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize(("dtype", "arch"), LEVELS)
def test_windows_of_padding_alone(dtype, arch):
    """x has no element."""
    spec = packed(dtype, (1, "d0", 8), 32, (3,), 1, None, (2, 2), biased=True)
    check(spec, {"d0": 0}, arch=arch)


@pytest.mark.parametrize(("dtype", "arch"), LEVELS)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_windows(name, dtype, arch):
    error = {"float32": (2e-5, 2e-4), "bfloat16": (3e-2, 1e-3)}[dtype]
    check(packed(dtype, *ROWS[name]), DIMS, arch=arch, rtol=error[0], atol=error[1])


@pytest.mark.parametrize("arch", [*DOTS, "sapphirerapids"])
@pytest.mark.parametrize("name", ["a stem", "groups", "dilation"])
def test_pairs(name, arch):
    check(packed("bfloat16", *CASES[name]), DIMS, arch=arch, rtol=3e-2, atol=1e-3)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["max", "mean", "product"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reductions(dtype, kind, arch):
    for shape, kernel, *moves in (
        (("d0", 9, "d1", 20), (3, 3), (2, 1), (1, 1, 0, 2), (1, 2)),
        ((1, 6, 70), (2,), (2,)),
        ((2, 3, 4, 5, 3), (2, 2, 3), None, (1, 0, 0, 1, 1, 1)),
    ):
        check(reducing(kind, dtype, shape, kernel, *moves), DIMS, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "mean", "product"])
def test_reductions_of_large_windows_and_many_channels(kind):
    check(reducing(kind, "bfloat16", (1, 5, 5, 1100), (5, 5)), rtol=2e-2, atol=1e-4)
    shape, moves = (2, "d0", 13, 33), ((1, 1), (1, 0, 9, 9))
    check(reducing(kind, "float32", shape, (2, 20), *moves), DIMS, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "arch"), LEVELS)
def test_narrow_groups(dtype, arch):
    for depth, channels in ((2, 38), (4, 36), (8, 72)):
        shape, moves = (1, "d0", 10, channels), ((2, 1), (1, 1, 1, 1))
        spec = reducing("product", dtype, shape, (3, 3), *moves, depth=depth)
        check(spec, DIMS, arch=arch, rtol=2e-5, atol=1e-4)


def test_padding_counts_in_means_where_it_is_asked_for():
    shape, moves = (1, 5, 5, 16), ((2, 2), (1, 1, 1, 1), None)
    check(reducing("mean", "float32", shape, (3, 3), *moves, True), rtol=1e-5, atol=1e-5)


def test_refusals():
    spec = packed("float32", (1, 5, 5, 4), 8, (3, 3))
    supports = find(spec.op, "cpu").supports
    b = Operand("float32", ("d0", *spec.operands[1].shape[1:]))
    some = replace(spec, operands=(spec.operands[0], b))
    assert supports(some) == "wanted a static number of groups, got d0"
    before = Body(spec.operands[:1], (), (0,))
    assert supports(replace(spec, prologue=before)) == "it takes no prologue"
    supports = find("window_reduce", "cpu").supports
    spec = reducing("max", "int32", (1, 5, 5, 4), (3, 3))
    assert supports(spec) == "window_reduce of int32"
    spec = reducing("max", "float32", (1, 5, 5, 4), (3, 3))
    assert supports(replace(spec, prologue=before)) == "it takes no prologue"
