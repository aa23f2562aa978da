"""Convolutions of bfloat16 in AMX tiles."""

import native
import numpy as np
import pytest
from amx_products import ARCH, MACHINE
from native import check, random, run
from reference import shape
from window_specs import packed

from heddle.kernels.cpu.amx import pictures, windows
from heddle.runtime._core import cpu_info

CASES = {
    "one axis": (("d0", 21, 32), 33, (3,), 1, (2,), (1, 1), (1,)),
    "padding all around": ((2, 9, 7, 32), 64, (3, 3), 1, None, (1, 1, 1, 1)),
    "channels of several steps": ((1, 5, 6, 160), 70, (2, 3), 1, None, (0, 1, 2, 0)),
    "steps of two": (("d0", 11, 13, 64), 40, (3, 3), 1, (2, 2), (1, 1, 1, 1)),
    "steps and gaps": ((1, 12, 19, 32), 40, (2, 3), 1, (1, 2), (0, 0, 0, 1), (1, 3)),
    "gaps that share steps": ((1, 12, 19, 32), 40, (3, 2), 1, (2, 3), (2, 0, 3, 1), (3, 2)),
    "single taps": ((1, 9, 7, 96), 30, (1, 1), 1, (2, 3)),
    "groups": ((2, 9, 8, 128), 72, (3, 3), 4, (2, 1), (1, 1, 2, 0)),
    "taps that no window has": ((1, 6, 4, 32), 8, (3, 5), 1, (2, 1), (3, 3, 4, 4)),
    "three axes": ((2, 4, 5, 6, 32), 24, (2, 3, 2), 1, (1, 2, 1), (1, 0, 1, 1, 0, 1)),
    "a stem": ((2, 20, 23, 3), 40, (7, 7), 1, (2, 2), (3, 3, 3, 3)),
    "one line of five channels": ((2, 50, 5), 20, (6,), 1, (3,), (2, 4)),
    "joined taps in two steps": ((2, 9, 8, 16), 72, (3, 3), 1, (1, 2), (1, 1, 1, 1), (2, 1)),
    "patches": ((1, 24, 32, 3), 40, (8, 8), 1, (8, 8)),
    "narrow groups": ((2, 9, 8, 32), 72, (3, 3), 4, (2, 1), (1, 1, 2, 0)),
    "narrow groups of odd channels": ((2, 9, 8, 21), 33, (3, 3), 3, None, (1, 1, 1, 1)),
    "no pictures": ((0, 9, 7, 32), 64, (3, 3)),
    "no results": ((2, 9, 7, 32), 0, (3, 3)),
    "several blocks": ((1, 24, 60, 256), 33, (3, 3), 1, None, (1, 1, 1, 1)),
    "several pictures": ((5, 14, 14, 64), 33, (3, 3), 1, None, (1, 1, 1, 1)),
    "several runs of panels": ((1, 4, 6, 512), 130, (3, 3), 1, None, (1, 1, 1, 1)),
}


def whole_numbers(spec, dims):
    """Whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, shape(operand.shape, dims)) for operand in spec.inputs]
    return [a.astype(native.numpy_dtype(o.dtype)) for a, o in zip(arrays, spec.inputs, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name):
    spec = packed("bfloat16", *CASES[name], biased=True)
    assert windows.grid_of(spec, MACHINE)
    dims = {"d0": 3}
    check(spec, dims, whole_numbers(spec, dims), arch=ARCH, rtol=4e-3, atol=0)


@pytest.mark.parametrize("name", ["padding all around", "steps of two", "a stem", "narrow groups"])
def test_a_pixel_that_is_no_number_reaches_its_windows_alone(name):
    spec = packed("bfloat16", *CASES[name])
    dims = {"d0": 1}
    arrays = whole_numbers(spec, dims)
    arrays[0][0, 4, 3, 1] = np.nan
    arrays[0][0, 0, 0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        check(spec, dims, arrays, arch=ARCH, rtol=4e-3, atol=0)


@pytest.mark.skipif(bool(cpu_info()["missing"][ARCH]), reason="there is no AMX")
@pytest.mark.parametrize("name", CASES)
def test_a_processor_gives_the_same_bits(name):
    spec, dims = packed("bfloat16", *CASES[name], biased=True), {"d0": 3}
    rng = np.random.default_rng(0)
    arrays = [random(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]
    (emulated,), _ = run(spec, arrays, dims, ARCH)
    (computed,), _ = run(spec, arrays, dims, ARCH, load=native.load_as_shipped)
    assert computed.tobytes() == emulated.tobytes()


@pytest.mark.parametrize(
    ("shape", "kernel", "moves"),
    [
        ((1, "d0", 9, 32), (3, 3), ()),  # sizes are not known
        ((1, 9, 9, 32), (3, 1), (1, None, (0, 0, 0, 0), (1, 1))),
        ((1, 40, 9, 5), (3, 2), (1, None, (0, 0, 0, 0), (1, 2))),  # taps do not follow each other
        ((1, 9, 9, 2), (3, 3), ()),  # steps would be short
        ((1, 3, 2000, 64), (3, 3), ()),  # a row of windows has no room
        ((1, 12, 12, 32), (6, 6), (1, (6, 6))),  # there would be 36 phases
    ],
)
def test_which_are_computed_so(shape, kernel, moves):
    spec = packed("bfloat16", shape, 40, kernel, *moves)
    assert (windows.grid_of(spec, MACHINE) is not None) == (kernel == (3, 1))


@pytest.mark.parametrize(
    "case",
    [
        ((8, 224, 224, 3), 64, (7, 7), 1, (2, 2), (3, 3, 3, 3)),
        ((8, 7, 7, 512), 512, (3, 3), 1, None, (1, 1, 1, 1)),
        ((8, 56, 56, 64), 64, (3, 3), 1, None, (1, 1, 1, 1)),
    ],
)
def test_what_a_block_sees_has_room_in_the_second_cache(case):
    grid = pictures.Grid.of(packed("bfloat16", *case))
    room = grid.items * grid.places * grid.pitch
    assert room <= pictures.PICTURE < 2 * room + grid.places * grid.pitch
