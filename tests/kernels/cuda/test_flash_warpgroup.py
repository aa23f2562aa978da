"""Attention by warpgroups: on the emulator against float64, with mistakes, and assembled."""

import cuda_cases as cases
import cuda_harness
import numpy as np
import pytest
import test_kernels as kernels
import wgmma_registers
from assembler import check_products_overlap, machine_code, needs_assembler
from cuda_harness import run_call
from emulator.memory import EmulatorError
from reference import size
from test_flash import arrays_for, attention, check, in_float64

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.flash import dense_warpgroup, wide_tiles
from heddle.kernels.cuda.flash import warpgroup as flash_warpgroup
from heddle.kernels.cuda.warpgroup import instructions as warpgroup
from heddle.kernels.registry import MACHINES, Portion, find
from heddle.kernels.spec import Operand, Spec

HOPPER = MACHINES["sm_90a"]
REGISTERS, SHARED = 65536, 227 * 1024  # Of a multiprocessor of sm_90a, and of a block.


def of(spec: Spec, **dims: int) -> Spec:
    """`spec` with sizes that are known."""

    def known(operand: Operand) -> Operand:
        return cases.tensor(operand.dtype, *(dims.get(size, size) for size in operand.shape))

    operands = [known(operand) for operand in spec.operands]
    return cases.plain("attention", operands, operands[0], **dict(spec.attrs))


CASES = {
    # spec, d0, d1, elements that buffers are shifted by
    "one step of keys": (attention("bfloat16", 64), 70, 100, 0),
    "several": (attention("float16", 128, (2, 1), layout="bhsd"), 65, 300, 0),
    "causal": (attention("bfloat16", 64, (2, 2), causal=True), 130, 330, 0),
    "causal, more queries than keys": (attention("float16", 64, causal=True), 200, 130, 0),
    "heads of 256": (attention("bfloat16", 256, (2, 1)), 70, 290, 0),
    "no key": (attention("float16", 64), 20, 0, 0),
    "a negative scale": (attention("float16", 64, (1, 1), scale=-0.3), 66, 140, 0),
    "few queries": (attention("bfloat16", 128, (4, 1), causal=True), 3, 200, 0),
    "unaligned": (attention("bfloat16", 64, (1, 1), causal=True), 34, 70, 1),
    "few queries, unaligned": (attention("float16", 64), 2, 70, 1),
}


KNOWN = ("one step of keys", "several", "causal")


@pytest.mark.parametrize(
    ("name", "known"), [*((name, False) for name in CASES), *((name, True) for name in KNOWN)]
)
def test_results(name, known):
    spec, *sizes, shift = CASES[name]
    dims = dict(zip(("d0", "d1"), sizes, strict=True))
    if known:
        spec, dims = of(spec, **dims), {}
    arrays = arrays_for(spec, dims)
    (found,), _ = run_call(spec, arrays, dims, shift, HOPPER)
    largest = np.max(np.abs(arrays[2].astype(np.float64)), initial=0)
    check(found, in_float64(spec, arrays), spec.result.dtype, largest)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_tiles_of_several_heads_come_together(monkeypatch, heads):
    spec = of(attention("bfloat16", 64, (3, 3), causal=True), d0=150, d1=150)
    monkeypatch.setattr(dense_warpgroup, "CACHED", heads * 150 * 64 * 4)
    arrays = arrays_for(spec, {})
    (found,), _ = run_call(spec, arrays, {}, machine=HOPPER)
    largest = np.max(np.abs(arrays[2].astype(np.float64)))
    check(found, in_float64(spec, arrays), "bfloat16", largest)


def test_a_window_of_keys():
    spec = of(attention("bfloat16", 64, (1, 1), causal=True, window=40), d0=150, d1=290)
    arrays = arrays_for(spec, {})
    (found,), _ = run_call(spec, arrays, {}, machine=HOPPER)
    (wanted,), _ = run_call(spec, arrays, {})
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), atol=0.03)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_a_batch_with_a_body(monkeypatch, name):
    monkeypatch.setattr(cuda_harness, "MACHINE", HOPPER)
    kernels.check(cases.fused(cases.attention(name, head=64), prologue=False), {"d0": 70, "d1": 90})


