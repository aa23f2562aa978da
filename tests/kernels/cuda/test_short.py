"""Products of 17 to 64 rows by wgmma, whose steps along k a cluster shares out."""

import itertools

import cuda_harness
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_cases import beside, gated
from emulator.memory import EmulatorError
from test_kernels import arrays_for, check
from test_tensor_cores import floats
from warpgroup_cases import HOPPER, body, dequantised, product

from heddle.kernels.cuda.products import by_rows, mma
from heddle.kernels.cuda.warpgroup import short_plan, tma
from heddle.kernels.registry import MACHINES, find

pytestmark = pytest.mark.usefixtures("on_hopper")


def some(spec):
    """Of rows that are known to be 17 to 64 when it runs."""
    return spec.with_attr(by_rows.LEAST, 17).with_attr(by_rows.MOST, 64)


def left(n):
    """A product of a left side whose rows are known when it runs."""
    return product("bfloat16", "d0", n, 72, True)


def products(*widths):
    return beside(*(product("bfloat16", 20, n, 2 * 64, True) for n in widths))


RESULTS = {
    # spec, parts along k, elements that buffers are shifted by, d0, d1, d2
    "one part": (product("bfloat16", 17, 24, 72, True), 1, 0),
    "more rounds than stages": (product("float16", 64, 24, 9 * 64 + 8, True), 1, 0),
    "two parts": (product("bfloat16", 33, 40, 5 * 64, True), 2, 0),
    "four parts of columns": (product("float16", 50, 136, 4 * 64, False), 4, 0),
    "fewer steps than parts": (product("bfloat16", 20, 16, 3 * 64, True), 8, 0),
    "several tiles": (product("bfloat16", 18, 280, 2 * 64, True), 2, 0),
    "a body": (body(product("bfloat16", 40, 72, 2 * 64, False)), 2, 0),
    "a batch": (product("bfloat16", 17, 24, 24, True, (2, 2)), 1, 0),
    "rows at run time": (some(product("float16", "d0", 136, 2 * 64, False)), 2, 0, 33),
    "sizes at run time": (some(product("float16", "d0", "d1", "d2", True)), 2, 0, 20, 24, 136),
    "odd sizes at run time": (some(product("float16", "d0", "d1", "d2", False)), 2, 0, 18, 27, 65),
    "no k at run time": (some(product("float16", "d0", "d1", "d2", True)), 2, 0, 17, 24, 0),
    "bytes": (product("int8", 30, 40, 3 * 128 + 16, True), 2, 0),
    "bytes to 16 bits": (dequantised(20, 24, 2 * 144), 2, 0),
    "8-bit floats": (floats("e4m3fn", "e5m2", 20, 40, 2 * 128, True), 2, 0),
    "a gate": (gated(product("bfloat16", 20, 40, 2 * 64, True)), 2, 0),
    "a gate with a bias": (
        some(gated(product("float16", "d0", 72, 64, True), bias=True)),
        1,
        0,
        64,
    ),
    "beside each other": (products(40, 24, 24), 2, 0),
    "own epilogues": (some(beside(*map(body, (left(24), left(40))), left(24))), 1, 0, 40),
    "unaligned and beside": (products(40, 24), 1, 1),
    "unaligned buffers": (body(product("float16", 24, 24, 2 * 72, True)), 2, 1),
    "an unaligned gate": (gated(product("bfloat16", 20, 40, 2 * 64, True)), 2, 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(monkeypatch, name):
    spec, parts, shift, *dims = RESULTS[name]
    monkeypatch.setattr(short_plan, "_PARTS", (parts,))
    plan = short_plan.plan_for(spec, HOPPER)
    assert plan.parts == parts
    check(spec, {f"d{i}": size for i, size in enumerate(dims)}, shift)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("columns", "line"), [(48, 32), (80, 32), (96, 64), (160, 64), (192, 128)])
def test_lines_of_b_divide_tiles(monkeypatch, columns, line, parts):
    """No panel of b [k, n] has columns that are the next tile's."""
    kind = mma.kind_of(product("bfloat16", 20, 2 * columns - 24, 3 * 64 + 8, False))
    tile = short_plan.ShortTile(kind, columns, False)
    monkeypatch.setattr(
        short_plan, "_possible", lambda spec: [short_plan.ShortPlan(spec, tile, parts)]
    )
    spec = product("bfloat16", 20, 2 * columns - 24, 3 * 64 + 8, False)
    assert (tile.b_line, tile.stage) == (line, 64 * 128 + 64 * 2 * columns)
    for shift in (0, 1):
        check(spec, {}, shift)


def test_sums_of_parts_are_added_in_their_order(monkeypatch):
    monkeypatch.setattr(short_plan, "_PARTS", (4,))
    spec = product("bfloat16", 17, 24, 4 * 64, True)
    a, b = arrays_for(spec, {})
    a[...], b[...] = 0, 1
    a[:, ::64] = [2.0**30, 1.0, -(2.0**30), 1.0]
    assert np.unique(cuda_harness.run(spec, [a, b], {})[0][0]) == [1.0]


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (0, "race: reads what thread"),
        (1, "block . ends, and nothing says that thread .* has accessed its shared memory"),
    ],
)
def test_a_meeting_that_is_left_out_is_caught(monkeypatch, left_out, message):
    """Of two, of those who multiply and those who bring: before sums are read, and behind that."""
    meet, calls = tma.meet_in_cluster, itertools.count()
    monkeypatch.setattr(cuda_harness, "keeps", False)
    monkeypatch.setattr(short_plan, "_PARTS", (2,))
    monkeypatch.setattr(
        tma, "meet_in_cluster", lambda: None if next(calls) % 2 == left_out else meet()
    )
    with pytest.raises(EmulatorError, match=message):
        check(product("bfloat16", 20, 24, 2 * 64, True), {})


