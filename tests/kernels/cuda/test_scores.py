"""Caps of scores and sinks of heads on every path of attention: against float64, and assembled."""

from dataclasses import replace

import cuda_cases as cases
import numpy as np
import pytest
import ragged_batches as ragged
from assembler import check_no_spills, needs_assembler
from cuda_harness import run_call
from flash_answers import check_rounded
from reference import evaluate
from test_flash import arrays_for, attention, check, in_float64
from test_flash_warpgroup import assembled

from heddle.kernels import convert
from heddle.kernels.cuda.flash import attend, softmax, split
from heddle.kernels.registry import MACHINES, find

PAGED, RAGGED = "paged_attention", "ragged_attention"
TIMES = 4
"""Of queries: their scores are then near the cap, or beyond it."""


DENSE = {
    "few queries": (attention("float16", 64, (4, 2), softcap=30.0), (3, 130)),
    "few queries, causal, of 128": (
        attention("bfloat16", 128, (8, 1), causal=True, softcap=50.0),
        (2, 90),
    ),
    "many queries, window": (
        attention("float16", 64, (2, 1), causal=True, window=40, softcap=50.0),
        (70, 140),
    ),
    "a small cap, of 96": (attention("float16", 96, (2, 2), softcap=0.5), (20, 65)),
    "a negative scale": (attention("float16", 32, (2, 2), scale=-0.3, softcap=20.0), (20, 65)),
    "bool mask": (
        attention("float16", 64, (2, 1), cases.tensor("bool", "d0", "d1"), softcap=10.0),
        (19, 70),
    ),
    "mask that is added": (
        attention(
            "float16", 32, (2, 1), cases.tensor("float32", "d0", "d1"), causal=True, softcap=10.0
        ),
        (19, 70),
    ),
    "a cap that is too large": (attention("float16", 64, (2, 1), softcap=2000.0), (5, 70)),
    "heads of 256": (attention("float16", 256, (2, 1), causal=True, softcap=50.0), (9, 40)),
}


def capped_arrays(spec, dims):
    query, *others = arrays_for(spec, dims)
    return [query * query.dtype.type(TIMES), *others]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", DENSE)
def test_capped(monkeypatch, name, arch):
    monkeypatch.setattr(split, "LEAST", 1)
    check_dense(*DENSE[name], MACHINES[arch])


def check_dense(spec, sizes, machine):
    dims = dict(zip(("d0", "d1"), sizes, strict=True))
    arrays = capped_arrays(spec, dims)
    (found,), _ = run_call(spec, arrays, dims, machine=machine)
    largest = np.max(np.abs(arrays[2].astype(np.float64)))
    check(found, in_float64(spec, arrays), spec.result.dtype, largest)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128])
