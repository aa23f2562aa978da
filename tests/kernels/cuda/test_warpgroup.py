"""Products by wgmma: their results, mistakes planted in them, and what is assembled."""

import re
from dataclasses import replace

import cuda_harness
import pytest
from cuda_cases import fused, plain, tensor
from emulator_memory import EmulatorError
from test_kernels import check

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda import _block, _staging
from heddle.kernels.cuda import _warpgroup as warpgroup
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec
from heddle.kernels.tuning import forced

HOPPER = MACHINES["sm_90a"]
REGISTERS, SHARED = 65536, 228 * 1024  # Of a multiprocessor of sm_90a.
RESERVED = 1024  # Bytes of shared memory of each block that the system takes.


@pytest.fixture(autouse=True)
def on_hopper(monkeypatch):
    monkeypatch.setattr(cuda_harness, "MACHINE", HOPPER)


def product(dtype: str, m, n: int, k: int, transposed: bool, batch: tuple = ()) -> Spec:
    right = (n, k) if transposed else (k, n)
    op, other, result = ("matmul", dtype, dtype)
    if dtype.endswith("int8"):
        op, other, result = ("integer_matmul", "int8", "int32")
    operands = [tensor(dtype, *batch, m, k), tensor(other, *batch[1:], *right)]
    return plain(op, operands, tensor(result, *batch, m, n), transposed=transposed)


def columns(count: int):
    return forced({op: {"columns": count} for op in ("matmul", "integer_matmul")})