PLANS = [
    # n, k, whether b is [n, k]; columns of a tile, parts along k
    (6144, 4096, True, 48, 1),
    (6144, 4096, False, 64, 1),
    (28672, 4096, True, 224, 1),
    (28672, 4096, False, 224, 1),
    (4096, 14336, True, 64, 2),
    (10240, 8192, True, 80, 1),
    (10240, 8192, False, 160, 2),
    (8192, 28672, True, 64, 1),
]


@pytest.mark.parametrize(("n", "k", "transposed", "columns", "parts"), PLANS)
def test_a_tile_for_each_multiprocessor(n, k, transposed, columns, parts):
    spec = product("bfloat16", 64, n, k, transposed)
    plan = short_plan.plan_for(spec, HOPPER)
    assert (plan.tile.columns, plan.parts) == (columns, parts)
    launch = find("matmul", "cuda").launch_on(spec, HOPPER)
    assert 80 <= launch.grid[0] <= 132
    assert launch.shared <= 227 * 1024
    assert plan.tile.rows * (columns + 8) * 4 <= plan.barriers, "sums fit where stages were"


def test_what_is_for_strips_alone():
    for spec in (
        product("bfloat16", 16, 40, 64, True),
        product("bfloat16", "d0", 40, 64, True),
        product("bfloat16", 20, 13, 64, False),
        gated(product("bfloat16", 20, 40, 64, False)),
        beside(product("bfloat16", 20, 40, 64, True), product("bfloat16", 20, 40, 64, False)),
    ):
        assert short_plan.plan_for(spec, HOPPER) is None
    assert short_plan.plan_for(product("bfloat16", 20, 40, 64, True), MACHINES["sm_80"]) is None


@needs_assembler
@pytest.mark.parametrize(
    "name", ["a body", "a gate with a bias", "own epilogues", "bytes to 16 bits"]
)
def test_no_register_is_spilled(name):
    spec, *_ = RESULTS[name]
    assert "wgmma.mma_async" in check_no_spills(spec, HOPPER.arch)
