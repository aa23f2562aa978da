"""Products by mma.sync: results, planted mistakes, launches, banks, and what is assembled."""

import itertools
import re
from dataclasses import replace

import cuda_cases as cases
import numpy as np
import pytest
from assembler import machine_code, needs_assembler
from cuda_cases import fused, plain, tensor
from cuda_harness import run
from emulator.memory import EmulatorError
from reference import numpy_dtype, size
from test_kernels import check

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.products import mma, scaled, staging, tensor_cores, tiles
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec
from heddle.kernels.tuning import forced

SHARED_OF_SM_80 = 163 * 1024  # Bytes that one block can have ("Compute Capabilities").
BANKS = 128  # Bytes that all banks of shared memory give at once.


def right(n, k, transposed: bool) -> tuple:
    return (n, k) if transposed else (k, n)


def product(dtype: str, m, n, k, transposed: bool, batch: tuple = ()) -> Spec:
    operands = [
        tensor(dtype, *batch, m, k),
        tensor(dtype, *batch, *right(n, k, transposed)),
    ]
    return plain("matmul", operands, tensor(dtype, *batch, m, n), transposed=transposed)


def integers(dtype: str, m, n, k, transposed: bool) -> Spec:
    operands = [tensor(dtype, m, k), tensor("int8", *right(n, k, transposed))]
    return plain("integer_matmul", operands, tensor("int32", m, n), transposed=transposed)


def floats(a: str, b: str, m, n, k, transposed: bool) -> Spec:
    operands = [tensor(f"float8_{a}", m, k), tensor(f"float8_{b}", *right(n, k, transposed))]
    return plain("float8_matmul", operands, tensor("float32", m, n), transposed=transposed)


