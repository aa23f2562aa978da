"""rope: both forms, tables that broadcast, what is not turned, and what comes after it."""

import pytest
from native import ARCHS, check

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step

SHAPES = [
    (("d0", "d1", 3, 64), ("d1", 1, 32)),
    (("d0", 3, "d1", 10), ("d1", 5)),
    (("d0", "d1", 2, 70), ("d0", "d1", 1, 35)),
    (("d0", 2), (1,)),
    (("d0", "d1", 3, 128), ("d1", 1, 48)),
    (("d0", "d1", 2, 80), ("d1", 1, 10)),
    (("d0", 3, 22), ("d0", 1, 1)),
]


def rotation(dtype, shape, table, interleaved, kind=None, epilogue=None):
    x, angle = Operand(dtype, shape), Operand(kind or dtype, table)
    attrs = (("interleaved", interleaved),)
    return Spec("rope", (x, angle, angle), x, (x,), attrs, None, epilogue)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "table"), SHAPES)
def test_rope(shape, table, dtype, interleaved, arch):
    spec = rotation(dtype, shape, table, interleaved)
    dims = {name: {"d0": 2, "d1": 5}[name] for name in spec.dims}
    check(spec, dims, arch=arch, atol=4e-6)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_tables_in_float32(interleaved, dtype):
    check(rotation(dtype, (5, 3, 16), (5, 1, 8), interleaved, "float32"), atol=4e-6)


@pytest.mark.parametrize("half", [12, 5])
@pytest.mark.parametrize("interleaved", [False, True])
def test_epilogue(interleaved, half):
    inputs = (Operand("float32", (3, 1)), Operand("float32", (24,)))
    steps = (Step("mul", (0, 1), "float32"), Step("add", (3, 2), "float32"))
    body = Body(inputs, steps, (4,))
    spec = rotation("float32", (5, 3, 24), (5, 1, half), interleaved, epilogue=body)
    check(spec, atol=4e-6)


def test_integers_are_refused():
    spec = rotation("int32", (5, 4), (2,), False)
    assert find("rope", "cpu").supports(spec) == "wanted floats, got int32"
    assert find("rope", "cuda").supports(spec) == "rope of int32"
