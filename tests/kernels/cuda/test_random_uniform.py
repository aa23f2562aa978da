"""random_uniform on the emulator, bit by bit, and assembled."""

import cuda_cases as cases
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from reference import evaluate

from heddle.kernels.spec import Body, Spec, Step

DIMS = {"d0": 5}


def drawing(size: int) -> Spec:
    return cases.plain(
        "random_uniform", [cases.tensor("int64", "d0", 2)], cases.tensor("float32", "d0", size)
    )


def in_pairs() -> Spec:
    """Outputs of 8 bytes, so that two words of four are a vector."""
    plain, body = drawing(8), Body((), (Step("cast", (0,), "float64"),), (1,))
    output = cases.tensor("float64", "d0", 8)
    return Spec(plain.op, plain.operands, plain.result, (output,), (), None, body)


CASES = {"fours": drawing(40), "singles": drawing(7), "pairs": in_pairs()}


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name, shift):
    seeds = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (5, 2))
    (found,), _ = run(CASES[name], [seeds], DIMS, shift)
    np.testing.assert_array_equal(found, evaluate(CASES[name], DIMS, [seeds])[0])


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name, arch):
    check_no_spills(CASES[name], arch)