RESULTS = {
    # spec, columns of a tile, elements that buffers are shifted by
    "a tile and a slice": (product("float16", 128, 128, 16, True), 128, 0),
    "four tiles": (product("bfloat16", 130, 136, 136, False), 128, 0),
    "more rounds than stages": (product("float16", 65, 24, 7 * 64 + 8, True), 128, 0),
    "wide tiles": (product("bfloat16", 65, 264, 200, True), 256, 0),
    "wide tiles of columns": (product("float16", 70, 328, 72, False), 256, 0),
    "a body": (fused(product("bfloat16", 70, 72, 136, False), prologue=False), 128, 0),
    "a wide body": (fused(product("float16", 65, 200, 80, True), prologue=False), 256, 0),
    "a batch": (product("bfloat16", 67, 24, 72, True, (2, 3)), 128, 0),
    "rows at run time": (product("float16", "d0", 24, 72, False), 128, 0),
    "single elements": (product("bfloat16", 67, 13, 81, False), 128, 0),
    "single elements along k": (product("float16", 67, 24, 67, True), 256, 0),
    "bytes": (product("int8", 70, 40, 3 * 128 + 16, True), 128, 0),
    "bytes without a sign": (product("uint8", 65, 264, 136, True), 256, 0),
    "single bytes": (product("int8", 65, 13, 67, True), 128, 0),
    "unaligned buffers": (fused(product("float16", 65, 24, 72, True), prologue=False), 128, 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(monkeypatch, name):
    spec, width, shift = RESULTS[name]
    emitted = []
    commit = warpgroup.commit
    monkeypatch.setattr(warpgroup, "commit", lambda: (emitted.append(width), commit()))
    with columns(width):
        check(spec, {"d0": 70}, shift)
    assert emitted == [width]


Turn, Ring = warpgroup.Turn, warpgroup.Ring
turn, initialise, wait = Ring.turn, Ring.initialise, warpgroup.wait
IN_FLIGHT = "a cp.async in flight to the mbarrier at byte"


def nothing(*_) -> None:
    pass


MISTAKES = {
    # what is planted: where, and what the emulator says
    "no proxy fence": (
        (Turn, "wait_until_full", lambda turn: warpgroup._wait(turn.full, turn.parity)),
        f"no fence.proxy.async before it reads what {IN_FLIGHT}",
    ),
    "no wait for a full stage": (
        (Turn, "wait_until_full", nothing),
        f"race: reads what {IN_FLIGHT}|uninitialised",
    ),
    "the other parity": (
        (Ring, "turn", lambda ring, step: _turned(ring, step)),
        f"race: reads what {IN_FLIGHT}|deadlock",
    ),
    "no wait for an empty stage": (
        (Turn, "wait_until_empty", nothing),
        "writes what the wgmma in flight of warpgroup",
    ),
    "a stage is never released": ((Turn, "arrive_empty", nothing), "deadlock"),
    "a stage is released too early": (
        (warpgroup, "wait", lambda left: wait(2 * left)),
        "writes what the wgmma in flight of warpgroup",
    ),
    "no wait for the last products": (
        (warpgroup, "wait", lambda left: wait(1)),
        r"looks at an accumulator before wgmma\.wait_group",
    ),
    "no wgmma.fence": ((warpgroup, "fence", nothing), r"no wgmma\.fence before a wgmma"),
    "groups are not committed": ((warpgroup, "commit", nothing), "in flight|accumulator"),
    "copies do not arrive": ((Turn, "arrive_after_copies", nothing), "deadlock"),
    "too few arrivals": (
        (Ring, "initialise", lambda ring, full, empty: initialise(ring, full // 2, empty)),
        f"race: reads what {IN_FLIGHT}",
    ),
    "no barrier after the initialisation": (
        (_block, "barrier", nothing),
        "uses the mbarrier .* while thread 0 initialises it|nobody initialised an mbarrier",
    ),
    "one warpgroup releases for both": (
        (Ring, "initialise", lambda ring, full, empty: initialise(ring, full, 1)),
        "more than 1 arrivals in a phase|in flight of warpgroup",
    ),
    "lanes do not meet": ((warpgroup, "meet_in_warp", nothing), "race: (reads|writes)"),
}


def _turned(ring: Ring, step):
    found = turn(ring, step)
    return replace(found, parity=found.parity ^ 1)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(monkeypatch, name):
    planted, message = MISTAKES[name]
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(product("bfloat16", 65, 72, 5 * 64, True), {})


def test_parts_that_are_stored_have_to_arrive(monkeypatch):
    monkeypatch.setattr(Turn, "arrive_full", nothing)
    with columns(128), pytest.raises(EmulatorError, match="deadlock"):
        check(product("bfloat16", 65, 13, 64, False), {})


LAYOUTS = {
    "the stride of a descriptor": (warpgroup, "ATOM", warpgroup.ATOM // 2),
    "the swizzle of lines": (_staging, "swizzled", lambda line, chunk, *_: chunk),
}


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_wrong_layouts_give_wrong_results(monkeypatch, name, transposed):
    monkeypatch.setattr(*LAYOUTS[name])
    with columns(128), pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(product("bfloat16", 65, 72, 64, transposed), {})


def test_others_multiply_without():
    assert "wgmma" not in to_ptx(product("bfloat16", 128, 128, 64, True), MACHINES["sm_80"])
    bytes_across = product("int8", 128, 128, 128, False)
    assert "wgmma" not in to_ptx(bytes_across, HOPPER)


ASSEMBLED = [
    ("bfloat16", 128, False, (4096, 4096, 4096)),
    ("bfloat16", 256, True, (4096, 4096, 4096)),
    ("float16", 128, True, ("d0", 4096, 4096)),
    ("float16", 256, False, ("d0", 4096, 4096)),
    ("uint8", 256, True, (4096, 4096, 4096)),
]
KINDS = {"float16": "k16.f32.f16.f16", "bfloat16": "k16.f32.bf16.bf16", "uint8": "k32.s32.u8.s8"}


@pytest.mark.parametrize(("dtype", "width", "transposed", "sizes"), ASSEMBLED)
def test_assembled(monkeypatch, dtype, width, transposed, sizes):
    spec = product(dtype, *sizes, transposed)
    if dtype.endswith("16"):
        spec = fused(spec, prologue=False)
    logs = []
    read = ptx.resources
    monkeypatch.setattr(ptx, "resources", lambda data, log: (logs.append(log), read(data, log))[1])
    with columns(width):
        text, launch = to_ptx(spec, HOPPER), find(spec.op, "cuda").launch(spec)
    for instruction in (
        f"wgmma.mma_async.sync.aligned.m64n{width}{KINDS[dtype]}",
        "cp.async.mbarrier.arrive.noinc.shared.b64",
        "mbarrier.try_wait.parity.shared",
        "fence.proxy.async.shared::cta",
    ):
        assert instruction in text
    assert ("stmatrix.sync.aligned.m8n8.x4.shared.b16" in text) == dtype.endswith("16")
    products = re.findall(r"wgmma\.mma_async[^;]*;", text)
    assert len(products) == 4
    if dtype.endswith("16"):  # The last number: whether b has its columns side by side.
        assert all(line.endswith(f"{int(not transposed)};") for line in products)
    cubin = ptx.assemble(text, HOPPER.arch)
    if cubin is None:
        pytest.skip("no PTX assembler is installed")
    blocks = {128: 2, 256: 1}[width]
    assert (cubin.spills, cubin.shared) == (0, 0)
    assert blocks * launch.block[0] * cubin.registers <= REGISTERS
    assert blocks * (launch.shared + RESERVED) <= SHARED
    # C7510 and its like: products that wait for one another.
    assert not re.search(r"C75\d\d|serializ", "".join(logs))