def test_capped_by_warpgroups(size, causal):
    spec = attention("float16", size, (2, 1), causal=causal, softcap=50.0)
    many = find("attention", "cuda").split(spec)[1].spec
    assert find("attention", "cuda").launch_on(many, MACHINES["sm_90a"]).block[0] == 384
    check_dense(spec, (70, 300), MACHINES["sm_90a"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_capped_by_plain_threads(dtype):
    spec = cases.attention(
        dtype, cases.tensor(dtype, "d0", "d1"), causal=True, window=9, softcap=2.0
    )
    dims = {"d0": 9, "d1": 40}
    arrays = capped_arrays(spec, dims)
    (found,), _ = run_call(spec, arrays, dims)
    np.testing.assert_allclose(
        found, in_float64(spec, arrays), atol={"float32": 1e-5, "float64": 1e-13}[dtype]
    )


def test_a_tanh_within_11_bits_would_not_do(monkeypatch):
    """As that of tanh.approx: results are off by more than all roundings."""
    unmasked = softmax.Scores.unmasked

    def rounded(scores, products):
        halves = unmasked(scores, products)  # Of 1 and the hyperbolic tangent.
        return [(convert.rounded(half * 2.0 - 1.0, "float16") + 1.0) * 0.5 for half in halves]

    check_dense(*DENSE["few queries"], MACHINES["sm_80"])
    monkeypatch.setattr(softmax.Scores, "unmasked", rounded)
    with pytest.raises(AssertionError):
        check_dense(*DENSE["few queries"], MACHINES["sm_80"])


def rows_of(op, dtype, cache=None, **options):
    return ragged.attention(op, dtype, cache, **{"size": 64, "block": 16} | options)


BOTH = {"softcap": 3.0, "sinks": True}
FEW, MANY = ([1, 1, 0, 1], [3, 70, 5, 150]), ([1, 20, 0, 3], [66, 21, 5, 70])
NO_KEYS = ([1, 9, 2], [0, 4, 0])
RAGGED_CASES = {
    # spec, tokens of rows and their keys, arch
    "plain threads": (rows_of(RAGGED, "float32", window=20, **BOTH), MANY, "sm_80"),
    "plain threads, no keys": (rows_of(PAGED, "float32", sinks=True), NO_KEYS, "sm_80"),
    "heads of 256": (rows_of(PAGED, "bfloat16", size=256, **BOTH), NO_KEYS, "sm_80"),
    "few rows": (rows_of(PAGED, "float16", **BOTH), FEW, "sm_80"),
    "few rows, of 128": (rows_of(PAGED, "bfloat16", size=128, **BOTH), FEW, "sm_90a"),
    "few rows, window": (rows_of(RAGGED, "bfloat16", window=60, sinks=True), FEW, "sm_80"),
    "few rows, 8 bits": (rows_of(PAGED, "bfloat16", "float8_e4m3fn", **BOTH), FEW, "sm_80"),
    "many rows": (rows_of(PAGED, "float16", window=30, **BOTH), MANY, "sm_80"),
    "many rows, 8 bits": (rows_of(RAGGED, "float16", "float8_e5m2", **BOTH), MANY, "sm_80"),
    "many rows, of 128": (rows_of(RAGGED, "bfloat16", size=128, **BOTH), MANY, "sm_80"),
    "groups of 3": (rows_of(PAGED, "float16", heads=6, softcap=3.0), MANY, "sm_80"),
    "one key head": (rows_of(PAGED, "bfloat16", heads=16, key_heads=1, **BOTH), MANY, "sm_80"),
    "no keys": (rows_of(PAGED, "float16", **BOTH), NO_KEYS, "sm_80"),
    "every key": (rows_of(RAGGED, "float16", causal=False, **BOTH), ([5, 20], [0, 65]), "sm_80"),
    "warpgroups": (rows_of(PAGED, "float16", **BOTH), MANY, "sm_90a"),
    "warpgroups, window": (rows_of(RAGGED, "bfloat16", window=30, sinks=True), MANY, "sm_90a"),
    "warpgroups, groups of 3": (
        rows_of(RAGGED, "float16", heads=3, key_heads=1, size=128, causal=False, **BOTH),
        ([7, 1], [140, 20]),
        "sm_90a",
    ),
    "warpgroups, no keys": (rows_of(PAGED, "float16", **BOTH), NO_KEYS, "sm_90a"),
}


@pytest.mark.parametrize("name", RAGGED_CASES)
def test_ragged(monkeypatch, name):
    """Where rows are few, keys are for several blocks."""
    monkeypatch.setattr(split, "LEAST", 1)
    spec, rows, arch = RAGGED_CASES[name]
    check_ragged(spec, *ragged.batch(spec, *rows), MACHINES[arch])


def check_ragged(spec, dims, arrays, machine):
    arrays[0] = arrays[0] * arrays[0].dtype.type(TIMES)
    (found,), status = run_call(spec, arrays, dims, machine=machine)
    assert status == [0, 0, 0, 0]
    with np.errstate(over="ignore"):
        (wanted,) = evaluate(spec, dims, arrays)
    check_rounded(found, wanted, spec.result.dtype, arrays[2])


PATHS = {
    "plain threads": (rows_of(PAGED, "float32", sinks=True), FEW, "sm_80"),
    "few rows": (rows_of(PAGED, "float16", sinks=True), FEW, "sm_80"),
    "many rows": (rows_of(RAGGED, "bfloat16", sinks=True), MANY, "sm_80"),
    "warpgroups": (rows_of(RAGGED, "bfloat16", heads=2, sinks=True), MANY, "sm_90a"),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_sink_of_no_weight_changes_no_bit(monkeypatch, name):
    monkeypatch.setattr(split, "LEAST", 1)
    spec, rows, arch = PATHS[name]
    dims, (*arrays, sinks) = ragged.batch(spec, *rows)
    without = replace(spec, operands=spec.operands[:-1])
    (wanted,), _ = run_call(without, arrays, dims, machine=MACHINES[arch])
    (found,), _ = run_call(spec, [*arrays, sinks * 0 - np.inf], dims, machine=MACHINES[arch])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", PATHS)
def test_a_sink_of_all_weight_leaves_zeros(name):
    spec, rows, arch = PATHS[name]
    for number in (1e4, np.inf):
        dims, (*arrays, sinks) = ragged.batch(spec, *rows)
        (found,), _ = run_call(spec, [*arrays, sinks * 0 + number], dims, machine=MACHINES[arch])
        assert not found.astype(np.float32).any()


def test_a_cap_that_is_too_large_keeps_attention_off_tensor_cores():
    for cap, fits in ((512.0, True), (513.0, False)):
        assert attend.fits(attention("float16", 64, softcap=cap)) == fits


ASSEMBLED = {
    "Gemma 2, a prompt": attention("bfloat16", 128, (32, 16), causal=True, softcap=50.0),
    "Gemma 2, paged": rows_of(PAGED, "bfloat16", heads=32, key_heads=16, size=128, softcap=50.0),
    "a mask": attention("float16", 64, mask=cases.tensor("bool", "d0", "d1"), softcap=50.0),
    "gpt-oss": rows_of(PAGED, "bfloat16", heads=64, key_heads=8, window=128, sinks=True),
    "8 bits": rows_of(PAGED, "float16", "float8_e4m3fn", size=128, **BOTH),
}


BY_WARPGROUPS = {
    "capped": (ASSEMBLED["Gemma 2, a prompt"], "4d"),
    "capped, no mask": (attention("float16", 64, (8, 8), softcap=50.0), "4d"),
    "paged": (rows_of(PAGED, "bfloat16", heads=8, size=128, **BOTH), "3d"),
    "with sinks": (ASSEMBLED["gpt-oss"], "3d"),
}


@needs_assembler
@pytest.mark.parametrize("name", BY_WARPGROUPS)
def test_products_of_warpgroups_do_not_wait_for_one_another(name):
    spec, dims = BY_WARPGROUPS[name]
    assembled(spec, f"cp.async.bulk.tensor.{dims}.shared::cluster.global")


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ASSEMBLED)
def test_no_register_is_spilled(name, arch):
    spec = ASSEMBLED[name]
    for portion in find(spec.op, "cuda").split(spec):
        assert "ex2.approx.ftz.f32" in check_no_spills(portion.spec, arch)
