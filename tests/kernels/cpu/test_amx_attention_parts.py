"""Attention of float32 in AMX tiles, emulated."""

import amx_emulation
import least_masks
import machine_code
import native
import numpy as np
import pytest
import ragged_batches
from attention_specs import attention, sizes
from native import check, run
from prefetches import lines_asked_for
from reference import shape
from tiled_attention import (
    ARCH,
    MASKS,
    check_a_query_without_keys,
    check_capped,
    numbers,
    stands_poison,
)

from heddle.kernels.cpu import attention as kernel
from heddle.kernels.cpu.amx import attention_parts, strip
from heddle.kernels.cpu.flash import block, ragged, splits
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Operand

pytestmark = pytest.mark.usefixtures("products")

MACHINE = MACHINES[ARCH]
LEAST_SPLIT = kernel.least_split


@pytest.fixture(autouse=True, scope="module")
def few_are_split():
    """Emulated tiles are slow: here numbers of a few queries and keys are split, too."""
    native.load.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "least_split", lambda spec: 1)
        patch.setattr(ragged, "least_split", lambda spec: 1)
        yield
    native.load.cache_clear()


def tiled(size=32, **options):
    return attention("float32", **{"batch": 1, "heads": 1, "key_heads": 1, "size": size} | options)


def close(spec, queries, keys, arrays=None):
    """As exact as on vectors; everything is multiplied in tiles."""
    found = check(spec, sizes(queries, keys), arrays, ARCH, rtol=1e-5, atol=3e-6)
    assert amx_emulation.products
    return found


@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (17, 33), (40, 150), (70, 64), (33, 47), (540, 20)]
)
def test_lengths(queries, keys):
    close(tiled(), queries, keys)


@pytest.mark.usefixtures("emitted_anew")
def test_more_keys_than_the_stack_holds(monkeypatch):
    monkeypatch.setattr(block, "TILED_STACK", 3 * 2 * 32 * 256)
    close(tiled(64, causal=True, window=90), 80, 200)


@pytest.mark.parametrize(("size", "window"), [(64, 0), (96, 40), (128, 0)])
def test_head_sizes(size, window):
    close(tiled(size, layout="bshd", causal=True, window=window), 40, 100)


@pytest.mark.parametrize(("queries", "keys"), [(90, 40), (40, 90), (70, 70)])
def test_causal(queries, keys):
    """With more queries than keys the first strips see none."""
    close(tiled(causal=True), queries, keys)


@pytest.mark.parametrize("window", [1, 30, 500])
def test_windows(window):
    close(tiled(causal=True, window=window), 70, 90)


@pytest.mark.parametrize(
    ("dtype", "extents"),
    [("float32", ("d0", "d1")), ("bool", ("d0", 1)), ("bool", ("d1",)), ("float32", ())],
)
def test_masks(dtype, extents):
    close(tiled(mask=Operand(dtype, extents)), 33, 70)


def test_the_least_number_as_a_mask():
    spec = tiled(heads=2, mask=Operand("float32", ("d0", "d1")))
    arrays = least_masks.arrays(spec, sizes(40, 70))
    (found,) = close(spec, 40, 70, arrays)
    least_masks.check(found, arrays)


@pytest.mark.parametrize("name", MASKS)
def test_capped_scores(name):
    """The mask comes after the cap."""
    check_capped(tiled(softcap=2.0, **MASKS[name]), close)


def test_batches_of_grouped_heads():
    close(tiled(batch=2, heads=6, key_heads=2, causal=True), 13, 40)


def test_a_query_without_keys_gives_zeros():
    check_a_query_without_keys(tiled(mask=Operand("bool", ("d0", "d1"))), 70, close)


def test_scores_far_apart():
    """The greatest score rises from block to block, and scales what was summed before."""
    spec = tiled()
    query, key, value = numbers(spec, 40, 200)
    rising = np.linspace(0, 30, 200, dtype=np.float32)[:, None]
    (found,) = check(spec, sizes(40, 200), [query, key * rising, value], ARCH, 1e-3, 1e-4)
    assert np.isfinite(found).all()


def test_errors_are_no_greater_than_on_vectors():
    spec, dims = tiled(64), sizes(64, 96)
    arrays = numbers(spec, 64, 96)
    query, key, value = (array.astype(np.float64) for array in arrays)
    shares = np.exp(np.einsum("bhqd,bhkd->bhqk", query, key) * 0.2)
    exact = shares / shares.sum(-1, keepdims=True) @ value
    errors = []
    for arch in (ARCH, "x86-64-v4"):
        (found,), _ = run(spec, arrays, dims, arch)
        errors.append(np.sqrt(np.mean((found - exact) ** 2)))
    assert errors[0] < errors[1]


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 3e38])
def test_numbers_that_have_no_parts(which, number, softcap):
    """A task with a result that is no number is computed on vectors, which know more of them."""
    spec = tiled(causal=True, softcap=softcap)
    arrays = numbers(spec, 40, 40)
    arrays[which][0, 0, 21, 3] = number
    with np.errstate(all="ignore"):
        (found,), _ = run(spec, arrays, sizes(40, 40), ARCH)
        (wanted,), _ = run(spec, arrays, sizes(40, 40), "x86-64-v4")
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-6)
    assert np.isfinite(found[0, 0, :12]).all()


