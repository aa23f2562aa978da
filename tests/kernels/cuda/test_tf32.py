"""Products of float32 with ten bits of its fraction, by mma.sync and by wgmma."""

import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_cases import plain, tensor
from cuda_harness import run

from heddle.kernels.registry import MACHINES
from heddle.kernels.tuning import forced


def product(m, n, k, transposed: bool):
    operands = [tensor("float32", m, k), tensor("float32", *((n, k) if transposed else (k, n)))]
    result = tensor("float32", m, n)
    return plain("matmul", operands, result, transposed=transposed, precision="tf32")


CASES = {
    # spec, columns of a tile, architecture
    "tiles": (product(70, 48, 72, True), 128, "sm_80"),
    "wide tiles": (product(65, 200, 36, True), 256, "sm_80"),
    "columns": (product(70, 48, 72, False), 128, "sm_80"),
    "wide tiles of columns": (product(65, 201, 37, False), 256, "sm_80"),
    "few rows": (product(7, 40, 520, True), 0, "sm_80"),
    "few rows of columns": (product(7, 33, 45, False), 0, "sm_80"),
    "warpgroups": (product(130, 136, 72, True), 128, "sm_90a"),
}


@pytest.mark.parametrize("name", CASES)
def test_ten_bits_are_exact_and_others_are_off_by_two_to_the_ninth(name):
    spec, columns, arch = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(operand.shape, np.float32) for operand in spec.operands]
    kept = [(array.view(np.uint32) & 0xFFFFE000).view(np.float32) for array in arrays]
    for given, share in ((kept, 0.0), (arrays, 2.0**-9)):
        with forced({"matmul": {"columns": columns}}):
            (found,), _ = run(spec, given, {}, machine=MACHINES[arch])
        a, b = (array.astype(np.float64) for array in given)
        b = b.T if spec.attr("transposed") else b
        near = (share + a.shape[1] * 2.0**-24) * (np.abs(a) @ np.abs(b))
        assert (np.abs(found - a @ b) <= near).all()
    assert np.abs(found - a @ b).max() > 1e-4  # They were not multiplied as float32.


@needs_assembler
@pytest.mark.parametrize(
    ("arch", "transposed", "instruction"),
    [
        ("sm_80", True, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("sm_90a", False, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("sm_90a", True, "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"),
    ],
)
def test_assembled(arch, transposed, instruction):
    text = check_no_spills(product(4096, 4096, 4096, transposed), arch)
    assert instruction in text
