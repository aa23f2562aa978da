"""Complete tensor core kernels: right on the emulator, caught when a wait is missing, assembled."""

import ml_dtypes
import numpy as np
import pytest
from assembler import needs_assembler, needs_ptxas
from emulator import gemm_ampere as ampere
from emulator import gemm_hopper as hopper
from emulator.build import assemble, to_ptx
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError

from heddle.graph.compiler.codegen import ptx

pytestmark = pytest.mark.usefixtures("in_a_context")

RANDOM = np.random.default_rng(3)


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


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ampere_is_assembled(arch):
    text, cubin = assemble(ampere.build(96), arch)
    for name in ("cp.async.cg", "ldmatrix.sync.aligned.m8n8.x4.trans", "mma.sync.aligned.m16n8k16"):
        assert name in text
    assert (cubin.spills, cubin.shared) == (0, ampere.SHARED)


def run_hopper(k: int, mistake: str = "") -> tuple[np.ndarray, np.ndarray]:
    bfloat16 = ml_dtypes.bfloat16
    a = RANDOM.standard_normal((hopper.M, k)).astype(bfloat16)
    b = RANDOM.standard_normal((hopper.N, k)).astype(bfloat16)
    c = np.zeros((hopper.M, hopper.N), bfloat16)
    maps = [
        hopper.tensor_map(buffer, *buffer.array.shape)
        for buffer in (Buffer(a), Buffer(b), Buffer(c, written=True))
    ]
    launch(hopper.build(k, mistake), 1, hopper.THREADS, maps, [])
    return c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T


def test_hopper():
    found, wanted = run_hopper(5 * hopper.DEPTH)
    np.testing.assert_allclose(found, wanted, rtol=2**-8, atol=1e-3)


IN_FLIGHT = "race: reads what a copy in flight to the mbarrier at byte 40960 of shared memory"
HOPPER_MISTAKES = {
    "no wait for an empty stage": "more than 1 arrivals in a phase of the mbarrier at byte 40960",
    "no expect_tx": IN_FLIGHT,
    "too many bytes expected": r"deadlock(?s:.*)phase 0 lacks 0 of 1 arrivals and 16 bytes",
    "wrong parity": IN_FLIGHT,
    "a wrong count": r"deadlock(?s:.*)phase 0 lacks 1 of 2 arrivals and 0 bytes",
    "no fence.mbarrier_init": r"no fence\.mbarrier_init between (?s:.*)bulk\.tensor",
    "no barrier after the initialisation": r"uses the mbarrier .* while thread 0 initialises it",
    "no wgmma.fence": r"no wgmma\.fence before a wgmma on registers that were touched",
    "no wait for wgmma": "writes what the wgmma in flight of warpgroup 1 reads",
    "a stage released too early": "writes what the wgmma in flight of warpgroup 1 reads",
    "too many registers": r"waits for 3584 registers to have 240 in each thread, 0 are free",
    "no fence.proxy.async": r"no fence\.proxy\.async before it reads what thread 128 wrote",
    "no barrier before the store": "reads what thread 144 wrote in shared memory of block 0",
    "no wait for the store": "thread 128 ends while its bulk stores read shared memory",
}


@pytest.mark.parametrize("mistake", HOPPER_MISTAKES)
def test_hopper_with_a_mistake(mistake):
    with pytest.raises(EmulatorError, match=HOPPER_MISTAKES[mistake]):
        run_hopper(5 * hopper.DEPTH, mistake)


@pytest.mark.parametrize("mistake", ["a wrong stride", "a wrong swizzle"])
def test_hopper_with_a_wrong_descriptor(mistake):
    found, wanted = run_hopper(5 * hopper.DEPTH, mistake)
    assert np.abs(found - wanted).max() > 1


@needs_assembler
def test_hopper_is_assembled():
    text, cubin = assemble(hopper.build(5 * hopper.DEPTH), "sm_90a")
    for name in (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
        "setmaxnreg.inc.sync.aligned.u32",
        "mbarrier.try_wait.parity",
        "fence.proxy.async.shared::cta",
        "stmatrix.sync.aligned.m8n8.x4",
    ):
        assert name in text
    assert (cubin.spills, cubin.shared) == (0, hopper.SHARED)


@needs_ptxas
def test_hopper_has_the_registers_that_it_asks_for():
    # Where it ignores setmaxnreg, it gives no more registers than the code needs: 58.
    text = to_ptx(hopper.build(5 * hopper.DEPTH), "sm_90a")
    cubin = ptx.with_ptxas(ptx.find_ptxas(), text, "sm_90a")
    assert cubin.registers == 128
