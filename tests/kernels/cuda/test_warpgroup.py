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
from heddle.kernels.cuda import (
    _partial_sums,
    _pieces,
    _staging,
    _tma,
    _warpgroup_product,
    _warpgroup_result,
)
from heddle.kernels.cuda import _warpgroup as warpgroup
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec
from heddle.kernels.tuning import forced
from heddle.pipelines.cli import disassembly
from heddle.runtime.errors import InputError

HOPPER = MACHINES["sm_90a"]
REGISTERS, SHARED = 65536, 227 * 1024  # Of a multiprocessor of sm_90a, and of a block.


@pytest.fixture(autouse=True)
def on_hopper(monkeypatch):
    monkeypatch.setattr(cuda_harness, "MACHINE", HOPPER)


@pytest.fixture
def in_pieces(monkeypatch):
    """Tiles are cut as small as can be, among the clusters of six multiprocessors."""
    monkeypatch.setattr(_pieces, "LEAST", 1)
    monkeypatch.setattr(_pieces, "COST", 0)
    monkeypatch.setattr(cuda_harness, "PROCESSORS", 6)


def product(dtype: str, m, n, k, transposed: bool, batch: tuple = ()) -> Spec:
    right = (n, k) if transposed else (k, n)
    op, other, result = ("matmul", dtype, dtype)
    if dtype.endswith("int8"):
        op, other, result = ("integer_matmul", "int8", "int32")
    operands = [tensor(dtype, *batch, m, k), tensor(other, *batch[1:], *right)]
    return plain(op, operands, tensor(result, *batch, m, n), transposed=transposed)


def body(spec: Spec, outputs: int = 2) -> Spec:
    return fused(spec, prologue=False, outputs=outputs)


def columns(count: int):
    return forced({op: {"columns": count} for op in ("matmul", "integer_matmul")})


