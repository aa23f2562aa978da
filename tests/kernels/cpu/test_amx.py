"""Products in AMX tiles, emulated, and the machine code that ships."""

import re

import amx_emulation
import cache_model
import machine_code
import native
import numpy as np
import pytest
from amx_products import ARCH, MACHINE, OPS, exact, numbers, product
from native import check, random, run
from prefetches import lines_asked_for
from reference import shape

from heddle.graph.compiler.codegen import cpu
from heddle.kernels.cpu.amx import held, products, sides, tiles
from heddle.kernels.spec import Body, Operand, Step
from heddle.runtime._core import cpu_info


@pytest.mark.parametrize("dtype", OPS)
def test_all_sizes_dynamic(dtype):
    spec = product(dtype, "d0", "d1", "d2")
    extents = [(1, 1, 1), (16, 32, 32), (17, 33, 33), (33, 63, 70), (96, 64, 64), (97, 101, 96)]
    for m, k, n in [*extents, (40, 1100, 40), (70, 0, 5), (0, 7, 5), (2, 7, 0)]:
        exact(spec, {"d0": m, "d1": k, "d2": n})


@pytest.mark.parametrize("dtype", OPS)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (0, 4096, 64),
        (1, 7, 33),
        (16, 64, 32),
        (70, 1024, 40),
        (200, 40, 70),
        (50, 1030, 33),
        (5, 5000, 32 * (products.RUN + 3)),
        (3, 17000, 40),
        (100, 4200, 70),
        (7 * products.BLOCK + 1, 40, 33),
    ],
)
def test_static_sizes(m, k, n, dtype):
    exact(product(dtype, m, k, n))


@pytest.mark.parametrize("dtype", OPS)
@pytest.mark.parametrize("batched", [False, True])
def test_batches(batched, dtype):
    exact(product(dtype, "d0", 22, 40, (3,), batched), {"d0": 7})


def test_numbers_that_are_rounded():
    check(product("bfloat16", "d0", 200, 40), {"d0": 20}, arch=ARCH, atol=1e-4)


@pytest.mark.skipif(bool(cpu_info()["missing"][ARCH]), reason="there is no AMX")
@pytest.mark.parametrize("dtype", OPS)
def test_a_processor_gives_the_same_bits(dtype):
    """Denormals, infinities and sums that overflow too; rows that lie well, and others."""
    spec = product(dtype, "d0", 224, 72)
    rng = np.random.default_rng(0)
    arrays = [
        random(rng, shape(operand.shape, {"d0": 77}), operand.dtype) for operand in spec.inputs
    ]
    if dtype == "bfloat16":
        scales = np.exp2(rng.integers(-140, 120, arrays[0].shape)).astype(np.float32)
        arrays[0] = (arrays[0].astype(np.float32) * scales).astype(arrays[0].dtype)
        arrays[0][3, :5] = np.inf
    emulated, _ = run(spec, arrays, {"d0": 77}, ARCH)
    computed, _ = run(spec, arrays, {"d0": 77}, ARCH, load=native.load_as_shipped)
    for one, other in zip(emulated, computed, strict=True):
        np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


def with_gelu():
    result = Operand("bfloat16", ("d0", 100))
    steps = (
        Step("add", (0, 1), "bfloat16"),
        Step("gelu", (3,), "bfloat16", (("approximate", "none"),)),
        Step("add", (4, 2), "bfloat16"),
    )
    body = Body((Operand("bfloat16", (100,)), result), steps, (5,))
    return product("bfloat16", "d0", "d1", 100, epilogue=body)


def test_an_epilogue():
    check(with_gelu(), {"d0": 20, "d1": 40}, arch=ARCH, atol=1e-4)


