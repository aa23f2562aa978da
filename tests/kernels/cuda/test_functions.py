"""The functions of bodies on the emulator, and assembled; the CPU's tests have the whole range."""

import cuda_cases as cases
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from reference import evaluate, numpy_dtype

from heddle.kernels.spec import Body, Spec, Step

FLOATS = ("float32", "float64", "bfloat16")
INTEGERS = ("int8", "uint16", "int32", "uint32", "int64", "uint64")
APPROXIMATE = ("sin", "cos", "expm1", "log1p", "softplus")
UNARY = (*APPROXIMATE, "floor", "ceil", "round")
BINARY = ("pow", "mod", "floor_divide")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
LOGIC = ("logical_and", "logical_or", "logical_xor")


def steps(op: str, count: int, dtype: str, result: str | None = None) -> Spec:
    operand, output = cases.tensor(dtype, "d0", 8), cases.tensor(result or dtype, "d0", 8)
    step = Step(op, tuple(range(count)), output.dtype)
    return Spec(
        "map", (output,), output, (output,), (), Body((operand,) * count, (step,), (count,))
    )


CASES: dict[str, Spec] = {
    **{f"{op}, {dtype}": steps(op, 1, dtype) for op in UNARY for dtype in FLOATS},
    **{f"{op}, {dtype}": steps(op, 2, dtype) for op in BINARY for dtype in FLOATS},
    **{f"{op}, {dtype}": steps(op, 2, dtype) for op in BINARY[1:] for dtype in INTEGERS},
    **{op: steps(op, 2, "bool") for op in LOGIC},
    **{f"{op}, {dtype}": steps(op, 2, dtype) for op in BITS for dtype in INTEGERS},
    "bitwise_not, uint16": steps("bitwise_not", 1, "uint16"),
    "logical_not": steps("logical_not", 1, "bool"),
    "isnan": steps("isnan", 1, "float32", "bool"),
}


def numbers(dtype: str, size: int) -> list[np.ndarray]:
    """Two arrays with what is special about a dtype, large and small numbers, zeros."""
    rng = np.random.default_rng(6)
    if dtype == "bool":
        return [rng.random(size) < 0.5 for _ in range(2)]
    kind = numpy_dtype(dtype)
    if kind.kind in "iu":
        ends = np.iinfo(kind)
        x, y = (rng.integers(ends.min, ends.max, size, kind, endpoint=True) for _ in range(2))
        y[::2], x[::3] = rng.integers(max(ends.min, -2), 3, size)[::2], ends.min
        return [x, y]
    special = [0.0, -0.0, 1, -1, 2, -3, 0.5, np.inf, -np.inf, np.nan, 1e7, -1e30, 7.5e-39]
    x, y = (rng.choice(special, size) for _ in range(2))
    x[::2], y[::3] = (rng.uniform(-9, 9, size)[::step] for step in (2, 3))
    return [x.astype(kind), y.astype(kind)]


@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name):
    spec, dims = CASES[name], {"d0": 37}
    arrays = numbers(spec.inputs[0].dtype, 37 * 8)[: len(spec.inputs)]
    arrays = [array.reshape(37, 8) for array in arrays]
    (found,), _ = run(spec, arrays, dims)
    (wanted,) = evaluate(spec, dims, arrays)
    if "float" in name:
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    tolerance = {"float32": 4e-7, "float64": 8e-16, "bfloat16": 1.6e-2}
    approximate = name.split(",")[0] in (*APPROXIMATE, "pow")
    rtol = tolerance[spec.result.dtype] if approximate else 0
    np.testing.assert_allclose(found, wanted, rtol=rtol)


def test_two_float64_are_rounded_to_bfloat16():
    """As many as a vector of 16 bytes has: one word."""
    x, narrow = cases.tensor("float64", "d0", 8), Step("cast", (0,), "bfloat16")
    body = Body((x,), (narrow, Step("cast", (1,), "float64")), (2,))
    array = np.random.default_rng(3).standard_normal((5, 8))
    (found,), _ = run(Spec("map", (x,), x, (x,), (), body), [array], {"d0": 5})
    np.testing.assert_array_equal(found, array.astype(numpy_dtype("bfloat16")).astype(np.float64))


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", [name for name in CASES if "bfloat16" not in name])
def test_no_register_is_spilled(name, arch):
    check_no_spills(CASES[name], arch)
