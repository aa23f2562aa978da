"""Attention on tensor cores: on the emulator against float64, with mistakes, and assembled."""

from itertools import count

import cuda_cases as cases
import least_masks
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_harness import run_call
from emulator.memory import EmulatorError
from flash_answers import ROUNDING
from reference import numpy_dtype

from heddle.kernels.cuda import _block
from heddle.kernels.cuda.flash import stages
from heddle.kernels.cuda.products import mma
from heddle.kernels.spec import Spec


def attention(dtype, size, heads=(4, 2), mask=None, **attrs) -> Spec:
    """Queries `[1, d0, heads, size]`, keys `[1, d1, heads, size]`, or with their axes swapped."""
    sides = list(zip(("d0", "d1"), heads, strict=True))
    if attrs.get("layout") == "bhsd":
        sides = [(count, length) for length, count in sides]
    q, k = (cases.tensor(dtype, 1, *side, size) for side in sides)
    options = {"causal": False, "layout": "bshd", "masked": mask is not None, "scale": size**-0.5}
    return cases.plain("attention", [q, k, k, *([mask] if mask else [])], q, **options | attrs)


def arrays_for(spec: Spec, dims: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    found = []
    for operand in spec.operands:
        shape = [dims.get(size, size) for size in operand.shape]
        if operand.dtype == "bool":
            found.append(rng.random(shape) < 0.5)
        else:
            found.append(rng.standard_normal(shape).astype(numpy_dtype(operand.dtype)))
    return found


def in_float64(spec: Spec, arrays: list[np.ndarray]) -> np.ndarray:
    """What the operation means, with nothing rounded."""
    q, k, v = (x.astype(np.float64) for x in arrays[:3])
    if spec.attr("layout") == "bshd":
        q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores, cap = q @ np.swapaxes(k, 2, 3) * spec.attr("scale"), spec.attr("softcap")
    scores = np.tanh(scores / cap) * cap if cap else scores
    if spec.attr("causal"):
        behind = scores.shape[3] - scores.shape[2]
        seen = np.tri(*scores.shape[2:], behind, dtype=bool)
        if spec.attr("window"):
            seen &= ~np.tri(*scores.shape[2:], behind - spec.attr("window"), dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    if spec.attr("masked"):
        mask = arrays[3]
        added = scores + mask.astype(np.float64)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else added
    top = np.max(scores, axis=-1, keepdims=True, initial=-1e30)
    shares = np.exp(scores - top)
    total = shares.sum(axis=-1, keepdims=True)
    result = shares @ v / np.where(total == 0, 1, total)
    return np.swapaxes(result, 1, 2) if spec.attr("layout") == "bshd" else result


def check(found: np.ndarray, wanted: np.ndarray, dtype: str, largest: float) -> None:
    """Within the roundings of the shares and of the result, and a little for float32."""
    error = np.max(np.abs(found.astype(np.float64) - wanted), initial=0)
    assert error <= (2 * ROUNDING[dtype] + 2**-16) * largest, error / ROUNDING[dtype] / largest


CASES = {
    "one query": (attention("bfloat16", 64, (8, 1), causal=True), (1, 100)),
    "one query of 96": (attention("float16", 96, (3, 3), causal=True), (1, 131)),
    "few queries": (attention("float16", 128, (6, 2), layout="bhsd"), (5, 77)),
    "a batch": (cases.attention("float16", causal=True), (9, 20)),
    "no key": (attention("bfloat16", 32), (3, 0)),
    "many queries": (attention("bfloat16", 64), (70, 67)),
    "causal": (attention("float16", 64, causal=True, layout="bhsd"), (70, 150)),
    "causal, queries that see no key": (attention("bfloat16", 32, causal=True), (90, 65)),
    "window": (attention("float16", 64, causal=True, window=40), (70, 150)),
    "window, heads of 6": (attention("float16", 6, causal=True, window=9), (20, 33)),
    "many of 128": (attention("bfloat16", 128, (3, 1), causal=True), (25, 70)),
    "many of 96": (attention("float16", 96, (2, 2)), (20, 65)),
    "few queries of 80": (attention("bfloat16", 80, (2, 1), causal=True), (3, 131)),
    "many of 112": (attention("float16", 112, (2, 1), causal=True), (20, 70)),
    "one query of 256": (attention("bfloat16", 256, (8, 4), causal=True), (1, 100)),
    "many of 256": (
        attention("float16", 256, (3, 1), cases.tensor("bool", "d0", "d1"), causal=True, window=40),
        (25, 70),
    ),
    "a negative scale": (attention("float16", 32, scale=-0.3), (20, 65)),
    "bool mask": (
        attention("bfloat16", 64, mask=cases.tensor("bool", 1, 1, "d0", "d1")),
        (19, 70),
    ),
    "mask of one head": (
        attention("float16", 32, mask=cases.tensor("float16", 4, 1, "d1"), causal=True),
        (19, 70),
    ),
    "mask of few": (
        attention("bfloat16", 64, mask=cases.tensor("bfloat16", "d0", "d1"), layout="bhsd"),
        (4, 70),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_dense(name):
    spec, sizes = CASES[name]
    dims = dict(zip(("d0", "d1"), sizes, strict=True))
    arrays = arrays_for(spec, dims)
    (found,), _ = run_call(spec, arrays, dims)
    largest = np.max(np.abs(arrays[2].astype(np.float64)), initial=0)
    check(found, in_float64(spec, arrays), spec.result.dtype, largest)


@pytest.mark.parametrize("queries", [9, 40])
@pytest.mark.parametrize(("dtype", "mask"), [("bfloat16", "bfloat16"), ("float16", "float32")])
def test_the_least_number_as_a_mask(dtype, mask, queries):
    spec = attention(dtype, 32, (2, 1), cases.tensor(mask, "d0", "d1"), layout="bhsd")
    dims = {"d0": queries, "d1": 300}
    arrays = least_masks.arrays(spec, dims)
    (found,), _ = run_call(spec, arrays, dims)
    least_masks.check(found, arrays)
    largest = np.max(np.abs(arrays[2].astype(np.float64)))
    # Where a row has no other keys all are alike: the least number is no score to float64.
    check(found[:, :, 3:], in_float64(spec, arrays)[:, :, 3:], dtype, largest)


def test_unaligned_keys_are_read_one_by_one():
    spec, dims = attention("bfloat16", 32, causal=True), {"d0": 20, "d1": 67}
    arrays = arrays_for(spec, dims)
    (found,), _ = run_call(spec, arrays, dims, shift=1)
    (wanted,), _ = run_call(spec, arrays, dims)
    np.testing.assert_array_equal(found, wanted)


def without(function, number: int):
    """`function`, whose call of this number does nothing; the first are for few queries."""
    calls = count()
    return lambda *arguments: next(calls) == number or function(*arguments)


MISTAKES = {
    "no wait": (mma, "wait", 0, "race: reads what a cp.async in flight"),
    "no barrier in the loop": (
        stages,
        "meet_in_warp",
        0,
        "race: reads what a cp.async in flight|race: writes what",
    ),
    "no barrier after the queries": (_block, "barrier", 0, "race: reads what thread"),
    "no barrier before the result": (_block, "barrier", 1, "race: writes"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(monkeypatch, name):
    module, function, number, message = MISTAKES[name]
    monkeypatch.setattr(module, function, without(getattr(module, function), number))
    spec, dims = attention("bfloat16", 32), {"d0": 2, "d1": 300}
    with pytest.raises(EmulatorError, match=message):
        run_call(spec, arrays_for(spec, dims), dims)


def test_warps_with_the_same_keys_that_do_not_meet_are_caught(monkeypatch):
    """Of heads of 256 each of two copies half of the keys that both attend to."""
    monkeypatch.setattr(_block, "barrier", without(_block.barrier, 1))
    spec, dims = attention("bfloat16", 256, (1, 1)), {"d0": 2, "d1": 100}
    with pytest.raises(EmulatorError, match=r"race: reads what a cp\.async in flight"):
        run_call(spec, arrays_for(spec, dims), dims)


def test_a_wrong_swizzle_gives_wrong_results(monkeypatch):
    spec, dims = attention("bfloat16", 64), {"d0": 2, "d1": 20}
    arrays = arrays_for(spec, dims)
    beyond = stages.Lines.beyond
    monkeypatch.setattr(
        stages.Lines, "beyond", lambda *arguments: beyond(*arguments[:3], arguments[3] ^ 2)
    )
    (found,), _ = run_call(spec, arrays, dims)
    assert np.max(np.abs(found.astype(np.float64) - in_float64(spec, arrays))) > 0.1


ARCHS, SIZES = ("sm_80", "sm_90a"), (64, 80, 96, 112, 128, 256)
ASSEMBLED = {
    **{f"{size}": attention("bfloat16", size, (8, 2), causal=True) for size in SIZES},
    "64, mask": attention("bfloat16", 64, mask=cases.tensor("bool", 1, 1, "d0", "d1")),
    "128, mask": attention("float16", 128, mask=cases.tensor("float16", "d0", "d1"), causal=True),
    "256, mask": attention("bfloat16", 256, mask=cases.tensor("float16", "d0", "d1"), causal=True),
    "64, fused": cases.fused(attention("bfloat16", 64, causal=True)),
    "128, fused": cases.fused(attention("bfloat16", 128, causal=True)),
    "256, fused": cases.fused(attention("float16", 256, causal=True)),
}


@needs_assembler
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ASSEMBLED)
def test_no_register_is_spilled(name, arch):
    text = check_no_spills(ASSEMBLED[name], arch)
    kind = "f16.f16" if ASSEMBLED[name].result.dtype == "float16" else "bf16.bf16"
    for instruction in (
        "cp.async.cg.shared.global",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.f32",
        "ex2.approx.ftz.f32",
        "cvt.rn.f16x2.f32" if kind == "f16.f16" else "cvt.rn.bf16x2.f32",
    ):
        assert instruction in text