def quantized(dtype: str, m, n, k, bits: int, group: int, held: str = "int8") -> Spec:
    weight = tensor(held, n, k) if bits == 8 else tensor("uint8", n, k // 2)
    operands = [tensor(dtype, m, k), weight, tensor(dtype, n, k // group)]
    return plain("quantized_matmul", operands, tensor(dtype, m, n), bits=bits, group=group)


def body(spec: Spec) -> Spec:
    return fused(spec, prologue=False)


def before(spec: Spec) -> Spec:
    return replace(fused(spec), epilogue=None, outputs=(spec.result,))


RESULTS = {
    # spec, columns of a tile, elements that buffers are shifted by
    "four tiles": (product("bfloat16", 130, 136, 24, False), 128, 0),
    "more rounds than stages": (product("bfloat16", 65, 24, 264, False), 128, 0),
    "tiles of b in rows": (product("float16", 70, 72, 72, True), 128, 0),
    "wide tiles": (body(product("float16", 65, 200, 72, True)), 256, 0),
    "wide tiles of columns": (body(product("bfloat16", 65, 168, 72, False)), 256, 0),
    "single elements": (product("bfloat16", 67, 13, 81, False), 128, 0),
    "single elements along k": (product("float16", 67, 24, 67, True), 256, 0),
    "unaligned tiles": (body(product("bfloat16", 65, 24, 72, True)), 128, 1),
    "no k": (product("bfloat16", 65, 24, 0, False), 128, 0),
    "one row": (product("bfloat16", 1, 24, 1032, True), 0, 0),
    "sixteen rows": (body(product("float16", 16, 72, 200, False)), 0, 0),
    "sixty-four rows": (body(product("bfloat16", 64, 24, 520, False)), 0, 0),
    "forty rows of b in rows": (product("float16", 40, 72, 136, True), 0, 0),
    "single elements of strips": (product("bfloat16", 20, 35, 70, True), 0, 0),
    "a batch of strips": (product("float16", "d0", 24, 72, True, (3,)), 0, 0),
    "bytes": (integers("int8", 70, 48, 272, True), 128, 0),
    "bytes in pairs of columns": (integers("uint8", 70, 48, 144, False), 128, 0),
    "wide tiles of bytes": (integers("int8", 65, 208, 48, False), 256, 0),
    "few rows of bytes": (integers("uint8", 7, 40, 1040, True), 0, 0),
    "few rows of bytes in pairs": (integers("int8", 7, 33, 45, False), 0, 0),
    "bytes that are computed before": (before(integers("uint8", 5, 24, 40, True)), 0, 0),
    "8-bit floats": (floats("e4m3fn", "e4m3fn", 70, 48, 272, True), 128, 0),
    "8-bit floats in pairs of columns": (floats("e5m2", "e4m3fn", 70, 48, 144, False), 128, 0),
    "few rows of 8-bit floats": (body(floats("e4m3fn", "e5m2", 7, 40, 1040, True)), 0, 0),
    "8-bit floats computed before": (before(floats("e4m3fn", "e5m2", 5, 24, 40, True)), 0, 0),
    "8 bits in groups of 48": (quantized("float16", 5, 24, 96, 8, 48), 0, 0),
    "8 bits in groups of 32": (quantized("bfloat16", 5, 40, 352, 8, 32), 0, 0),
    "8 bits of float16": (body(quantized("float16", 33, 72, 384, 8, 128)), 0, 0),
    "8-bit floats of float16": (quantized("float16", 33, 72, 384, 8, 128, "float8_e4m3fn"), 0, 0),
    "8-bit floats of bfloat16": (quantized("bfloat16", 5, 40, 352, 8, 32, "float8_e5m2"), 0, 0),
    "8-bit floats of float32": (quantized("float32", 5, 40, 64, 8, 64, "float8_e5m2"), 0, 0),
    "8 bits in groups of 96": (quantized("bfloat16", 5, 40, 672, 8, 96), 0, 0),
    "8 bits in groups of 256": (quantized("float16", 5, 40, 1024, 8, 256), 0, 0),
    "4 bits in groups of 768": (quantized("bfloat16", 3, 40, 3072, 4, 768), 0, 0),
    "4 bits in groups of 128": (quantized("bfloat16", 3, 40, 1536, 4, 128), 0, 0),
    "4 bits in groups of 64": (quantized("float16", 16, 40, 320, 4, 64), 0, 0),
    "4 bits of many rows": (body(quantized("bfloat16", 70, 24, 384, 4, 128)), 0, 0),
    "4 bits unaligned": (quantized("bfloat16", 3, 33, 64, 4, 64), 0, 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    spec, width, shift = RESULTS[name]
    with forced({spec.op: {"columns": width}}):
        check(spec, {"d0": 5}, shift)


def test_strips_of_64_columns(monkeypatch):
    monkeypatch.setattr(tensor_cores, "narrow", lambda *_: 64)
    check(product("bfloat16", 3, 72, 104, False), {})
    check(product("float16", 16, 24, 72, True), {})
    check(quantized("bfloat16", 2, 72, 288, 4, 32), {})


@pytest.mark.parametrize("m", [5, 40, 70])
def test_rows_of_run_time_choose_the_way(m):
    check(product("bfloat16", "d0", 24, "d1", False), {"d0": m, "d1": 40})
    check(quantized("float16", "d0", 16, 64, 8, 64), {"d0": m})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("bits", [8, 4])
def test_each_weight_is_exact(bits, dtype):
    k, n, number = 32, 16, numpy_dtype(dtype)
    stored = np.arange(n * k * bits // 8).astype(np.uint8).reshape(n, -1)
    if bits == 8:
        wanted = stored.view(np.int8)
    else:
        wanted = np.stack([stored & 15, stored >> 4], axis=-1).reshape(n, k).astype(int) - 8
    arrays = [np.eye(k, dtype=number), stored.view(np.int8 if bits == 8 else np.uint8)]
    ((found,), _) = run(quantized(dtype, k, n, k, bits, k), [*arrays, np.ones((n, 1), number)], {})
    np.testing.assert_array_equal(found.T.astype(int), wanted)


def nothing(*_) -> None:
    pass


wait = mma.wait
MISTAKES = {
    "no wait": ((mma, "wait", nothing), "race: reads what a cp.async in flight"),
    "a wait for one less": (
        (mma, "wait", lambda left: wait(left + 1)),
        "race: reads what a cp.async in flight",
    ),
    "no barrier": ((staging._block, "barrier", nothing), "race: "),
    "copies of 16 bytes everywhere": (
        (staging.Matrix, "whole", lambda matrix: _always()),
        "misaligned",
    ),
}


def _always():
    return staging.emit.constant(staging.emit.integer(1), 1)


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("spec", ["tiles", "strips", "scaled"])
def test_mistakes_are_caught(monkeypatch, spec, name):
    aligned = name != "copies of 16 bytes everywhere"
    k = 520 if aligned else 516
    specs = {
        "tiles": product("bfloat16", 65, 24, k, True),
        "strips": product("bfloat16", 17, 24, k + 512, True),
        "scaled": quantized("bfloat16", 5, 24, 4096 + 32, 8, 32),
    }
    planted, message = MISTAKES[name]
    monkeypatch.setattr(*planted)
    with pytest.raises(EmulatorError, match=message):
        check(specs[spec], {}, 0 if aligned else 1)


ROWS = (1, 16, 17, 64, 65, 129, 1000)


@pytest.mark.parametrize("n", [24, 4096, 28672])
def test_launch_of_rows_at_run_time_is_that_of_known_rows(n):
    def launches(m):
        specs = (product("bfloat16", m, n, 64, True), quantized("float16", m, n, 64, 4, 32))
        return [find(spec.op, "cuda").launch(spec) for spec in specs]

    for m in ROWS:
        with forced({"matmul": {"columns": 128}}):
            for general, known in zip(launches("d0"), launches(m), strict=True):
                assert size(general.grid[0], {"d0": m}) == known.grid[0]
                assert general.block == known.block == (256, 1, 1)
                assert general.shared >= known.shared


WIDE, NARROW = ((4096, 4096), (512, 6144), (2048, 4096)), ((512, 4096), (128, 4096))


@pytest.mark.parametrize(("m", "n"), WIDE + NARROW)
def test_columns_of_tiles(m, n):
    spec, columns = product("bfloat16", m, n, 4096, False), 256 if (m, n) in WIDE else 128
    launch = find("matmul", "cuda").launch(spec)
    assert launch.grid == (m // 128 * n // columns, 1, 1)
    assert launch.shared == tiles.shared_bytes(columns) <= SHARED_OF_SM_80


def strips():
    for m, n in itertools.product((1, 64), (4096, 6144, 10240, 28672)):
        for spec in (
            product("bfloat16", m, n, 4096, False),
            product("bfloat16", m, n, 4096, True),
            quantized("bfloat16", min(m, scaled.FEW), n, 4096, 8, 128),
            quantized("bfloat16", min(m, scaled.FEW), n, 4096, 4, 128),
        ):
            module = scaled if spec.op == "quantized_matmul" else tensor_cores
            (way,) = module.ways(spec)
            yield way, way.body.args[0]


def test_strips_keep_enough_bytes_in_flight():
    """Little's law: 4.3 TB/s for 700 ns on 132 multiprocessors is 23 KB on each of them."""
    for way, strip in strips():
        b = strip.stage - strip.rows * strip.depth * strip.kind.item
        at_once = max(1, min(2, way.blocks // 132))
        assert at_once * (strip.stages - 1) * b >= 23_000
        assert strip.stages * strip.stage <= way.shared
        shares = strip.warps_along_k * strip.rows * (strip.columns + 8) * 4
        assert shares <= way.shared


@pytest.mark.parametrize(
    ("length", "width"),
    [(64, 16), (128, 16), (256, 16), (128, 32), (256, 32), (256, 64), (512, 64)],
)
def test_neighbouring_lines_are_in_different_banks(length, width):
    """Each phase of ldmatrix and of ld.shared gives `width` bytes of as many lines as there are."""
    lines = BANKS // width
    for first in range(0, 32, lines):
        for part in range(0, length // 16, width // 16):
            chunks = [
                line * length // 16 + staging.swizzled(line, chunk, length, width)
                for line in range(first, first + lines)
                for chunk in range(part, part + width // 16)
            ]
            assert len({chunk % 8 for chunk in chunks}) == 8
    for line in range(8):
        found = {staging.swizzled(line, c, length, width) for c in range(length // 16)}
        assert found == set(range(length // 16))


BOTH = ("sm_80", "sm_90a")
ASSEMBLED = {
    "tiles": (product("bfloat16", 4096, 4096, 4096, False), BOTH[:1]),
    "tiles with a body": (body(product("float16", 4096, 4096, 4096, True)), BOTH[:1]),
    "any sizes": (product("bfloat16", "d0", "d1", "d2", True), BOTH[:1]),
    "rows at run time": (product("bfloat16", "d0", 4096, 4096, False), BOTH[:1]),
    "bytes": (integers("int8", 4096, 4096, 4096, False), BOTH),
    "8 bits": (quantized("bfloat16", "d0", 4096, 4096, 8, 128), ("sm_80",)),
    "8 bits, few rows": (quantized("bfloat16", 16, 4096, 4096, 8, 128), BOTH),
    "4 bits with a body": (body(quantized("float16", "d0", 28672, 4096, 4, 32)), ("sm_80",)),
    "4 bits with a body, few rows": (body(quantized("float16", 16, 28672, 4096, 4, 32)), BOTH),
}
"""Specs, and the architectures on which they run by mma.sync, all or in part."""


@needs_assembler
@pytest.mark.parametrize("name", ASSEMBLED)
def test_assembled(name):
    spec, archs = ASSEMBLED[name]
    launch = find(spec.op, "cuda").launch(spec)
    for arch in archs:
        text = to_ptx(spec, MACHINES[arch])
        assert "cp.async.cg.shared.global" in text
        assert re.search(r"mma\.sync\.aligned\.m16n8k(16|32)\.row\.col", text)
        matrices = spec.op != "quantized_matmul"
        assert ("ldmatrix.sync.aligned.m8n8.x4" in text) == matrices
        assert not any(word in text for word in ("call", ".local"))
        cubin = ptx.assemble(text, arch)
        assert cubin.spills == 0
        assert cubin.shared + launch.shared <= SHARED_OF_SM_80
        assert cubin.registers * launch.block[0] <= 65536


MACHINE_CODE = {
    "tiles": ("HMMA.16816.F32.BF16", "LDSM.16.M88.4", "LDSM.16.MT88.4"),
    "bytes": ("IMMA.16832.S8.S8", "LDSM.16.M88.4", "LDSM.16.MT88.4"),
    "8 bits": ("HMMA.16816.F32.BF16", "HFMA2", "LDS.128"),
    "4 bits with a body": ("HMMA.16816.F32 ", "HFMA2", "LDS.128"),
}


@needs_assembler
@pytest.mark.parametrize("name", MACHINE_CODE)
def test_machine_code(name):
    cubin = ptx.assemble(to_ptx(ASSEMBLED[name][0], MACHINES["sm_80"]), "sm_80")
    code = machine_code(cubin)
    for instruction in (*MACHINE_CODE[name], "LDGSTS.E.BYPASS", "LDGDEPBAR"):
        assert instruction in code


def test_what_comes_before_keeps_a_product_off_tensor_cores():
    for spec in (product("float16", 8, 8, 8, True), integers("int8", 8, 8, 8, True)):
        assert tensor_cores.fits(spec)
        assert not tensor_cores.fits(fused(spec))
    assert not tensor_cores.fits(cases.ALL["matmul, float32"])
    spec = quantized("bfloat16", 8, 8, 64, 4, 32)
    assert scaled.fits(spec)
    assert not scaled.fits(fused(spec))
    assert not scaled.fits(quantized("bfloat16", 8, 8, 96, 4, 48))
    assert not scaled.fits(cases.quantized("float32", 8))
