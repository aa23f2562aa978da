"""Mistakes planted in PTX, by hand and in that of kernels: the machine has to see them."""

import re

import cuda_cases as cases
import cuda_harness
import numpy as np
import pytest
import test_flash_warpgroup as flash
import test_kernels as kernels
from emulator.memory import EmulatorError
from ptx.probe import run
from test_flash import attention
from test_tensor_cores import product
from warpgroup_cases import HOPPER
from warpgroup_cases import product as by_warpgroups

from heddle.graph.compiler.codegen.cuda import to_ptx

X = np.arange(64, dtype=np.int32)
EXCHANGE = """
  ld.global.b32 %r10, [%rd3];
  st.shared.b32 [%rd6], %r10;
  xor.b32 %r11, %r0, 32;
  mul.wide.u32 %rd7, %r11, 4;
  add.s64 %rd7, %rd5, %rd7;
  bar.sync 0;
  ld.shared.b32 %r12, [%rd7];
  st.global.b32 [%rd4], %r12;
"""


def test_a_barrier_of_the_block():
    np.testing.assert_array_equal(run(EXCHANGE, X, threads=64), X ^ 32)


PARTED = "setp.lt.u32 %p1, %r0, {limit}; @%p1 bra $LESS; {more} bra.uni $JOIN; $LESS: {less} $JOIN:"
SMALL = {
    "no barrier": (EXCHANGE.replace("bar.sync 0;", ""), "race: reads what another thread wrote"),
    "a load above the barrier": (
        EXCHANGE.replace("bar.sync 0;", "ld.shared.b32 %r13, [%rd7]; bar.sync 0;"),
        "race: reads what another thread wrote",
    ),
    "a barrier that half of a warp reaches": (
        PARTED.format(limit=16, less="bar.sync 0;", more=""),
        "divergent: bar.sync wants all threads of a warp",
    ),
    "a barrier that is there twice": (
        PARTED.format(limit=16, less="bar.sync 0;", more="bar.sync 0;"),
        "divergent: bar.sync wants all threads of a warp",
    ),
    "a barrier that one warp reaches": (
        PARTED.format(limit=32, less="bar.sync 0;", more=""),
        "divergent barrier: 32 of 64 threads",
    ),
    "a numbered barrier that one warp reaches": (
        PARTED.format(limit=32, less="bar.sync 1, 64;", more=""),
        "deadlock",
    ),
    "a shuffle that is there twice": (
        PARTED.format(
            limit=16,
            less="shfl.sync.bfly.b32 %r11, %r0, 1, 31, -1;",
            more="shfl.sync.bfly.b32 %r11, %r0, 1, 31, -1;",
        ),
        "the member mask",
    ),
    "matrices in front of where the lanes meet": (
        # Both sides get there, but the first of two branches that part them is not behind them.
        """
        setp.lt.u32 %p1, %r0, 8;
        setp.lt.u32 %p2, %r0, 16;
        @%p1 bra $IN;
        @%p2 bra $OUT;
        bra.uni $IN;
        $IN: ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%rd5];
        $OUT:
        """,
        "divergent: ldmatrix",
    ),
    "a cluster's barrier in a part of a warp": (
        PARTED.format(limit=16, less="barrier.cluster.arrive;", more=""),
        "divergent: the barrier of the cluster",
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_mistakes(name):
    body, says = SMALL[name]
    with pytest.raises(EmulatorError, match=says):
        run(body, X, threads=64)


def replaced(pattern: str, by: str, count: int = 1):
    """What replaces the first `count` matches, all of them where it is 0; there has to be one."""

    def edit(text: str) -> str:
        found, times = re.subn(pattern, by, text, count=count)
        assert times, f"nothing to replace: {pattern}"
        return found

    return edit


def moved(pattern: str, above: str):
    """Moves the first instruction of a pattern behind `above` in front of that."""

    def edit(text: str) -> str:
        wall = re.search(above, text)
        line = re.compile(pattern).search(text, wall.end())
        return (
            text[: wall.start()] + line[0] + text[wall.start() : line.start()] + text[line.end() :]
        )

    return edit


WAIT = r"\{\s*\.reg \.pred\s+P1;[^}]*\}"
LINE = r"\t{}[^\n]*;\n"
ROWS = cases.ALL["softmax blocks, float32"]
FEW = by_warpgroups("bfloat16", 130, 136, 200, True)
TILES = product("bfloat16", 40, 130, 72, True)
ATTENTION = flash.of(attention("bfloat16", 64, (1, 1)), d0=70, d1=300)
MISTAKES = {
    # spec, sizes, architecture, what is done to its PTX, what the machine says
    "rows: no barrier": (
        ROWS, cases.DIMS, "sm_80", replaced(LINE.format("bar\\.sync"), "", 0), "race",
    ),
    "rows: a predicate the other way": (
        ROWS, cases.DIMS, "sm_80", replaced(r"setp\.gt\.f32", "setp.lt.f32", 0), "Not equal",
    ),
    "tiles: no wait for copies": (
        TILES, {}, "sm_80", replaced(LINE.format("cp\\.async\\.wait_group"), "", 0),
        "race|uninitialised",
    ),
    "tiles: a load of a fragment above the wait": (
        TILES, {}, "sm_80",
        moved(LINE.format("ldmatrix"), r"\tcp\.async\.wait_group"), "race|may not be written",
    ),
    "tiles: registers of a product in another order": (
        TILES, {}, "sm_80",
        replaced(r"(mma\.sync[^{]*\{[^}]*\},\s*\{)\s*(%r\d+),\s*(%r\d+)", r"\1\3, \2", 0),
        "Not equal",
    ),
    "warpgroups: no wait for a stage": (
        FEW, {}, "sm_90a", replaced(WAIT, "", 0), "race|uninitialised|arrivals",
    ),
    "warpgroups: a wait that does not ask again": (
        FEW, {}, "sm_90a", replaced(r"bra\.uni\s+LAB_WAIT;", "", 0), "race|uninitialised|arrivals",
    ),
    "warpgroups: no wait for products": (
        FEW, {}, "sm_90a", replaced(LINE.format(r"wgmma\.wait_group"), "", 0), "accumulator|race",
    ),
    "warpgroups: no fence of registers": (
        FEW, {}, "sm_90a", replaced(LINE.format(r"wgmma\.fence"), "", 0), r"no wgmma\.fence",
    ),
    "warpgroups: no fence of what was initialised": (
        FEW, {}, "sm_90a", replaced(LINE.format(r"fence\.mbarrier_init"), ""),
        r"no fence\.mbarrier_init",
    ),
    "warpgroups: the blocks of a cluster do not meet": (
        FEW, {}, "sm_90a", replaced(LINE.format(r"barrier\.cluster"), "", 0),
        "race|nobody initialised|which ended",
    ),
    "warpgroups: no wait for the kernel before": (
        FEW, {}, "sm_90a", replaced(LINE.format(r"griddepcontrol\.wait"), ""),
        r"before griddepcontrol\.wait|wanted",
    ),
    "warpgroups: a copy of the map": (
        FEW, {}, "sm_90a", replaced(r"\.align 64 (\.b8 \w+_param)", r".align 16 \1"),
        "wanted a tensor map of 128 bytes, aligned to 64",
    ),
    "attention: no wait for a stage": (
        ATTENTION, {}, "sm_90a", replaced(WAIT, "", 0), "race|uninitialised|arrivals",
    ),
    "attention: a sum above the wait": (
        ATTENTION, {}, "sm_90a", moved(LINE.format(r"max\.f32"), r"\twgmma\.wait_group"),
        "accumulator|may not be written",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_kernels(monkeypatch, name):
    spec, dims, arch, edit, says = MISTAKES[name]
    machine = HOPPER if arch == "sm_90a" else cuda_harness.MACHINE
    monkeypatch.setattr(cuda_harness, "MACHINE", machine)
    monkeypatch.setattr(cuda_harness, "of_ptx", True)
    monkeypatch.setattr(cuda_harness, "to_ptx", lambda *args: edit(to_ptx(*args)))
    with pytest.raises(AssertionError, match=says):
        kernels.check(spec, dims)