SPEC, SIZES = of(attention("bfloat16", 64, (1, 1)), d0=100, d1=600), {}
Turn, wait = warpgroup.Turn, warpgroup.wait
MISTAKES = {
    "no wait for the scores": (
        warpgroup,
        "wait",
        lambda left: None if left == 1 else wait(left),
        "looks at an accumulator before",
    ),
    "no wait for the values": (
        warpgroup,
        "wait",
        lambda left: wait(1) if left == 0 else wait(left),
        "looks at an accumulator before",
    ),
    "no wgmma.fence": (warpgroup, "fence", lambda: None, "no wgmma.fence"),
    "no wait for a full stage": (
        Turn,
        "wait_until_full",
        lambda turn: None,
        "race: reads what a copy",
    ),
    "no wait for an empty stage": (
        Turn,
        "wait_until_empty",
        lambda turn: None,
        "race|more than 1 arrivals",
    ),
    "a stage is never released": (Turn, "arrive_empty", lambda turn: None, "deadlock"),
    "the second does not begin": (
        flash_warpgroup._Attention,
        "_pass_on",
        lambda block: None,
        "deadlock",
    ),
}


def passed_on_early(block, parts, write) -> None:
    """Queries are before results have gone through their place."""
    pass_on(block)
    write_all(block, parts, write)


