"""Mistakes planted in products by wgmma, which the emulator has to see."""

from dataclasses import replace

import pytest
from emulator.memory import EmulatorError
from test_kernels import check
from test_tensor_cores import quantized
from warpgroup_cases import columns, cut_into_pieces, product

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.products import staging, weight_words
from heddle.kernels.cuda.warpgroup import instructions as warpgroup
from heddle.kernels.cuda.warpgroup import product as warpgroup_product
from heddle.kernels.cuda.warpgroup import result, scaled, tma

pytestmark = pytest.mark.usefixtures("on_hopper")


Turn, Ring, WayOut = warpgroup.Turn, warpgroup.Ring, result.WayOut
Products, WeightWords = scaled.Products, weight_words.WeightWords
SCALES, FRAGMENT = Products._scales, WeightWords.fragment
MULTIPLY_WORDS = warpgroup.Matrices.multiply_words
turn, initialise, wait, expect = Ring.turn, Ring.initialise, warpgroup.wait, Turn.expect
load, meet, read = tma.load, warpgroup_product._Block.meet, tma.wait_until_read
IN_FLIGHT = "a copy in flight to the mbarrier at byte"


def nothing(*_) -> None:
    pass


MISTAKES = {
    # what is planted: where, and what the emulator says
    "no wait for a full stage": (
        (Turn, "wait_until_full", nothing),
        f"race: reads what {IN_FLIGHT}|uninitialised",
    ),
    "the other parity": (
        (Ring, "turn", lambda ring, step: _turned(ring, step)),
        f"race: reads what {IN_FLIGHT}|deadlock|uninitialised",
    ),
    "no wait for an empty stage": (
        (Turn, "wait_until_empty", nothing),
        "writes what the wgmma in flight of warpgroup|more than 1 arrivals",
    ),
    "a stage is never released": ((Turn, "arrive_empty_at", nothing), "deadlock"),
    "a stage is released to its own block alone": (
        (Turn, "arrive_empty_at", lambda turn, block: turn.arrive_empty()),
        "arrivals in a phase|race: writes",
    ),
    "a stage is released too early": (
        (warpgroup, "wait", lambda left: wait(2 * left)),
        "writes what the wgmma in flight of warpgroup",
    ),
    "no wait for the last products": (
        (warpgroup, "wait", lambda left: wait(1)),
        r"looks at an accumulator before wgmma\.wait_group",
    ),
    "no wgmma.fence": ((warpgroup, "fence", nothing), r"no wgmma\.fence before a wgmma"),
    "groups are not committed": ((warpgroup, "commit", nothing), "in flight|accumulator"),
    "too few bytes are expected": (
        (Turn, "expect", lambda turn, size: expect(turn, size - 64 * 128)),
        f"race: reads what {IN_FLIGHT}|uninitialised",
    ),
    "too many bytes are expected": (
        (Turn, "expect", lambda turn, size: expect(turn, size + 16)),
        "deadlock",
    ),
    "nobody is in the mask of a multicast": (
        (tma, "load", lambda *args: load(*args[:4])),
        "deadlock",
    ),
    "one warpgroup releases for both": (
        (Ring, "initialise", lambda ring, full, empty: initialise(ring, full, empty // 2)),
        "arrivals in a phase|in flight of warpgroup|race: writes over|nothing orders the wait",
    ),
    "blocks do not meet": (
        (warpgroup_product._Block, "meet", nothing),
        "nobody initialised an mbarrier|initialises it|which ended",
    ),
    "no proxy fence before a store": ((tma, "fence", nothing), r"no fence\.proxy\.async"),
    "lanes do not meet": ((warpgroup, "meet_in_warp", nothing), "race: (reads|writes)"),
    "a panel is filled while it is stored": (
        (tma, "wait_until_read", lambda left: read(0) if left == 0 else None),
        "race: writes what a bulk store",
    ),
    "the block does not wait for its stores": (
        (WayOut, "finish", nothing),
        "ends while its bulk stores read shared memory",
    ),
}


def _turned(ring: Ring, step):
    found = turn(ring, step)
    return replace(found, parity=found.parity ^ 1)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(monkeypatch, name):
    planted, message = MISTAKES[name]
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(product("int8", 130, 72, 7 * 128, True), {})


ELEMENTS = {
    "parts that are stored do not arrive": ((Turn, "arrive_full", nothing), "deadlock"),
    "no proxy fence": ((tma, "fence", nothing), r"no fence\.proxy\.async"),
    "no barrier of those who store": ((warpgroup, "meet", nothing), "race: reads|uninitialised"),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_mistakes_with_single_elements_are_caught(monkeypatch, name):
    planted, message = ELEMENTS[name]
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(product("bfloat16", 66, 13, 65, False), {})


SCALED = {
    **{
        name: MISTAKES[name]
        for name in (
            "no wait for a full stage",
            "no wait for an empty stage",
            "a stage is never released",
            "no wgmma.fence",
            "too few bytes are expected",
            "nobody is in the mask of a multicast",
            "blocks do not meet",
            "lanes do not meet",
            "the block does not wait for its stores",
        )
    },
    "a stage is not released in its own block": ((Turn, "arrive_empty", nothing), "deadlock"),
    "sums are looked at in flight": (
        (warpgroup, "wait", nothing),
        r"looks at an accumulator before wgmma\.wait_group",
    ),
    "panels are filled while they are stored": (
        (WayOut, "_wait_until_read", nothing),
        "race: writes what a bulk store",
    ),
    "warps write each other's panels without a barrier": (
        (warpgroup, "meet", nothing),
        r"race: |uninitialised|no fence\.proxy\.async",
    ),
    "no proxy fence before a store": ((tma, "fence", nothing), r"no fence\.proxy\.async"),
}


@pytest.mark.parametrize("name", SCALED)
def test_mistakes_with_weights_that_are_widened_are_caught(monkeypatch, name):
    planted, message = SCALED[name]
    monkeypatch.setattr(*planted)
    with pytest.raises(EmulatorError, match=message):
        check(quantized("bfloat16", 130, 264, 5 * 128, 8, 128), {})


WRONG = {
    "groups are scaled by the first": (Products, "_scales", lambda *args: SCALES(*args)[:2] * 4),
    "scales of the step behind": (
        Products,
        "_scales",
        lambda products, rows, step: SCALES(products, rows, step + 1),
    ),
    "sums of one group are added to those of the next": (
        warpgroup.Matrices,
        "multiply_words",
        lambda *args, adds: MULTIPLY_WORDS(*args, adds=args[1] is not None),
    ),
    "weights of another lane": (
        WeightWords,
        "fragment",
        lambda words, line, member: FRAGMENT(words, line, member ^ 1),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_with_weights_that_are_widened_change_results(monkeypatch, name):
    monkeypatch.setattr(*WRONG[name])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(quantized("bfloat16", 66, 24, 128, 4, 32), {})


MEETINGS = {
    "no barrier before a piece arrives": ((warpgroup, "meet", nothing), "race: |uninitialised"),
    "no fence of the GPU": ((_handover, "fence", nothing), "race: two threads write"),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_mistakes_with_pieces_are_caught(monkeypatch, name):
    planted, message = MEETINGS[name]
    cut_into_pieces(monkeypatch)
    monkeypatch.setattr(*planted)
    with columns(128), pytest.raises(EmulatorError, match=message):
        check(product("bfloat16", 66, 24, 3 * 64, True), {})


LAYOUTS = {
    "the stride of a descriptor": (warpgroup, "ATOM", warpgroup.ATOM // 2),
    "the swizzle of panels": (staging, "swizzled", lambda line, chunk, *_: chunk),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_wrong_layouts_give_wrong_results(monkeypatch, name):
    monkeypatch.setattr(*LAYOUTS[name])
    with columns(128), pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(product("bfloat16", 66, 72, 64, False), {})