RESULTS = {
    # spec, columns of a tile, elements that buffers are shifted by, d0, d1, d2
    "a tile and a slice": (product("float16", 128, 128, 16, True), 128, 0),
    "more rounds than stages": (product("float16", 65, 24, 7 * 64 + 8, True), 128, 0),
    "a cluster": (product("bfloat16", 130, 72, 136, False), 128, 0),
    "several tiles of a cluster": (product("bfloat16", 258, 136, 72, True), 128, 0),
    "wide tiles of columns": (product("float16", 130, 328, 72, False), 256, 0),
    "a body": (body(product("bfloat16", 130, 72, 72, False)), 128, 0),
    "a body that is stored by TMA": (body(product("float16", 70, 72, 72, True), 1), 128, 0),
    "a batch": (product("bfloat16", 131, 24, 72, True, (2, 2)), 128, 0),
    "few rows at run time": (product("float16", "d0", 264, 72, False), 128, 0, 70),
    "sizes at run time": (product("float16", "d0", "d1", "d2", True), 128, 0, 200, 24, 72),
    "odd sizes at run time": (product("float16", "d0", "d1", "d2", False), 128, 0, 66, 27, 65),
    "no k at run time": (product("float16", "d0", "d1", "d2", True), 128, 0, 66, 24, 0),
    "single elements": (product("bfloat16", 131, 13, 81, False), 128, 0),
    "bytes": (product("int8", 70, 40, 3 * 128 + 16, True), 128, 0),
    "bytes without a sign": (product("uint8", 131, 24, 136, True), 128, 0),
    "single bytes": (product("int8", 66, 13, 67, True), 128, 0),
    "unaligned buffers": (body(product("float16", 130, 24, 72, True)), 128, 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    spec, width, shift, *dims = RESULTS[name]
    with columns(width):
        check(spec, {f"d{i}": size for i, size in enumerate(dims)}, shift)


PIECES = {
    "two pieces": (product("bfloat16", 66, 24, 8 * 64, True), ()),
    "more clusters than tiles": (body(product("float16", 258, 24, 4 * 64, False)), ()),
    "bytes": (product("int8", 70, 24, 4 * 128, True), ()),
    "few rows": (body(product("bfloat16", "d0", 264, 5 * 64, True), 1), (3,)),
}


@pytest.mark.parametrize("name", PIECES)
def test_tiles_in_pieces(monkeypatch, in_pieces, name):
    spec, dims = PIECES[name]
    brought = []
    bring = _partial_sums.Meeting.bring
    monkeypatch.setattr(
        _partial_sums.Meeting, "bring", lambda *args: (brought.append(1), bring(*args))[1]
    )
    with columns(128):
        check(spec, {f"d{i}": size for i, size in enumerate(dims)})
    assert brought


Turn, Ring, WayOut = warpgroup.Turn, warpgroup.Ring, _warpgroup_result.WayOut
turn, initialise, wait, expect = Ring.turn, Ring.initialise, warpgroup.wait, Turn.expect
load, meet, read = _tma.load, _warpgroup_product._Block.meet, _tma.wait_until_read
IN_FLIGHT = "a copy in flight to the mbarrier at byte"


def nothing(*_) -> None:
    pass


MISTAKES = {
    # what is planted: where, and what the emulator says
    "no wait for a full stage": (
        (Turn, "wait_until_full", nothing),
        f"race: reads what {IN_FLIGHT}|uninitialised",
    ),
    "the other parity": (
        (Ring, "turn", lambda ring, step: _turned(ring, step)),
        f"race: reads what {IN_FLIGHT}|deadlock|uninitialised",
    ),
    "no wait for an empty stage": (
        (Turn, "wait_until_empty", nothing),
        "writes what the wgmma in flight of warpgroup|more than 1 arrivals",
    ),
    "a stage is never released": ((Turn, "arrive_empty_at", nothing), "deadlock"),
    "a stage is released to its own block alone": (
        (Turn, "arrive_empty_at", lambda turn, block: turn.arrive_empty()),
        "arrivals in a phase|race: writes",
    ),
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
    "too few bytes are expected": (
        (Turn, "expect", lambda turn, size: expect(turn, size - 64 * 128)),
        f"race: reads what {IN_FLIGHT}|uninitialised",
    ),
    "too many bytes are expected": (
        (Turn, "expect", lambda turn, size: expect(turn, size + 16)),
        "deadlock",
    ),
    "nobody is in the mask of a multicast": (
        (_tma, "load", lambda *args: load(*args[:4])),
        "deadlock",
    ),
    "one warpgroup releases for both": (
        (Ring, "initialise", lambda ring, full, empty: initialise(ring, full, empty // 2)),
        "arrivals in a phase|in flight of warpgroup|race: writes over",
    ),
    "blocks do not meet": (
        (_warpgroup_product._Block, "meet", nothing),
        "nobody initialised an mbarrier|initialises it|which ended",
    ),
    "no proxy fence before a store": ((_tma, "fence", nothing), r"no fence\.proxy\.async"),
    "lanes do not meet": ((warpgroup, "meet_in_warp", nothing), "race: (reads|writes)"),
    "a panel is filled while it is stored": (
        (_tma, "wait_until_read", lambda left: read(left) if left == 0 else None),
        "race: writes what a bulk store",
    ),
    "the block does not wait for its stores": (
        (WayOut, "finish", nothing),
        "ends while its bulk stores read shared memory",
    ),
}


def _turned(ring: Ring, step):
    found = turn(ring, step)
    return replace(found, parity=found.parity ^ 1)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(monkeypatch, name):
    planted, message = MISTAKES[name]
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(product("int8", 130, 72, 7 * 128, True), {})


ELEMENTS = {
    "parts that are stored do not arrive": ((Turn, "arrive_full", nothing), "deadlock"),
    "no proxy fence": ((_tma, "fence", nothing), r"no fence\.proxy\.async"),
    "no barrier of those who store": ((warpgroup, "meet", nothing), "race: reads|uninitialised"),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_mistakes_with_single_elements_are_caught(monkeypatch, name):
    planted, message = ELEMENTS[name]
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(product("bfloat16", 66, 13, 65, False), {})


MEETINGS = {
    "no barrier before a piece arrives": ((warpgroup, "meet", nothing), "race: |uninitialised"),
    "no fence of the GPU": ((_partial_sums, "_fence", nothing), "race: reads what"),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_mistakes_with_pieces_are_caught(monkeypatch, in_pieces, name):
    planted, message = MEETINGS[name]
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(PIECES["two pieces"][0], {})


LAYOUTS = {
    "the stride of a descriptor": (warpgroup, "ATOM", warpgroup.ATOM // 2),
    "the swizzle of panels": (_staging, "swizzled", lambda line, chunk, *_: chunk),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_wrong_layouts_give_wrong_results(monkeypatch, name):
    monkeypatch.setattr(*LAYOUTS[name])
    with columns(128), pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(product("bfloat16", 66, 72, 64, False), {})


def test_others_multiply_without():
    assert "wgmma" not in to_ptx(product("bfloat16", 128, 128, 64, True), MACHINES["sm_80"])
    for spec in (product("int8", 128, 128, 128, False), product("bfloat16", 64, 128, 64, True)):
        assert "wgmma" not in to_ptx(spec, HOPPER)


ASSEMBLED = {
    "plain": (product("bfloat16", 4096, 4096, 4096, True), 256),
    "narrow": (product("float16", 4096, 4096, 4096, False), 128),
    "a body": (body(product("bfloat16", 4096, 4096, 4096, False), 1), 256),
    "two outputs": (body(product("float16", "d0", 4096, 4096, True)), 256),
    "run-time sizes": (body(product("float16", "d0", "d1", "d2", False)), 256),
    "bytes": (product("uint8", 4096, 4096, 4096, True), 256),
    "one row of tiles": (product("bfloat16", 128, 4096, 4096, True), 256),
}
KINDS = {"float16": "k16.f32.f16.f16", "bfloat16": "k16.f32.bf16.bf16", "uint8": "k32.s32.u8.s8"}


def assembled(name: str, log: list[str] | None = None):
    """The PTX, the launch and the cubin of a spec."""
    spec, width = ASSEMBLED[name]
    with columns(width):
        text, launch = to_ptx(spec, HOPPER), find(spec.op, "cuda").launch_on(spec, HOPPER)
    return spec, text, launch, ptx.assemble(text, HOPPER.arch)


@pytest.mark.parametrize("name", ASSEMBLED)
def test_assembled(monkeypatch, name):
    logs = []
    read = ptx.resources
    monkeypatch.setattr(ptx, "resources", lambda data, log: (logs.append(log), read(data, log))[1])
    spec, text, launch, cubin = assembled(name)
    dtype, transposed = spec.operands[0].dtype, spec.attr("transposed")
    several = launch.cluster > 1
    for instruction, wanted in (
        (f"wgmma.mma_async.sync.aligned.m64n{ASSEMBLED[name][1]}{KINDS[dtype]}", True),
        ("cp.async.bulk.tensor.3d.shared::cluster.global", True),
        (".multicast::cluster", several),
        ("barrier.cluster.wait", several),
        ("mbarrier.try_wait.parity.shared", True),
        ("cp.async.bulk.tensor.3d.global.shared::cta", len(spec.outputs) == 1),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16", dtype.endswith("16")),
        ("griddepcontrol.wait", True),
    ):
        assert (instruction in text) == wanted
    products = re.findall(r"wgmma\.mma_async[^;]*;", text)
    assert len(products) == 4
    if dtype.endswith("16"):  # The last number: whether b has its columns side by side.
        assert all(line.endswith(f"{int(not transposed)};") for line in products)
    assert launch.shared <= SHARED
    if cubin is None:
        pytest.skip("no PTX assembler is installed")
    assert (cubin.spills, cubin.shared) == (0, 0)
    # A quarter of a multiprocessor holds three of the block's warps, in units of 8 registers.
    assert -(-cubin.registers // 8) * 8 * launch.block[0] <= REGISTERS
    # C7510 and its like: products that wait for one another, and setmaxnreg without effect.
    assert not re.search(r"C75\d\d|serializ", "".join(logs))


def test_machine_code():
    *_, cubin = assembled("plain")
    if cubin is None:
        pytest.skip("no PTX assembler is installed")
    try:
        code = disassembly.sass(cubin.data)
    except InputError as missing:
        pytest.skip(str(missing))
    for instruction in ("HGMMA.64x256x16.F32.BF16", "UTMALDG.3D", "UTMASTG.3D", "SYNCS"):
        assert instruction in code
    assert "UTMALDG.3D.MULTICAST" in code
    assert not re.search(r"\b(LDL|STL)\b", code)
