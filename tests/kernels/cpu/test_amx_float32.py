"""Products of float32 in AMX tiles, emulated, and the machine code that ships."""

from dataclasses import replace

import amx_emulation
import machine_code
import ml_dtypes
import native
import numpy as np
import pytest
from native import check, run
from reference import evaluate
from test_matmul_packed import product

from heddle.kernels import convert, emit
from heddle.kernels.cpu.amx import float32, parts, runs
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Step

ARCH = "sapphirerapids"
MACHINE = MACHINES[ARCH]
ROWS = float32.ROWS


def by(dtype, *extents, **options):
    """A product of float32 by a b of `dtype`."""
    spec = product("float32", (), *extents, **options)
    a, b = spec.operands
    return replace(spec, operands=(a, replace(b, dtype=dtype)))


def numbers(spec, dims=None, seed=0):
    rng = np.random.default_rng(seed)
    extents = [native.shape(operand.shape, dims or {}) for operand in spec.inputs]
    return [
        rng.standard_normal(extent).astype(native.numpy_dtype(operand.dtype))
        for extent, operand in zip(extents, spec.inputs, strict=True)
    ]


def close(spec, dims=None):
    """As near to the exact product as sums of float32 are, for any split of the tasks."""
    dims = dims or {}
    arrays = numbers(spec, dims)
    (got,) = check(spec, dims, arrays, arch=ARCH, rtol=1e-5, atol=1e-4)
    (exact,) = evaluate(spec, dims, arrays)
    (magnitude,) = evaluate(spec, dims, [np.abs(array) for array in arrays])
    k = arrays[0].shape[-1]
    assert (np.abs(got - exact) <= (k + 2) * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize("dtype", parts.PARTS)
def test_every_bit_of_a_number_counts(dtype):
    """One product for each result, of numbers all of whose bits are ones, or any."""
    spec = by(dtype, 16, 32, 32)
    kind = native.numpy_dtype(dtype)
    rng = np.random.default_rng(0)
    a = np.diag(2 - rng.integers(0, 4, 32) * 2.0**-23).astype(np.float32)[:16]
    b = (2 - rng.integers(0, 4, (1, 32, 32)) * ml_dtypes.finfo(kind).eps).astype(kind)
    (got,), _ = run(spec, [a, b], arch=ARCH)
    assert amx_emulation.products
    wanted = np.diag(a).astype("f8")[:, None] * b[0, :16].astype("f8")
    # What is left out of a product is below two of its last bits.
    assert (np.abs(got - wanted) <= 2.0**-22 * wanted).all()
    one = np.eye(16, 32, dtype=np.float32)
    (got,), _ = run(spec, [one, b], arch=ARCH)
    np.testing.assert_array_equal(got, b[0, :16].astype(np.float32))


@pytest.mark.parametrize("m", [13, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 200])
def test_every_number_of_tiles(m):
    close(product("float32", (), "d0", 70, 100), {"d0": m})


@pytest.mark.parametrize("dtype", parts.PARTS)
@pytest.mark.parametrize(
    ("k", "n"), [(17, 1), (31, 33), (32, 64), (33, 31), (65, 70), (96, 40), ("d1", "d2")]
)
def test_steps_and_panels(k, n, dtype):
    """One step, which is split two panels ahead, and more of them; with a rest, and without."""
    close(by(dtype, "d0", k, n), {"d0": 40, "d1": 100, "d2": 130})


@pytest.mark.parametrize("m", [20, 33])
@pytest.mark.parametrize("k", [32 * float32.DEPTH, 32 * float32.SINGLE])
@pytest.mark.parametrize("more", [0, 1, 32])
def test_chunks_of_rows(more, k, m):
    """As much as is on the stack at once, and a little more; a single pair of tiles, and two."""
    close(product("float32", (), m, k + more, 70))


def test_more_panels_than_a_run():
    close(product("float32", (), 40, 33 * float32.DEPTH, 32 * (float32.RUN + 2)))
    close(product("float32", (), 40, 40, 32 * (float32.RUN + 2)))


@pytest.mark.parametrize("batched", [False, True])
def test_batches(batched):
    spec = product("float32", (3, "d0"), 22, 40, 70, batched)
    check(spec, {"d0": 2}, arch=ARCH, rtol=1e-5, atol=1e-4)


def test_few_rows_take_no_tiles():
    """Those of a tile of registers, however they are known."""
    for m in (ROWS, "d0"):
        spec = product("float32", (), m, 40, 70)
        close(spec, {"d0": ROWS})
        run(spec, numbers(spec, {"d0": ROWS}), {"d0": ROWS}, ARCH)
        assert not amx_emulation.products
    run(spec, numbers(spec, {"d0": ROWS + 1}), {"d0": ROWS + 1}, ARCH)
    assert amx_emulation.products


def test_short_rows_take_no_tiles():
    """Those that are known to fill no more than half a step."""
    for k, tiles in ((float32.SHORT, False), (float32.SHORT + 1, True), ("d0", True)):
        spec, dims = product("float32", (), 40, k, 70), {"d0": float32.SHORT}
        close(spec, dims)
        run(spec, numbers(spec, dims), dims, ARCH)
        assert bool(amx_emulation.products) == tiles
        assert find(spec.op, "cpu").uses(spec) == (("tiles",) if tiles else ())


@pytest.mark.parametrize("k", [40, 32 * float32.DEPTH + 5])
def test_a_row_does_not_depend_on_the_other_rows(k):
    """From 13 rows on: alone in its block, or beside more, and in any number of panels."""
    spec = product("float32", (), "d0", k, 70)
    arrays = numbers(spec, {"d0": 270})
    (whole,), _ = run(spec, arrays, {"d0": 270}, ARCH)
    for m in (13, 40, 129, 257):
        (part,), _ = run(spec, [arrays[0][:m], arrays[1]], {"d0": m}, ARCH)
        assert part.tobytes() == whole[:m].tobytes()


def residual(n):
    shape = ("d0", n)
    steps = (
        Step("add", (0, 1), "float32"),
        Step("gelu", (3,), "float32", (("approximate", "none"),)),
        Step("add", (4, 2), "float32"),
    )
    return Body((Operand("float32", (n,)), Operand("float32", shape)), steps, (5,))


@pytest.mark.parametrize("m", [20, 150])
def test_an_epilogue(m):
    spec = product("float32", (), "d0", 70, 100, epilogue=residual(100))
    check(spec, {"d0": m}, arch=ARCH, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("at", [(0, 0), (39, 69), (17, 33)])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("of_b", [False, True])
def test_what_is_no_number(of_b, value, at):
    """Infinities, NaN and sums that overflow give what float32 does, where float32 does."""
    spec = product("float32", (), "d0", 70, 100)
    arrays = numbers(spec, {"d0": 40})
    arrays[0][at[0], 3] = arrays[1][-1, at[1], 1] = 2
    if of_b:
        arrays[1][-1, at[1], 1] = value
    else:
        arrays[0][at] = value
    (got,), _ = run(spec, arrays, {"d0": 40}, ARCH)
    b = np.concatenate(list(arrays[1]), axis=1)[:, :100]
    with np.errstate(all="ignore"):
        wanted = arrays[0].astype("f8") @ b.astype("f8")
        wanted = wanted.astype("f4")
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_what_is_no_number_is_written_once():
    """A result over its own residual: what is computed again must not read it again."""
    spec = product("float32", (), "d0", 70, 100, epilogue=residual(100))
    arrays = numbers(spec, {"d0": 40})
    arrays[0][5, 7] = np.inf
    got, _ = run(spec, arrays, {"d0": 40}, ARCH, over=3)
    apart, _ = run(spec, arrays, {"d0": 40}, ARCH)
    assert np.isinf(apart[0][5]).any()
    np.testing.assert_array_equal(got[0], apart[0])


def test_denormals():
    """Parts and products below the least normal number count as zero."""
    spec = product("float32", (), 16, 64, 32)
    a, b = (array * np.float32(2.0**-62) for array in numbers(spec))
    (got,), _ = run(spec, [a, b], arch=ARCH)
    wanted = a.astype("f8") @ b[0].astype("f8")
    assert np.abs(wanted).max() > 2.0**-124
    assert np.abs(got - wanted).max() < 64 * 2.0**-126


@pytest.fixture
def tiles_alone(monkeypatch, emitted_anew):
    """Nothing is computed again on vectors, which would hide a mistake."""
    no = "_is_no_number"
    monkeypatch.setattr(float32.Products, no, lambda *_: emit.constant(emit.integer(1), 0))


def test_ordinary_numbers_are_computed_once(tiles_alone):
    close(product("float32", (), "d0", 90, 70), {"d0": 40})


_fill = parts.Right.fill
MISTAKES = {
    "products that are left out": (float32, "ORDER", float32.ORDER[1:]),
    "two parts": (parts, "PARTS", parts.PARTS | {"float32": 2}),
    "bits of the other half": (convert, "HIGH", 0xFFFFFFFF),
    "units that are left out": (float32, "GROUP", float32.GROUP - 1),
    "the same step again": (runs.Step, "behind", lambda self, run: self),
    "steps in one place": (
        parts.Right,
        "fill",
        lambda self, source, number, *unit: _fill(self, source, number % 2, *unit),
    ),
    "sums that are not kept": (float32, "PANEL_ROW", 64),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_do_not_pass(name, tiles_alone, monkeypatch):
    monkeypatch.setattr(*MISTAKES[name])
    with pytest.raises(AssertionError):
        close(product("float32", (), "d0", 90, 70), {"d0": 40})


@pytest.mark.parametrize("dtype", parts.PARTS)
def test_the_machine_code(dtype):
    """Each loop along k has the products of all parts, and no tile is spilled."""
    text = machine_code.assembly(by(dtype, "d0", "d1", "d2"), MACHINE)
    bodies = machine_code.loops(text, "tdpbf16ps")
    products = sum(of_b < parts.PARTS[dtype] for _, of_b in float32.ORDER)
    counts = [tuple(map(body.count, ("tdpbf16ps", "tileloadd", "tilestored"))) for body in bodies]
    assert set(counts) == {(4 * products, 2 * products, 0), (2 * products, 2 * products, 0)}
    assert {body.count("tileloaddt1") for body in bodies} == {3, 6}
    shifts = parts.PARTS[dtype] - 1
    units = {share * float32.GROUP for _, _, share in float32.SHARES}
    assert {body.count("vpsrld") for body in bodies} == {shifts * count for count in units}
    # Outside of the loops there are as many loads and stores as sums.
    sums = sum(counts[0] // products for counts in counts)
    assert (
        text.count("tilestored") == text.count("tileloadd\t") - len(bodies) * 2 * products == sums
    )
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1


def test_the_stack():
    """Two panels' sums wait where all of the rows are there, else those of a run."""
    taken = {}
    for k in (384, 4096):
        text = native.llvm_ir(product("float32", (), 256, k, 1024), MACHINE)
        taken[k] = sum(int(size) for size in native.BUFFER.findall(text) for size in size[1:2])
    assert taken[384] < 2**19 < taken[4096] < 2**20
