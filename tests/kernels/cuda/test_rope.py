"""rope on the emulator, and assembled."""

import cuda_cases as cases
import pytest
from assembler import check_no_spills, needs_assembler
from test_kernels import check

from heddle.kernels.spec import Spec


def rotation(
    dtype: str, size: int, interleaved: bool, kind: str | None = None, turned: int | None = None
) -> Spec:
    x = cases.tensor(dtype, "d0", "d1", 2, size)
    table = cases.tensor(kind or dtype, "d1", 1, (turned or size) // 2)
    return cases.plain("rope", [x, table, table], x, interleaved=interleaved)


FORMS = {"halves": False, "neighbours": True}
CASES: dict[str, Spec] = (
    {
        f"{form} of {size}, {dtype}": rotation(dtype, size, interleaved)
        for form, interleaved in FORMS.items()
        for size in (16, 6)
        for dtype in cases.FLOATS
    }
    | {
        f"{form} of {turned} of {size}": rotation("float16", size, interleaved, turned=turned)
        for form, interleaved in FORMS.items()
        for size, turned in ((64, 32), (128, 96), (40, 16), (10, 6))
    }
    | {
        "tables in float32": rotation("bfloat16", 32, True, "float32"),
        "tables in float32, of a part": rotation("bfloat16", 64, False, "float32", 32),
    }
)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name, shift):
    check(CASES[name], cases.DIMS, shift)


@pytest.mark.parametrize("turned", [16, 8])
@pytest.mark.parametrize("interleaved", [False, True])
def test_fused(interleaved, turned):
    spec = rotation("float32", 16, interleaved, turned=turned)
    check(cases.fused(spec, prologue=False), cases.DIMS)


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name, arch):
    check_no_spills(CASES[name], arch)
