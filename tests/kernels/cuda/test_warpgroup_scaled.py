"""Products of many rows by weights of 8 and 4 bits by wgmma: results, and what is assembled."""

import re

import pytest
from test_kernels import check
from test_tensor_cores import body, quantized
from test_warpgroup import SHARED, check_cubin
from warpgroup_cases import HOPPER, cut_into_pieces
from warpgroup_cases import body as one_output

from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.registry import find

pytestmark = pytest.mark.usefixtures("on_hopper")


def few(spec):
    """As `Kernel.split` has it for calls of 17 to 64 rows."""
    return find(spec.op, "cuda").split(spec)[1].spec


E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"

RESULTS = {
    # spec, elements that buffers are shifted by, d0, d1, d2
    "4 bits": (quantized("bfloat16", 70, 40, 160, 4, 32), 0),
    "4 bits, two tiles side by side": (quantized("float16", 65, 136, 128, 4, 64), 0),
    "8 bits": (quantized("bfloat16", 70, 72, 288, 8, 32), 0),
    "8 bits, groups as deep as a stage": (quantized("float16", 66, 24, 256, 8, 128), 0),
    "8 bits, groups deeper than a stage": (quantized("bfloat16", 66, 24, 512, 8, 256), 0),
    "groups that do not divide a stage": (quantized("bfloat16", 66, 24, 192, 8, 96), 0),
    "8-bit floats": (quantized("bfloat16", 66, 24, 160, 8, 32, E4M3), 0),
    "8-bit floats in float16": (quantized("float16", 66, 24, 128, 8, 64, E5M2), 0),
    "more rounds than stages": (quantized("bfloat16", 66, 24, 6 * 128, 4, 128), 0),
    "blocks that go from tile to tile": (quantized("bfloat16", 200, 264, 128, 8, 64), 0),
    "a body": (body(quantized("bfloat16", 130, 72, 64, 8, 32)), 0),
    "a body that is stored by TMA": (one_output(quantized("float16", 70, 72, 64, 4, 32), 1), 0),
    "columns that TMA does not store": (quantized("bfloat16", 70, 27, 64, 4, 32), 0),
    "rows at run time": (quantized("bfloat16", "d0", 136, 64, 4, 32), 0, 131),
    "one row at run time": (quantized("bfloat16", "d0", 136, 64, 8, 32), 0, 1),
    "no row at run time": (quantized("bfloat16", "d0", 136, 64, 8, 32), 0, 0),
    "tiles of 64 rows": (quantized("bfloat16", 50, 136, 288, 4, 32), 0),
    "tiles of 64 rows, 8 bits": (body(quantized("float16", 64, 72, 256, 8, 128)), 0),
    "tiles of 64 rows, unaligned": (quantized("bfloat16", 17, 40, 160, 8, 32), 1),
    "few rows at run time": (
        few(one_output(quantized("bfloat16", "d0", 264, 384, 4, 64), 1)),
        0,
        49,
    ),
    "unaligned buffers": (body(quantized("float16", 130, 136, 96, 4, 32)), 1),
    "unaligned buffers, 8 bits": (quantized("bfloat16", 66, 24, 160, 8, 32), 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    spec, shift, *dims = RESULTS[name]
    assert warpgroup_plan.plan_for(spec, HOPPER)
    check(spec, {f"d{i}": size for i, size in enumerate(dims)}, shift)


@pytest.mark.parametrize("m", [66, "d0"])
def test_no_weights_are_for_strips(m):
    """There would be no scale that could be read in advance."""
    spec = quantized("bfloat16", m, 24, 0, 8, 32)
    assert warpgroup_plan.plan_for(spec, HOPPER) is None
    check(spec, {"d0": 66})


PIECES = {
    "two pieces": (quantized("bfloat16", 66, 24, 3 * 128, 4, 32), ()),
    "more clusters than tiles": (body(quantized("float16", 130, 264, 2 * 128, 8, 128)), ()),
    "few rows": (body(quantized("bfloat16", 40, 136, 3 * 128, 8, 64)), ()),
    "one row": (one_output(quantized("bfloat16", "d0", 136, 3 * 128, 4, 64), 1), (1,)),
}


@pytest.mark.parametrize("name", PIECES)
def test_tiles_in_pieces(monkeypatch, name):
    spec, dims = PIECES[name]
    brought = cut_into_pieces(monkeypatch)
    check(spec, {f"d{i}": size for i, size in enumerate(dims)})
    assert brought


@pytest.mark.parametrize(
    ("m", "n", "k", "cut"),
    [(512, 4096, 4096, False), (512, 6144, 4096, True), (2048, 28672, 4096, True)],
)
def test_plans_keep_multiprocessors_busy(m, n, k, cut):
    plan = warpgroup_plan.plan_for(quantized("bfloat16", m, n, k, 4, 128), HOPPER)
    assert (plan.cluster, plan.cut) == (2, cut)
    assert 112 <= warpgroup_plan.launch(plan).grid[0] <= 132


ASSEMBLED = {
    "4 bits": quantized("bfloat16", 4096, 4096, 4096, 4, 32),
    "4 bits, groups of 128": quantized("float16", "d0", 4096, 4096, 4, 128),
    "8 bits": quantized("float16", 4096, 4096, 4096, 8, 32),
    "8 bits, groups of 128": quantized("bfloat16", "d0", 4096, 4096, 8, 128),
    "4 bits, groups of 64": quantized("bfloat16", "d0", 4096, 4096, 4, 64),
    "8 bits, groups of 64": quantized("bfloat16", "d0", 4096, 4096, 8, 64),
    "8-bit floats": quantized("bfloat16", "d0", 4096, 4096, 8, 32, E4M3),
    "8-bit floats, groups of 64": quantized("bfloat16", "d0", 4096, 4096, 8, 64, E4M3),
    "8-bit floats, groups of 128": quantized("bfloat16", "d0", 4096, 4096, 8, 128, E5M2),
    "a body": one_output(quantized("bfloat16", "d0", 4096, 4096, 4, 128), 1),
    "two outputs": body(quantized("bfloat16", "d0", 4096, 4096, 8, 32)),
    "few, 4 bits": few(quantized("bfloat16", "d0", 4096, 4096, 4, 128)),
    "few, 4 bits, groups of 32": quantized("bfloat16", 64, 4096, 4096, 4, 32),
    "few, 8 bits": few(quantized("float16", "d0", 4096, 4096, 8, 32)),
    "few, 8-bit floats": few(one_output(quantized("bfloat16", "d0", 4096, 4096, 8, 128, E4M3), 1)),
}


@pytest.mark.parametrize("name", ASSEMBLED)
def test_assembled(name):
    spec = ASSEMBLED[name]
    text = to_ptx(spec, HOPPER)
    kind = {"float16": "f16", "bfloat16": "bf16"}[spec.operands[0].dtype]
    products = re.findall(r"wgmma\.mma_async\.([\w.]+)[^;]*;", text)
    # Two ways in: by TMA, and by threads, have the same consumers.
    rows = 64 if "few" in name else 128
    assert products == [f"sync.aligned.m64n{rows}k16.f32.{kind}.{kind}"] * 8
    for instruction in (
        ".multicast::cluster",
        "prmt.b32",
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "cp.async.bulk.tensor.3d.global.shared::cta",
    ):
        assert (instruction in text) == (
            name != "two outputs" or "global.shared" not in instruction
        )
    launch = find(spec.op, "cuda").launch_on(spec, HOPPER)
    assert launch.shared <= SHARED
    assert launch.cluster == 2
    check_cubin(text)
