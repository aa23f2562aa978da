"""Keys of few rows shared out among blocks: results, planted mistakes, launches, assembly."""

import cuda_harness
import numpy as np
import pytest
import ragged_batches as ragged
from assembler import check_no_spills, needs_assembler
from cuda_harness import run_call, turned
from emulator.memory import EmulatorError
from flash_answers import check_ragged
from reference import size
from test_flash import arrays_for, attention, check, in_float64

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.flash import split
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec


def known(spec, queries: int, keys: int):
    """`spec` with its dims `d0` and `d1` known at compile time."""
    text = spec.to_json().replace('"d0"', str(queries)).replace('"d1"', str(keys))
    return Spec.from_json(text)


RAGGED = {
    "one long row": (
        ragged.attention("paged_attention", "bfloat16", size=32, block=16),
        ([1], [300]),
    ),
    "long, short and many": (
        ragged.attention("paged_attention", "float16", heads=2, key_heads=1, size=32, block=7),
        ([2, 40, 1, 0, 1], [200, 41, 3, 9, 140]),
    ),
    "window": (
        ragged.attention("ragged_attention", "bfloat16", size=32, window=140),
        ([3, 1], [200, 180]),
    ),
}


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.usefixtures("short_parts")
def test_ragged(name):
    spec, rows = RAGGED[name]
    dims, arrays = ragged.batch(spec, *rows)
    check_ragged(spec, dims, arrays)


@pytest.mark.parametrize("cache", [None, "float8_e4m3fn"])
def test_stages_of_the_room_of_sm_90a(monkeypatch, cache):
    """Three of heads of 128, four of 8 bits; each of the two parts goes through all of them."""
    monkeypatch.setattr(cuda_harness, "MACHINE", MACHINES["sm_90a"])
    monkeypatch.setattr(split, "LEAST", 6)
    spec = ragged.attention("paged_attention", "bfloat16", cache, size=128, block=16)
    dims, arrays = ragged.batch(spec, [1], [700])
    launch = find(spec.op, "cuda").launch_on(spec.with_attr("few", True), MACHINES["sm_90a"])
    assert launch.shared == 4096 + (4 * 16384 if cache else 3 * 32768)
    check_ragged(spec, dims, arrays)


@pytest.mark.parametrize(
    ("arch", "cache", "stage", "stages"),
    [
        ("sm_80", None, 32768, 4),  # Many rows leave no room for a second block.
        ("sm_90a", None, 32768, 3),
        ("sm_80", "float8_e4m3fn", 16384, 4),
    ],
)
def test_stages_of_wide_heads(arch, cache, stage, stages):
    spec = ragged.attention("paged_attention", "bfloat16", cache, size=256, block=16)
    for share in find(spec.op, "cuda").split(spec):
        launch = find(spec.op, "cuda").launch_on(share.spec, MACHINES[arch])
        if not launch.tensor_maps:
            assert launch.shared == 16 * 512 + stages * stage


