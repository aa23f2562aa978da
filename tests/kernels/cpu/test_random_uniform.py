"""random_uniform, bit by bit."""

import numpy as np
import pytest
from native import ARCHS, check

from heddle.kernels.spec import Body, Operand, Spec, Step


def drawing(shape, size, kind="int64", epilogue=None):
    seeds, result = Operand(kind, (*shape, 2)), Operand("float32", (*shape, size))
    return Spec("random_uniform", (seeds,), result, (result,), (), None, epilogue)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_random_uniform(kind, arch):
    for size in (1, 3, 32, 71, 1000):
        (found,) = check(
            drawing(("d0",), "d1", kind), {"d0": 5, "d1": size}, arch=arch, rtol=0, atol=0
        )
        assert found.min() > 0
        assert found.max() < 1


def test_the_ends_of_the_seeds():
    seeds = np.array([[0, 0], [-1, -1], [2**63 - 1, -(2**63)]])
    check(drawing((3,), 50), {}, [seeds], rtol=0, atol=0)


def test_epilogue():
    body = Body((), (Step("add", (0, 0), "float32"),), (1,))
    check(drawing((2, 3), 45, epilogue=body), rtol=0, atol=0)