@pytest.mark.parametrize(("queries", "keys"), [(70, 90), (300, 33)])
def test_bits_do_not_depend_on_the_number_of_threads(queries, keys):
    spec, dims = tiled(heads=2, key_heads=2), sizes(queries, keys)
    arrays = numbers(spec, queries, keys)
    (whole,), _ = run(spec, arrays, dims, ARCH)
    (parts,), _ = run(spec, arrays, dims, ARCH, cuts=(0.5,))
    assert whole.tobytes() == parts.tobytes()


def test_what_is_no_number_leaves_other_tasks_alone():
    """Its task is computed again, and no query behind it."""
    spec, dims = tiled(), sizes(150, 33)
    arrays = numbers(spec, 150, 33)
    (wanted,), _ = run(spec, arrays, dims, ARCH)
    arrays[0][0, 0, 3] = np.nan
    (found,), _ = run(spec, arrays, dims, ARCH)
    assert np.isnan(found[0, 0, 3]).all()
    assert found[:, :, 96:].tobytes() == wanted[:, :, 96:].tobytes()


@pytest.mark.parametrize(("heads", "queries", "tasks"), [(1, 512, 4), (12, 512, 48), (64, 512, 64)])
def test_a_few_heads_are_more_tasks(heads, queries, tasks):
    launch = find("attention", "cpu").launch_on(tiled(heads=heads, key_heads=heads), MACHINE)
    assert native.size(launch.grid[0], sizes(queries, queries)) == tasks


def test_a_row_does_not_depend_on_the_others():
    spec = tiled()
    query, key, value = numbers(spec, 70, 40)
    (all_of_them,), _ = run(spec, [query, key, value], sizes(70, 40), ARCH)
    (some,), _ = run(spec, [query[:, :, 20:61], key, value], sizes(41, 40), ARCH)
    assert all_of_them[:, :, 20:61].tobytes() == some.tobytes()


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("ragged_attention", {}),
        ("ragged_attention", {"causal": False}),
        ("paged_attention", {"size": 64, "window": 60}),
        ("ragged_attention", {"softcap": 1.0, "sinks": True}),
    ],
)
def test_ragged_rows(op, options):
    """Rows of a few tokens are multiplied on vectors, those of more in tiles."""
    spec = ragged_batches.attention(op, **options)
    dims, arrays = ragged_batches.batch(spec, [1, 0, 50, 9], [40, 3, 117, 9])
    check(spec, dims, arrays, ARCH, rtol=1e-5, atol=3e-6)
    assert amx_emulation.products


def test_ragged_numbers_that_have_no_parts():
    spec = ragged_batches.attention("ragged_attention")
    dims, arrays = ragged_batches.batch(spec, [50], [60])
    arrays[1][30, 1, 3] = np.inf
    with np.errstate(all="ignore"):
        (found,), _ = run(spec, arrays, dims, ARCH)
        (wanted,), _ = run(spec, arrays, dims, "x86-64-v4")
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-6)
    assert np.isfinite(found[:, :2]).all()
    assert not np.isfinite(found[:, 2:]).all()


@pytest.mark.parametrize(("queries", "keys"), [(5, 20), (40, 33)])
def test_the_stack_may_hold_anything(queries, keys):
    assert stands_poison(tiled(), queries, keys)


@pytest.mark.parametrize(("queries", "keys"), [(40, 20), (100, 150)])
def test_the_next_head_is_asked_for(queries, keys):
    """Its keys, values and queries, and the lines of the results: a row of a head is two lines."""
    spec = tiled(heads=2, key_heads=2, layout="bshd")
    extents = [shape(operand.shape, sizes(queries, keys)) for operand in spec.buffers]
    buffers = [np.zeros(extent, np.float32) for extent in extents]
    asked = lines_asked_for(spec, MACHINE, buffers, (queries, keys), 0, 1)
    for number, (extent, head) in enumerate(zip(extents, (1, 1, 1, 0), strict=True)):
        lines = (2 * (2 * row + head) + half for row in range(extent[1]) for half in range(2))
        assert set(lines) <= asked[number]


load, joined, split = strip.load, splits.joined, splits.split

MISTAKES = {
    "load": (attention_parts, lambda *at: load(*at[:2], at[2] // 2)),
    "joined": (splits, lambda low, high: joined(high, low)),
    "split": (splits, lambda value, parts: [split(value, parts)[n] for n in (0, 0, 2)]),
    "ORDER": (attention_parts, attention_parts.ORDER[1:]),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    """A wrong stride, pairs the other way round, a wrong part, a product that is left out."""
    place, value = MISTAKES[name]
    monkeypatch.setattr(place, name, value)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(tiled(), sizes(40, 64), None, ARCH, rtol=1e-7, atol=3e-7)


@pytest.mark.usefixtures("emitted_anew")
def test_few_queries_or_keys_are_multiplied_on_vectors(monkeypatch):
    """Also where it is known only at run time how many there are."""
    monkeypatch.setattr(kernel, "least_split", LEAST_SPLIT)
    for queries, keys in ((40, 300), (300, 40)):
        check(tiled(), sizes(queries, keys), None, ARCH, rtol=1e-5, atol=1e-5)
        assert not amx_emulation.products
        static = tiled(queries=queries, keys=keys)
        assert "tdpbf16ps" not in machine_code.assembly(static, MACHINE)
    close(tiled(64), 64, 64)


def test_what_is_split():
    row = find("attention", "cpu")
    assert row.uses(tiled(96)) == ("tiles",)
    assert row.uses(tiled(80)) == row.uses(tiled(256)) == ()
    assert row.launch_on(tiled(), MACHINE) != row.launch(tiled())
    assert row.launch_on(tiled(), MACHINES["cooperlake"]) == row.launch(tiled())