_load = tiles.load
MISTAKES = {
    "load": (
        tiles,
        lambda base, stride, *streamed, **shape: _load(base, tiles.TILE_ROW, **shape),
        "Mismatched elements",
    ),
    "zero": (tiles, lambda: tiles._intrinsic("tilezero", 17, 64), "a tile of 17 rows"),
    "ends_within": (sides.Sides, False, "of a load lies outside of memory"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    """A wrong stride, rows that no tile has, and a panel that is read beyond its end."""
    place, value, message = MISTAKES[name]
    monkeypatch.setattr(place, name, value)
    with pytest.raises(AssertionError, match=message):
        exact(product("bfloat16", 40, 70, 40))


@pytest.mark.parametrize(("chunk", "stays"), [(products.CHUNK, True), (2 * products.CHUNK, False)])
@pytest.mark.usefixtures("emitted_anew")
def test_a_panel_stays_in_the_first_cache(chunk, stays, monkeypatch):
    """A product takes half a tile of a panel, 8 lines, once for all four pairs of tiles of rows."""
    monkeypatch.setattr(products, "CHUNK", chunk)
    spec = product("bfloat16", 128, 1024, 64)
    run(spec, numbers(spec, {}), arch=ARCH)
    missed = cache_model.misses(amx_emulation.rows_touched) / len(amx_emulation.products)
    assert (missed < 4) == stays


@pytest.mark.parametrize(
    ("rows", "apart"), [(32, 8), (33, 4), (products.FEW, 4), (products.FEW + 1, 1)]
)
@pytest.mark.parametrize("m", ["static", "d0"])
def test_a_step_of_few_rows_asks_for_four_lines(rows, apart, m, monkeypatch):
    """Of all but the first chunk, or what is soon read; more rows ask for each line."""
    monkeypatch.setattr(held, "HELD", 0)
    monkeypatch.setattr(held, "WHOLE", 0)
    spec = product("bfloat16", rows if m == "static" else m, 24 * 32, 96)
    arrays = [*numbers(spec, {"d0": rows}), np.zeros((rows, 96), np.uint16)]
    asked = lines_asked_for(spec, MACHINE, arrays, [] if m == "static" else [rows], 0, 3)
    lines = sides.STEP // 64
    begin = products.AHEAD // 64 if rows <= 32 else lines * (12 if apart == 1 else products.SHORT)
    assert asked[1] == set(range(begin, 3 * 24 * lines, apart))
    assert asked[2] == set(range(rows * 96 * 2 // 64))


@pytest.mark.parametrize(
    "spec",
    [product("bfloat16", "d0", "d1", "d2"), product("uint8", 200, 500, 512), with_gelu()],
    ids=["bfloat16", "uint8", "gelu"],
)
def test_the_machine_code(spec):
    multiply = tiles.MULTIPLY[spec.operands[0].dtype]
    text = machine_code.assembly(spec, MACHINE)
    names = ("tileloaddt1", "tileloadd", multiply, "tilestored")
    counts = [tuple(map(body.count, names)) for body in machine_code.loops(text, multiply)]
    counts = [count for count in counts if count[3] == 0]
    # Two loads past the first cache and two through it for four products, or one and two for the
    # two of a last tile of rows; nothing spills.
    assert {(2, 2, 4, 0)} <= set(counts) <= {(2, 2, 4, 0), (1, 2, 2, 0)}
    assert sum(count[2] for count in counts) == text.count(multiply)
    # Outside of them no more stores and loads than there are sums: a spill would be one more.
    assert text.count("tilestored") <= text.count(multiply)
    loads = text.count("tileloadd") - sum(count[0] + count[1] for count in counts)
    several = spec.operands[0].dtype == "bfloat16"
    assert loads == (text.count(multiply) if several else 0)
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1
    assert re.search(r"tile(loadd|stored).*%rsp", text) is None


def test_the_configuration():
    """What LDTILECFG reads: palette 1, and for each tile in use 16 rows of 64 bytes, else zero."""
    text = machine_code.assembly(with_gelu(), MACHINE)
    place = int(re.search(r"\tldtilecfg\t(\d+)\(%rsp\)", text)[1])
    zeros = re.findall(r"\tvmov(?:ups|dqu64)\t%zmm\d+, (\d+)\(%rsp\)", text)
    assert str(place) in zeros
    writes = re.findall(r"\tmov[bw]\t\$(\d+), (\d+)\(%rsp\)", text)
    found = {int(offset) - place: int(value) for value, offset in writes}
    wanted = {0: 1}
    for number in map(int, set(re.findall(r"%tmm(\d)", text))):
        wanted |= {16 + 2 * number: tiles.TILE_ROW, 48 + number: tiles.TILE_ROWS}
    assert found == wanted


def test_tiles_keep_their_order_with_other_accesses():
    """LLVM takes each for a call that may read and write any memory, as the emulation's are."""
    module, _target = cpu.optimized(native.llvm_ir(with_gelu(), MACHINE), MACHINE)
    text = str(module)
    declared = re.findall(
        r"^declare .*@llvm\.x86\.tile(?:load|store).*\) #(\d+)$", text, re.MULTILINE
    )
    assert len(declared) == 3
    assert all(f"attributes #{number} = {{ nounwind }}\n" in text for number in declared)