DENSE = {
    "one query": (attention("bfloat16", 32, (8, 2), causal=True), (1, 330)),
    "few queries": (attention("float16", 64, (2, 2), layout="bhsd"), (3, 130)),
    "too many queries": (attention("float16", 32, (2, 2)), (17, 130)),
    "few queries of 256": (attention("bfloat16", 256, (2, 1)), (1, 150)),
    "of known sizes": (known(attention("bfloat16", 32, (3, 1)), 2, 200), (2, 200)),
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.usefixtures("short_parts")
def test_dense(name):
    spec, sizes = DENSE[name]
    dims = dict(zip(("d0", "d1"), sizes, strict=True))
    arrays = arrays_for(spec, dims)
    (found,), _ = run_call(spec, arrays, dims)
    largest = np.max(np.abs(arrays[2].astype(np.float64)))
    check(found, in_float64(spec, arrays), spec.result.dtype, largest)


def of_one_row():
    """Equal scores, and values that cancel: another order of their sum is another result."""
    spec = attention("bfloat16", 32, (2, 1))
    dims = {"d0": 1, "d1": 190}
    query, keys, values = arrays_for(spec, dims)
    values[:, 3], values[:, 130] = 2**20, -(2**20)
    return spec, [query * 0, keys, values], dims


@pytest.mark.usefixtures("short_parts")
def test_it_does_not_matter_who_is_last(monkeypatch):
    (first,), _ = run_call(*of_one_row())
    turned(monkeypatch)
    (second,), _ = run_call(*of_one_row())
    np.testing.assert_array_equal(first, second)


@pytest.mark.usefixtures("short_parts")
def test_a_sum_that_begins_with_ones_own_part_depends_on_who_is_last(monkeypatch):
    total, in_order = split._Slots.total, _handover.in_order

    def own_first(slots, *arguments):
        def turned(parts, state, load, add):
            def from_here(part):
                return load((part + slots.split.part) % parts)

            return in_order(parts, state, from_here, add)

        with monkeypatch.context() as patched:
            patched.setattr(_handover, "in_order", turned)
            return total(slots, *arguments)

    monkeypatch.setattr(split._Slots, "total", own_first)
    (first,), _ = run_call(*of_one_row())
    turned(monkeypatch)
    (second,), _ = run_call(*of_one_row())
    assert (first != second).any()


def nothing(*_) -> None:
    pass


def always(counters, place, parts):
    """As if every block were the last one."""
    _handover._block.barrier()
    return _handover.emit.constant(_handover.emit.integer(1), 1)


MISTAKES = {
    "no fence": (_handover, "fence", nothing, "race: two threads write buffer 5"),
    "nobody waits": (_handover, "is_last", always, "buffer 4"),
    "slots of another size": (
        split,
        "slot",
        lambda size, lines: 15 * size,
        "race: writes|race: two",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("short_parts")
def test_a_mistake_is_caught(monkeypatch, name):
    module, function, planted, message = MISTAKES[name]
    monkeypatch.setattr(module, function, planted)
    with pytest.raises(EmulatorError, match=message):
        run_call(*of_one_row())


@pytest.mark.usefixtures("short_parts")
def test_a_counter_that_is_not_reset_is_caught(monkeypatch):
    monkeypatch.setattr(_handover, "reset", nothing)
    with pytest.raises(AssertionError, match="counters are left as zeros"):
        run_call(*of_one_row())


@pytest.mark.parametrize(
    ("every", "wanted"),
    [(8, 2), (256, 2), (257, 3), (1024, 8), (8192, 64), (64 * 528, 64), (64 * 528 + 1, 65)],
)
def test_parts_are_as_long_as_one_for_each_multiprocessor(every, wanted):
    assert split.length_of_parts(every) == wanted


def test_as_many_blocks_as_keys_ask_for():
    spec = ragged.attention(
        "paged_attention", "bfloat16", heads=32, key_heads=8, size=128, block=16
    )
    launch = find(spec.op, "cuda").launch(spec)
    for rows, keys, wanted in ((1, 8192, 16), (64, 8192, 66), (1, 1024, 8), (1, 96, 0)):
        dims = {"d0": rows, "d1": 9, "d2": rows + 1, "d3": rows, "d4": keys // 16}
        tiles = -(-rows * 4 // 64) + rows + 2
        assert size(launch.grid[0], dims) == 8 * (tiles + min(wanted, 66))
        assert size(launch.workspace, dims) == 2 * 8 * min(wanted, 66) * 16 * 130 * 4
    assert launch.counters == 4 * 132


ASSEMBLED = {
    "paged": ragged.attention("paged_attention", "bfloat16", heads=32, key_heads=8, size=128),
    "paged, 256": ragged.attention("paged_attention", "float16", heads=16, key_heads=8, size=256),
    "few queries": find("attention", "cuda")
    .split(attention("float16", 128, (32, 8), causal=True))[0]
    .spec,
    "of known sizes": known(attention("bfloat16", 128, (32, 8), causal=True), 1, 8192),
}


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ASSEMBLED)
def test_no_register_is_spilled(name, arch):
    text = check_no_spills(ASSEMBLED[name], arch)
    assert text.count("fence.acq_rel.gpu") == 2
    assert "atom.global.add.u32" in text or "atom.add.u32" in text


@pytest.mark.parametrize("op", ["ragged_attention", "paged_attention"])
def test_known_sizes_with_keys_for_one_block_alone(op):
    spec = ragged.attention(op, "bfloat16")
    dims, arrays = ragged.batch(spec, (1, 3), (9, 20))
    text = spec.to_json()
    for name, number in dims.items():
        text = text.replace(f'"{name}"', str(number))
    fixed = Spec.from_json(text)
    launch = find(op, "cuda").launch(fixed)
    assert (launch.workspace, launch.counters) == (0, 0)
    (found,), status = run_call(fixed, arrays, {})
    (wanted,), _ = run_call(spec, arrays, dims)
    assert status == [0, 0, 0, 0]
    np.testing.assert_array_equal(found, wanted)
