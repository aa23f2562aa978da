"""Products of few rows that are cut along k: results, a planted mistake, launches, assembly."""

import pytest
from assembler import check_no_spills, needs_assembler
from emulator.memory import EmulatorError
from reference import size
from test_kernels import check
from test_tensor_cores import body, integers, product, quantized

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.products import scaled, tensor_cores
from heddle.kernels.registry import find

PARTS = {
    # spec, blocks
    "three parts of b in rows": (product("bfloat16", 3, 40, 3072 + 24, True), 6),
    "three parts of a batch": (body(product("float16", 2, 24, 3072, False, (2,))), 6),
    "four parts of bytes": (integers("int8", 4, 24, 8192, True), 4),
    "thirty rows": (body(product("bfloat16", 30, 24, 1200, False)), 3),
    "8 bits": (quantized("bfloat16", 5, 24, 6144, 8, 128), 3),
    "4 bits": (quantized("float16", 2, 24, 6144, 4, 64), 3),
    "4 bits of 16 rows": (quantized("float16", 16, 24, 6144, 4, 64), 3),
}


@pytest.mark.parametrize("name", PARTS)
def test_results(name):
    spec, blocks = PARTS[name]
    assert find(spec.op, "cuda").launch(spec).grid == (blocks, 1, 1)
    check(spec, {}, 0)


def test_no_fence_is_caught(monkeypatch):
    monkeypatch.setattr(_handover, "fence", lambda: None)
    with pytest.raises(EmulatorError, match="race: two threads write"):
        check(product("bfloat16", 1, 24, 3072, True), {}, 0)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        (product("bfloat16", 1, 1024, 4096, True), 4),
        (product("bfloat16", 16, 1024, 8192, True), 4),
        (product("bfloat16", 1, 4096, 4096, True), 1),  # 128 strips are a wave.
        (product("bfloat16", 64, 4096, 4096, True), 2),
        (product("bfloat16", "d0", 6144, 4096, True), 1),
        (product("bfloat16", 1, 4096, 14336, True), 2),  # 64 strips, of 64 columns.
        (quantized("bfloat16", 1, 1024, 4096, 4, 128), 2),
        (quantized("bfloat16", 1, 1024, 3072, 4, 128), 1),  # Parts would have too few steps.
        (quantized("bfloat16", 1, 4096, 4096, 4, 128), 1),
        (quantized("bfloat16", 1, 4096, 14336, 4, 128), 4),
        (quantized("bfloat16", 64, 4096, 14336, 4, 128), 2),
    ],
)
def test_parts_fill_a_gpu_and_their_stages(spec, parts):
    module = scaled if spec.op == "quantized_matmul" else tensor_cores
    way, *_ = module.ways(spec)
    strip, cut, found, _ = way.body.args
    assert found == parts
    assert cut == (way.blocks // parts if parts > 1 else 0)
    few = spec.op == "quantized_matmul" and strip.rows <= scaled.FEW
    assert parts == 1 or way.blocks <= (264 if few else 132)
    assert way.workspace == (way.blocks * strip.rows * strip.columns * 4 if cut else 0)


@pytest.mark.parametrize(
    ("spec", "blocks"),
    [
        (product("bfloat16", 1, 4096, 4096, True), 128),
        (product("bfloat16", "d0", 4096, 14336, True), 128),
        (quantized("bfloat16", 1, 4096, 14336, 4, 128), 128),
        (product("bfloat16", 1, 6144, 4096, True), 192),
        (product("bfloat16", 1, 1024, 2048, True), 32),
    ],
)
def test_two_of_one_wave_share_no_multiprocessor(spec, blocks):
    portion, *_ = find(spec.op, "cuda").split(spec)
    launch = find(spec.op, "cuda").launch(portion.spec)
    assert size(launch.grid[0], {"d0": 1}) == blocks
    room = 227 * 1024  # Of a multiprocessor of sm_90a.
    assert (2 * launch.shared > room) == (blocks == 128)
    assert launch.shared <= room // 2 + 2048


@needs_assembler
@pytest.mark.parametrize(
    ("name", "arch"), [("8 bits", "sm_80"), ("8 bits", "sm_90a"), ("thirty rows", "sm_80")]
)
def test_no_register_is_spilled(name, arch):
    text = check_no_spills(PARTS[name][0], arch)
    assert text.count("fence.acq_rel.gpu") == 2
