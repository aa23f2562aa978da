"""Convolutions by wgmma: results, mistakes that the emulator has to see, machine code."""

import pytest
import wgmma_registers
from assembler import check_products_overlap, machine_code, needs_ptxas
from emulator.memory import EmulatorError
from warpgroup_cases import HOPPER, cut_into_pieces
from window_cases import check
from window_specs import plain

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.products import mma
from heddle.kernels.cuda.warpgroup import instructions, plan, tma, windows

pytestmark = pytest.mark.usefixtures("on_hopper")

SAME = (1, 1, 1, 1)


def by_wgmma(spec):
    return plan.plan_for(spec, HOPPER)


CASES = {
    # x, columns, kernel, groups, strides, padding, dilations
    "padding": ("bfloat16", (2, 9, 10, 16), 24, (3, 3), 1, None, SAME),
    "strides and dilation": (
        "float16",
        ("d0", 8, 9, 8),
        40,
        (3, 2),
        1,
        (2, 1),
        (2, 0, 1, 3),
        (1, 2),
    ),
    "one axis, columns that do not divide": ("bfloat16", (3, 50, 24), 21, (3,), 1, None, (1, 1)),
    "no taps but one": ("bfloat16", ("d0", 6, 7, 72), 136, (1, 1)),
    "more rounds than stages, in a cluster": (
        "bfloat16",
        (1, 10, 16, 64),
        24,
        (3, 3),
        1,
        None,
        SAME,
    ),
    "windows outside of x": ("bfloat16", (2, 3, 40, 8), 8, (2, 2), 1, None, (5, 5, 2, 3)),
}


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name, shift):
    spec = plain(*CASES[name], biased=name != "padding")
    assert by_wgmma(spec)
    check(spec, shift)


def test_tiles_in_pieces(monkeypatch):
    cut_into_pieces(monkeypatch)
    spec = plain("bfloat16", ("d0", 8, 9, 48), 40, (3, 3), 1, None, SAME)
    assert by_wgmma(spec).cut
    check(spec)


@pytest.mark.parametrize(
    "spec",
    [
        plain("bfloat16", (2, 9, 10, 20), 24, (3, 3)),  # Chunks in two taps.
        plain("bfloat16", (2, 9, 10, 16), 24, (3, 3), 2),
        plain("bfloat16", (2, 9, "d1", 16), 24, (3, 3)),
        plain("bfloat16", (2, 9, 10, 11, 16), 24, (3, 3, 3)),
        plain("bfloat16", (1, 8, 8, 16), 24, (3, 3)),  # Few windows.
        plain("bfloat16", (1, 1 << 12, 1 << 12, 16), 24, (3, 3)),  # Offsets of more than 32 bits.
    ],
)
def test_what_others_compute(spec):
    assert by_wgmma(spec) is None


MISTAKES = {
    # what is planted: where, and what the emulator says
    "no proxy fence": ((tma, "fence", lambda: None), r"no fence\.proxy\.async"),
    "no wait for a full stage": (
        (instructions.Turn, "wait_until_full", lambda turn: None),
        "race: reads|uninitialised",
    ),
    "no wait for an empty stage": (
        (instructions.Turn, "wait_until_empty", lambda turn: None),
        "in flight of warpgroup|arrivals in a phase|race: writes",
    ),
    "an arrival that does not wait for the copies": (
        (
            windows.nvvm,
            "cp_async_mbarrier_arrive",
            lambda barrier, noinc: instructions._arrive(barrier),
        ),
        "race: reads|in flight|uninitialised",
    ),
    "an arrival is not counted": ((windows, "ARRIVALS", 128), "arrivals|race: reads"),
    "an arrival too many is counted": ((windows, "ARRIVALS", 130), "deadlock"),
    "taps outside are read": (
        (mma, "copy", lambda target, source, inside: _copy(target, source, True)),
        "out of bounds|outside|uninitialised|reads",
    ),
}


_copy_inside = mma.copy


def _copy(target, source, inside):
    _copy_inside(target, source, mma.emit.constant(mma.emit.integer(1), int(inside)))


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(monkeypatch, name):
    planted, message = MISTAKES[name]
    spec = plain("bfloat16", (1, 9, 10, 64), 24, (3, 3), 1, None, SAME)
    assert by_wgmma(spec)
    monkeypatch.setattr(*planted)
    with pytest.raises(EmulatorError, match=message):
        check(spec)


LARGE = {
    "3 x 3": plain("bfloat16", (32, 56, 56, 128), 256, (3, 3), 1, None, SAME, biased=True),
    "a batch that is not known": plain("float16", ("d0", 28, 28, 64), 128, (3, 3), 1, (2, 2), SAME),
    "1 x 1": plain("bfloat16", (32, 14, 14, 1024), 256, (1, 1)),
    "one axis": plain("bfloat16", ("d0", 3000, 80), 384, (3,), 1, None, (1, 1), biased=True),
}


@needs_ptxas
@pytest.mark.parametrize("name", LARGE)
def test_machine_code(name):
    """No spills, no products that wait for one another; the copies are those of 16 bytes."""
    text = to_ptx(LARGE[name], HOPPER)
    assert wgmma_registers.check(text)
    cubin = ptx.assemble(text, HOPPER.arch)
    assert (cubin.registers, cubin.spills, cubin.shared) == (plan.REGISTERS, 0, 0)
    check_products_overlap(cubin)
    code = machine_code(cubin)
    for instruction in ("HGMMA.64x", "UTMALDG.3D", "LDGSTS.E.BYPASS.128", "ARRIVES.LDGSTSBAR"):
        assert instruction in code
