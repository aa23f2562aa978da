"""Products in AMX tiles by a b that the second cache holds."""

import re

import amx_emulation
import cache_model
import machine_code
import native
import numpy as np
import pytest
from amx_products import ARCH, MACHINE, exact, numbers, product
from native import run
from prefetches import lines_asked_for

from heddle.kernels.cpu.amx import held as amx_held
from heddle.kernels.cpu.amx import products, tiles
from heddle.kernels.cpu.amx.sides import PAIR, STEP
from heddle.kernels.spec import Body, Operand, Step

OF_STEP = {"bfloat16": 32, "uint8": 64}
"""Elements along k of a step, by the dtype of a."""


@pytest.fixture(autouse=True)
def fresh():
    """Code that a test compiled with other numbers is nobody else's."""
    yield
    native.load.cache_clear()


def held(spec, monkeypatch):
    """Exact results, of a kernel that would fail if it did not hold b."""
    monkeypatch.setattr(products, "Run", None)
    native.load.cache_clear()
    exact(spec, {"d0": 7})


@pytest.mark.parametrize("dtype", OF_STEP)
@pytest.mark.parametrize("m", [1, 16, 17, 32, 33, 48, 49, 100, 2 * products.BLOCK + 40])
@pytest.mark.parametrize(("steps", "n"), [(1, 32), (3, 70), (12, 129)])
def test_rows_that_go_by_all_panels(m, steps, n, dtype, monkeypatch):
    held(product(dtype, m, steps * OF_STEP[dtype], n), monkeypatch)


@pytest.mark.parametrize("dtype", OF_STEP)
@pytest.mark.parametrize("m", [15, 33, 100])
@pytest.mark.parametrize("steps", [amx_held.WHOLE + 1, 47, amx_held.MOST - 1])
def test_rows_that_go_in_chunks(m, steps, dtype, monkeypatch):
    held(product(dtype, m, steps * OF_STEP[dtype], 70), monkeypatch)


@pytest.mark.parametrize("m", [16, 33, 70, 161, 300])
@pytest.mark.parametrize("n", [32, 129, 200])
def test_runs_of_panels(n, m, monkeypatch):
    """Of short rows, by a b that the second cache does not hold."""
    monkeypatch.setattr(amx_held, "HELD", 0)
    monkeypatch.setattr(amx_held, "RUN", 6 * STEP)
    held(product("bfloat16", m, 3 * 32, n), monkeypatch)


