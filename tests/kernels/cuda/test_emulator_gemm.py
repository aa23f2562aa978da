"""Complete tensor core kernels: right on the emulator, caught when a wait is missing, assembled."""

import emulator_gemm_ampere as ampere
import numpy as np
import pytest
from emulator import Buffer, launch
from emulator_build import assemble
from emulator_memory import EmulatorError

from heddle.kernels.mlir import context, ir

RANDOM = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def in_a_context():
    with context(), ir.Location.unknown():
        yield


def run_ampere(k: int, leave_out: str = "") -> tuple[np.ndarray, np.ndarray]:
    a = RANDOM.standard_normal((ampere.M, k)).astype(np.float16)
    b = RANDOM.standard_normal((k, ampere.N)).astype(np.float16)
    c = np.zeros((ampere.M, ampere.N), np.float32)
    module = ampere.build(k, leave_out)
    launch(module, 1, ampere.THREADS, [Buffer(a), Buffer(b), Buffer(c, written=True)], [])
    return c, a.astype(np.float64) @ b.astype(np.float64)


def test_ampere():
    found, wanted = run_ampere(96)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("leave_out", "message"),
    [
        ("wait", "race: reads what a cp.async in flight of thread 0 wrote"),
        ("barrier", "race: writes what warp . reads in shared memory"),
    ],
)
def test_ampere_with_a_mistake(leave_out, message):
    with pytest.raises(EmulatorError, match=message):
        run_ampere(96, leave_out)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ampere_is_assembled(arch):
    text, cubin = assemble(ampere.build(96), arch)
    for name in ("cp.async.cg", "ldmatrix.sync.aligned.m8n8.x4.trans", "mma.sync.aligned.m16n8k16"):
        assert name in text
    if cubin is None:
        pytest.skip("no PTX assembler is installed")
    assert (cubin.spills, cubin.shared) == (0, ampere.SHARED)
