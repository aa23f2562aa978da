"""wgmma by itself: types, swizzles, both majors, registers of A; and mistakes with it."""

import ml_dtypes
import numpy as np
import pytest
from assembler import needs_assembler
from emulator import wgmma_probe
from emulator.build import arith, assemble, at, get, i32, kernel, llvm, nvvm, thread
from emulator.inline import text
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError
from emulator.wgmma_probe import (
    SPAN_CODE,
    TYPES,
    N,
    descriptor,
    fill,
    finish,
    in_registers,
    k_major,
    mn_major,
    multiply,
    product,
    random,
    run,
    whole,
    zeros,
)

from heddle.kernels import emit
from heddle.kernels.mlir import ir

pytestmark = pytest.mark.usefixtures("in_a_context")


@pytest.mark.parametrize("kind", TYPES)
def test_types(kind):
    dtype, k, _ = TYPES[kind]
    a, b = random(64, k, dtype), random(N, k, dtype)
    layouts = [(*k_major(m, 32), 32) for m in (a, b)]
    found = run(kind, layouts, whole(kind, scale="zero"))
    np.testing.assert_allclose(found, product(a, b, kind), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("span", SPAN_CODE)
def test_swizzles(span):
    """Two steps of k, the second inside of the atoms, where they are wide enough."""
    k = 16 if span < 64 else 32
    a, b = random(64, k, np.float16), random(N, k, np.float16)

    def compute(left, right):
        sums = zeros("f32")
        nvvm.wgmma_fence_aligned()
        for step in range(k // 16):
            sums = multiply("f16", sums, left + 2 * step, right + 2 * step)
        nvvm.wgmma_commit_group_sync_aligned()
        nvvm.wgmma_wait_group_sync_aligned(0)
        return sums

    found = run("f16", [(*k_major(m, span), span) for m in (a, b)], compute)
    np.testing.assert_allclose(found, product(a, b, "f16"), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("span", [0, 32])
def test_both_transposed(span):
    a, b = random(64, 16, np.float16), random(N, 16, np.float16)
    layouts = [(*mn_major(m, span), span) for m in (a, b)]
    found = run("f16", layouts, whole("f16", ("col", "row")))
    np.testing.assert_allclose(found, product(a, b, "f16"), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("span", [64, 128])
def test_a_transposed(span):
    a, b = random(64, 16, np.float16), random(N, 16, np.float16)
    layouts = (*mn_major(a, span), span), (*k_major(b, 32), 32)
    found = run("f16", layouts, whole("f16", ("col", "col")))
    np.testing.assert_allclose(found, product(a, b, "f16"), rtol=1e-6, atol=1e-6)


def registers_of_a(a, base, k: int = 16) -> list:
    """The four words of a lane, from rows of `k` bfloat16 in shared memory without a swizzle."""
    lane, warp = thread() % 32, thread() // 32
    words = []
    for r in range(4):
        row = warp * 16 + lane // 4 + 8 * (r % 2)
        offset = row * 2 * k + lane % 4 * 4 + 16 * (r // 2)
        words.append(get(a, offset))
    return words


def from_registers(leave_out: str = "", adds: int = 1):
    """A kernel with A in registers, twice into the same accumulators; the second time it `adds`."""

    def body(a, x, y, base):
        fill(x, base, 512)
        words = registers_of_a(a, base)
        right = descriptor(base, 16, 256, 32)
        sums = zeros("f32")
        if leave_out != "fence":
            nvvm.wgmma_fence_aligned()
        for again in (1, adds):
            sums = in_registers(sums, words, right, again)
        nvvm.wgmma_commit_group_sync_aligned()
        if leave_out != "wait":
            nvvm.wgmma_wait_group_sync_aligned(0)
        finish(sums, "f32", y)

    return kernel(3, 128, 1024, body)


def run_from_registers(leave_out: str = "", adds: int = 1) -> tuple[np.ndarray, np.ndarray]:
    a, b = (random(rows, 16, ml_dtypes.bfloat16) for rows in (64, N))
    y = np.zeros((64, N), np.float32)
    x = k_major(b, 32)[0]
    buffers = [Buffer(a), Buffer(x), Buffer(y, written=True)]
    launch(from_registers(leave_out, adds), 1, 128, buffers, [])
    return y, (1 + adds) * product(a, b, "bf16")


@pytest.mark.parametrize("adds", [1, 0])
def test_a_in_registers(adds):
    found, wanted = run_from_registers(adds=adds)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@needs_assembler
@pytest.mark.parametrize("adds", [1, 0])
def test_a_in_registers_is_assembled(adds):
    written, cubin = assemble(from_registers(adds=adds), "sm_90a")
    assert written.count("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16") == 2
    assert cubin.spills == 0


EARLY = r"looks at an accumulator before wgmma\.wait_group for its group"
MISTAKES = {"wait": EARLY, "commit": EARLY, "fence": r"no wgmma\.fence before a wgmma"}


@pytest.mark.parametrize("leave_out", MISTAKES)
def test_mistakes(leave_out):
    a, b = random(64, 16, np.float16), random(N, 16, np.float16)
    layouts = [(*k_major(m, 32), 32) for m in (a, b)]
    with pytest.raises(EmulatorError, match=MISTAKES[leave_out]):
        run("f16", layouts, whole("f16", leave_out=leave_out))


@pytest.mark.parametrize("leave_out", ["wait", "fence"])
def test_mistakes_with_registers(leave_out):
    with pytest.raises(EmulatorError, match=MISTAKES[leave_out]):
        run_from_registers(leave_out)


def in_first_warp(action):
    def compute(a, b):
        with emit.when(emit.compare("less", thread(), i32(32))):
            action()
        return zeros("f32")

    return compute


def other_descriptors(a, b):
    nvvm.wgmma_fence_aligned()
    return multiply("f16", zeros("f32"), a + arith.extui(emit.integer(64), thread()), b)


PLAIN = {"f16": [(np.zeros(2048, np.uint8), 16, 256, 32)] * 2}
FORBIDDEN = {
    "divergent: warp 1 did 0 of 1 wgmma instructions": in_first_warp(nvvm.wgmma_fence_aligned),
    "divergent: the descriptors of a warp differ": other_descriptors,
    "out of bounds: a descriptor reaches byte [0-9]* of .* \\(16384 bytes\\)": lambda a, b: (
        whole("f16")(a, b + 1000)
    ),
    "the emulator knows atoms that start where their pattern does": lambda a, b: whole("f16")(
        a, b | 1 << 49
    ),
    "race: no fence.proxy.async before it reads what thread 0 wrote": lambda a, b: (
        llvm.store(thread(), at(llvm.AddressOfOp(
            ir.Type.parse("!llvm.ptr<3>"), "tile").result, thread() * 4), alignment=4),
        nvvm.barrier(aligned=True),
        whole("f16")(a, b),
    )[-1],
}  # fmt: skip


@pytest.mark.parametrize("message", FORBIDDEN)
def test_what_is_forbidden(message):
    with pytest.raises(EmulatorError, match=message):
        run("f16", PLAIN["f16"], FORBIDDEN[message])


def alone(action):
    """`action` in one thread, before everybody else's wgmma."""

    def compute(a, b):
        with emit.when(emit.compare("equal", thread(), i32(0))):
            action()
        return whole("f16")(a, b)

    return compute


def test_a_part_of_a_warp():
    with pytest.raises(EmulatorError, match="divergent: wgmma wants all threads of a warp"):
        run("f16", PLAIN["f16"], alone(nvvm.wgmma_commit_group_sync_aligned))


def test_warps_that_do_different_things():
    def compute(a, b):
        roles = emit.scf.IfOp(emit.compare("less", thread(), i32(32)), has_else=True)
        for branch, action in (
            (roles.then_block, nvvm.wgmma_fence_aligned),
            (roles.else_block, nvvm.wgmma_commit_group_sync_aligned),
        ):
            with ir.InsertionPoint(branch):
                action()
                emit.scf.yield_([])
        return zeros("f32")

    with pytest.raises(EmulatorError, match="divergent: the warps of a warpgroup do different"):
        run("f16", PLAIN["f16"], compute)


def test_a_warp_that_stays_away():
    def compute(a, b):
        sums = zeros("f32")
        with emit.when(emit.compare("less", thread(), i32(96))):
            whole("f16")(a, b)
        return sums

    with pytest.raises(EmulatorError, match=r"deadlock(?s:.*)warp 0 .* waits for wgmma of warp 3"):
        run("f16", PLAIN["f16"], compute)


def assembly(written: str):
    def compute(a, b):
        llvm.inline_asm(emit.integer(32), [], written, "=r", has_side_effects=True)
        return zeros("f32")

    return compute


def test_inline_ptx_that_is_not_known(monkeypatch):
    with pytest.raises(EmulatorError, match="the emulator does not know the PTX 'nanosleep"):
        run("f16", PLAIN["f16"], assembly("nanosleep.u32 5;"))
    with pytest.raises(EmulatorError, match=r"wanted the PTX .* with side effects, got .*'=r', 1"):
        run("f16", PLAIN["f16"], assembly(text(N, 16, "f32", "bf16", "bf16", 0)))
    monkeypatch.setattr(wgmma_probe, "text", lambda n, k, *types: text(n, 8, *types))
    with pytest.raises(EmulatorError, match="knows k16 with sums of f32 for bf16, got k8, f32"):
        run_from_registers()