Attention = flash_warpgroup._Attention
pass_on, write_all, release = Attention._pass_queries_on, Attention._write_all, Attention._release
TURNS = {
    "queries are never passed on": ("_pass_queries_on", lambda block: None, "deadlock"),
    "they are passed on early": ("_write_all", passed_on_early, "race|more than 1 arrivals"),
    "they are passed on without a fence": (
        "_pass_queries_on",
        lambda block: release(block, 0, block._queries()),
        "race|proxy",
    ),
    "values are not released": (
        "_release",
        lambda block, operand, number: release(block, operand, number) if operand < 2 else None,
        "deadlock",
    ),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_mistake_from_tile_to_tile_is_caught(monkeypatch, name):
    function, wrong, message = TURNS[name]
    monkeypatch.setattr(Attention, function, wrong)
    spec = of(attention("bfloat16", 64, (5, 5)), d0=150, d1=290)
    with pytest.raises(EmulatorError, match=message):
        run_call(spec, arrays_for(spec, {}), {}, machine=HOPPER)


@pytest.mark.parametrize("processors", [1, 3])
@pytest.mark.parametrize("keys", [100, 290])
@pytest.mark.parametrize("size", [64, 128])
def test_blocks_go_from_tile_to_tile(monkeypatch, size, keys, processors):
    """Also where a tile has other steps than stages, or one alone; the last one has few rows."""
    monkeypatch.setattr(cuda_harness, "PROCESSORS", processors)
    spec = of(attention("bfloat16", size, (4, 2)), d0=150, d1=keys)
    arrays = arrays_for(spec, {})
    (found,), _ = run_call(spec, arrays, {}, machine=HOPPER)
    largest = np.max(np.abs(arrays[2].astype(np.float64)))
    check(found, in_float64(spec, arrays), "bfloat16", largest)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(monkeypatch, name):
    place, function, wrong, message = MISTAKES[name]
    monkeypatch.setattr(place, function, wrong)
    with pytest.raises(EmulatorError, match=message):
        run_call(SPEC, arrays_for(SPEC, SIZES), SIZES, machine=HOPPER)


ASSEMBLED = {
    "64": attention("bfloat16", 64, (8, 2), causal=True),
    "128": of(attention("float16", 128, (32, 8)), d0=8192, d1=8192),
    "128, fused": cases.fused(attention("bfloat16", 128, causal=True), prologue=False),
    "128, sizes at run time": attention("bfloat16", 128, (32, 8)),
    "128, causal": of(attention("bfloat16", 128, (32, 8), causal=True), d0=2048, d1=2048),
    "256": of(attention("float16", 256, (16, 8)), d0=8192, d1=8192),
    "256, sizes at run time": attention("bfloat16", 256, (16, 8)),
    "256, causal": attention("bfloat16", 256, (16, 8), causal=True, window=4096, softcap=50.0),
    "256, fused": cases.fused(attention("float16", 256), prologue=False),
}


@needs_assembler
@pytest.mark.parametrize("name", ASSEMBLED)
def test_assembled(name):
    assembled(ASSEMBLED[name], "cp.async.bulk.tensor.4d.shared::cluster.global")


def assembled(spec: Spec, copies: str):
    """The cubin: products of warpgroups beside `copies`, within the registers that there are."""
    text = to_ptx(spec, HOPPER)
    assert wgmma_registers.check(text)
    kind, head = ("f16", "bf16")[spec.result.dtype == "bfloat16"], spec.operands[0].shape[-1]
    keys = wide_tiles.plan(spec).keys
    for instruction in (
        f"wgmma.mma_async.sync.aligned.m64n{keys}k16.f32.{kind}.{kind}",
        f"wgmma.mma_async.sync.aligned.m64n{head}k16.f32.{kind}.{kind}",
        copies,
        "ex2.approx.ftz.f32",
    ):
        assert instruction in text
    made = ptx.assemble(text, "sm_90a")
    assert made.spills == 0
    launch = find(spec.op, "cuda").launch_on(spec, HOPPER)
    assert made.registers * launch.block[0] <= REGISTERS
    assert launch.shared <= SHARED
    check_products_overlap(made)
    return made


@needs_assembler
@pytest.mark.parametrize(("name", "keys"), [("128", 128), ("256", 64)])
def test_machine_code(name, keys):
    made = ptx.assemble(to_ptx(ASSEMBLED[name], HOPPER), "sm_90a")
    check_code(made, "UTMALDG.4D", f"HGMMA.64x{keys}x16.F32", f"HGMMA.64x{name}x16.F32")


def check_code(made, *wanted: str):
    """What a cubin's machine code has."""
    text = machine_code(made)
    for instruction in (*wanted, "MUFU.EX2", "SYNCS.PHASECHK"):
        assert instruction in text


@pytest.mark.parametrize("plan", wide_tiles.PLANS.values(), ids=map(str, wide_tiles.PLANS))
def test_registers_and_stages_of_a_plan(plan):
    many, fewer = plan.registers
    assert wide_tiles.CONSUMERS * many + fewer <= 3 * flash_warpgroup.REGISTERS <= 512
    assert plan.stages[0] >= plan.stages[1] or not plan.goes_on


def test_more_stages_of_values_than_of_keys_are_caught(monkeypatch):
    """A stage of keys could then be full of others before the last step has looked at it."""
    monkeypatch.setitem(wide_tiles.PLANS, 64, wide_tiles.Plan(128, (2, 3), (240, 24)))
    spec = of(attention("bfloat16", 64, (5, 5)), d0=150, d1=290)
    with pytest.raises(EmulatorError):
        run_call(spec, arrays_for(spec, {}), {}, machine=HOPPER)


def test_few_queries_are_for_blocks_that_share_a_multiprocessor():
    spec, kernel = attention("bfloat16", 128, (8, 2), causal=True), find("attention", "cuda")
    few, many = kernel.split(spec)
    for queries in (0, 1, 4, 5, 4096):
        sizes = [size(share.condition, {"d0": queries, "d1": 9}) for share in (few, many)]
        assert sizes == [int(queries <= 4), int(queries > 4)]
    assert [kernel.launch_on(share.spec, HOPPER).block[0] for share in (few, many)] == [128, 384]
    assert kernel.extras(few.spec) == ("workspace", "counters")
    assert kernel.extras(many.spec) == ()
    for fixed in (of(spec, d0=1), of(spec, d0=200)):
        assert kernel.split(fixed) == (Portion(fixed),)