@pytest.mark.parametrize("rows", [64, 96, 160, 256])
def test_what_runs_ask_for(rows, monkeypatch):
    """All pairs together ask for the next run."""
    monkeypatch.setattr(amx_held, "HELD", 0)
    steps, panels = 12, 6
    monkeypatch.setattr(amx_held, "RUN", 2 * steps * STEP)
    spec = product("bfloat16", rows, 32 * steps, 32 * panels)
    arrays = [*numbers(spec, {}), np.zeros((rows, 32 * panels), np.uint16)]
    apart = max(1, amx_held.APART // (rows // PAIR))
    whole, run = (set(range(0, n * steps * STEP // 64, apart)) for n in (panels, 2))
    _a, b, result = lines_asked_for(spec, MACHINE, arrays, [], 0, panels)
    assert (b, result) == (whole, set())
    _a, b, result = lines_asked_for(spec, MACHINE, arrays, [], 4, panels)
    assert (b, result) == (run, set())


@pytest.mark.parametrize("m", [32, "d0"])
def test_what_a_single_pair_asks_for(m, monkeypatch):
    monkeypatch.setattr(amx_held, "HELD", 0)
    steps, panels = 12, 6
    monkeypatch.setattr(amx_held, "RUN", 2 * steps * STEP)
    spec = product("bfloat16", m, 32 * steps, 32 * panels)
    arrays = [*numbers(spec, {"d0": 32}), np.zeros((32, 32 * panels), np.uint16)]
    asked = lines_asked_for(spec, MACHINE, arrays, [32] if m == "d0" else [], 0, panels)
    ahead, end = amx_held.AHEAD // 64, steps * panels * STEP // 64
    assert asked == [set(), set(range(ahead, end, amx_held.APART)), set()]


@pytest.mark.parametrize("steps", [12, 40])
def test_rows_that_are_not_aligned(steps):
    exact(product("bfloat16", 70, 32 * steps, 70), shift=16)


@pytest.mark.parametrize("batched", [False, True])
def test_rows_of_a_runtime_dim_in_batches(batched, monkeypatch):
    held(product("bfloat16", "d0", 64, 40, (3,), batched), monkeypatch)


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        ("d0", "d1", 64),
        ("d0", 64, "d1"),
        (40, 72, 64),  # a row ends within a step
        (40, 2048, 32),  # rows of a chunk would share a few sets
        (40, 64 * 1088, 32),  # rows are too long for the stack
        (40, 32 * 25, 32 * (amx_held.HELD // STEP // 25 + 1)),  # nor short, and b is too much
    ],
)
def test_other_products_are_not_held(m, k, n, monkeypatch):
    monkeypatch.setattr(products, "Held", None)
    with pytest.raises(TypeError, match="NoneType"):
        native.llvm_ir(product("bfloat16", "d0", 64, 64), MACHINE)
    native.llvm_ir(product("bfloat16", m, k, n), MACHINE)


@pytest.mark.parametrize("m", [5, 32, 77])
@pytest.mark.parametrize("steps", [5, 12, 40])
def test_a_result_over_its_residual(steps, m):
    """Each row is written once: what was added to itself would be added again."""
    result = Operand("bfloat16", (m, 70))
    body = Body((result,), (Step("add", (0, 1), "bfloat16"),), (2,))
    spec = product("bfloat16", m, 32 * steps, 70, epilogue=body)
    arrays = numbers(spec, {})
    (apart,), _ = run(spec, arrays, arch=ARCH)
    (over,), _ = run(spec, arrays, arch=ARCH, cuts=(0.3, 0.7), over=2)
    assert over.tobytes() == apart.tobytes()


@pytest.mark.parametrize(("chunk", "stays"), [(amx_held.CHUNK, True), (40, False)])
def test_rows_stay_in_the_first_cache(chunk, stays, monkeypatch):
    """A product takes half a tile of rows, 8 lines, once for all six panels."""
    monkeypatch.setattr(amx_held, "CHUNK", chunk)
    native.load.cache_clear()
    spec = product("bfloat16", PAIR, 40 * 32, 6 * 32)
    run(spec, numbers(spec, {}), arch=ARCH)
    missed = cache_model.misses(amx_emulation.rows_touched) / len(amx_emulation.products)
    assert (missed < 4) == stays


def test_what_is_asked_for():
    """The first pair asks for panels, one line in `APART`; each pair for the next one's rows."""
    rows, steps, panels = 3 * PAIR, 12, 5
    spec = product("bfloat16", rows, 32 * steps, 32 * panels)
    arrays = [*numbers(spec, {}), np.zeros((rows, 32 * panels), np.uint16)]
    a, b, result = lines_asked_for(spec, MACHINE, arrays, [], 0, panels)
    ahead = amx_held.AHEAD // 64
    assert b == set(range(ahead, steps * panels * STEP // 64, amx_held.APART))
    of_pair = PAIR * steps
    assert a == set(range(of_pair, rows * steps, amx_held.NEXT_APART))
    assert result == set()


@pytest.mark.parametrize("steps", [12, 40])
def test_the_machine_code(steps):
    """Rows are loaded through the first cache and panels past it; nothing spills."""
    multiply = tiles.MULTIPLY["bfloat16"]
    text = machine_code.assembly(product("bfloat16", "d0", 32 * steps, 96), MACHINE)
    names = ("tileloaddt1", "tileloadd", "tilestored")
    found = {tuple(map(body.count, names)) for body in machine_code.loops(text, multiply)}
    assert found == {(2, 2, 0), (2, 1, 0)}
    assert re.search(r"tile(loadd|stored).*%rsp", text) is None
