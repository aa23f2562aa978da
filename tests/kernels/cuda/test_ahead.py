"""Kernels that read what is given before the kernels in front have ended (sm_90a)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import cuda_harness
import numpy as np
import pytest
import ragged_batches as ragged
from assembler import check_no_spills, needs_assembler
from cuda_cases import beside, gated
from emulator.memory import EmulatorError
from minimum_cases import with_minimums
from test_kernels import arrays_for
from test_strip_parts import PARTS
from test_tensor_cores import floats, quantized
from warpgroup_cases import body, product

from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda._frame import Frame
from heddle.kernels.cuda.products import by_rows
from heddle.kernels.registry import AHEAD, MACHINES, find

HOPPER = MACHINES["sm_90a"]
PAGED, RAGGED = "paged_attention", "ragged_attention"
FEW, MANY = ([1, 1, 0, 1], [70, 5, 0, 130]), ([40, 1, 0, 3], [70, 5, 0, 130])
CASES = {
    "by warps": (ragged.attention(PAGED), FEW),
    "few rows": (ragged.attention(PAGED, "bfloat16", block=16).with_attr("few", True), FEW),
    "few rows of 8 bits": (
        ragged.attention(RAGGED, "bfloat16", "float8_e4m3fn").with_attr("few", True),
        FEW,
    ),
    "many rows": (ragged.attention(PAGED, "float16", size=64, block=16), MANY),
    "rope": (ragged.rotating("bfloat16"), MANY),
    "nothing": (ragged.attention(RAGGED, "bfloat16"), ([0, 0], [0, 0])),
}


any_rows = product("bfloat16", "d0", 40, 520, True)
PRODUCTS = {
    # spec, sizes, elements that buffers are shifted by
    "b as [n, k]": (product("bfloat16", 3, 40, 1032, True), {}, 0),
    "b as [k, n]": (product("float16", 11, 72, 1032, False), {}, 0),
    "less than a ring": (product("bfloat16", 16, 40, 72, True), {}, 0),
    "unaligned buffers": (product("bfloat16", 2, 40, 1032, True), {}, 1),
    "parts": (PARTS["three parts of b in rows"][0], {}, 0),
    "a gate": (gated(product("bfloat16", 2, 40, 1032, True)), {}, 0),
    "beside each other": (
        beside(*(product("float16", 5, n, 264, True) for n in (40, 40, 24))),
        {},
        0,
    ),
    "bytes": (product("int8", 3, 40, 528, True), {}, 0),
    "8-bit floats": (floats("e4m3fn", "e5m2", 3, 40, 528, True), {}, 0),
    "weights of 4 bits": (quantized("bfloat16", 2, 72, 2080, 4, 32, "uint8"), {}, 0),
    "weights of 8 bits": (quantized("float16", 13, 40, 1088, 8, 64), {}, 0),
    "minimums and none": (
        beside(
            with_minimums(quantized("bfloat16", 3, 40, 288, 4, 32)),
            quantized("bfloat16", 3, 24, 288, 8, 32),
        ),
        {},
        0,
    ),
    "none and minimums": (
        beside(
            quantized("float16", 5, 40, 288, 8, 32),
            with_minimums(quantized("float16", 5, 24, 288, 4, 32)),
        ),
        {},
        0,
    ),
    "17 rows": (product("bfloat16", 17, 24, 9 * 64 + 8, True), {}, 0),
    "50 rows in parts": (product("float16", 50, 136, 4 * 64, False), {}, 0),
    "20 rows and a gate": (gated(product("bfloat16", 20, 40, 2 * 64, True)), {}, 0),
    "unaligned buffers of 24 rows": (body(product("float16", 24, 24, 2 * 72, True)), {}, 1),
    "any few rows": (by_rows.split(any_rows)[0].spec, {"d0": 3}, 0),
    "any rows": (any_rows, {"d0": 3}, 0),
    "no rows": (any_rows, {"d0": 0}, 0),
    "any rows by 4 bits": (quantized("bfloat16", "d0", 40, 288, 4, 32, "uint8"), {"d0": 70}, 0),
}


def ahead(name: str):
    """The spec of a case, one whose kernel reads ahead, dims, arrays, and how far they are off."""
    if name in PRODUCTS:
        spec, dims, shift = PRODUCTS[name]
        return spec, spec.with_attr(AHEAD, True), dims, arrays_for(spec, dims), shift
    spec, rows = CASES[name]
    batch = ragged.rotation if name == "rope" else ragged.batch
    return spec, spec.with_attr(AHEAD, True), *batch(spec, *rows), 0


@pytest.mark.parametrize("of_ptx", [False, True])
@pytest.mark.parametrize("name", [*CASES, *PRODUCTS])
def test_results_are_the_same(monkeypatch, name, of_ptx):
    monkeypatch.setattr(cuda_harness, "of_ptx", of_ptx)
    *specs, dims, arrays, shift = ahead(name)
    run = partial(cuda_harness.run, arrays=arrays, dims=dims, shift=shift, machine=HOPPER)
    run = partial(run, prepared=name in CASES)
    (wanted, status), (found, other) = map(run, specs)
    assert status == other == [0, 0, 0, 0]
    for pair in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(*(x.view(np.uint8) for x in pair))


@pytest.mark.parametrize("name", ["few rows", "rope"])
def test_what_is_wrong_is_reported_ahead(name):
    _, spec, dims, arrays, _ = ahead(name)
    arrays[-2][0] = 10_000
    status = cuda_harness.run(spec, arrays, dims, machine=HOPPER)[1]
    assert status[:2] == [1, 10_000]


WAIT_FIRST = {"by warps", "nothing", "no rows", "any rows", "any rows by 4 bits"}
WAIT_FIRST.add("unaligned buffers of 24 rows")


@pytest.mark.parametrize("name", [x for x in (*CASES, *PRODUCTS) if x not in WAIT_FIRST])
def test_what_is_given_is_read_before_the_wait(monkeypatch, name):
    """What is said not to be settled is missed."""
    _, spec, dims, arrays, shift = ahead(name)
    kernel = replace(find(spec.op, "cuda"), ahead=lambda spec: ())
    monkeypatch.setattr(cuda_harness, "find", lambda op, target: kernel)
    with pytest.raises(EmulatorError, match=r"before griddepcontrol\.wait"):
        cuda_harness.run(spec, arrays, dims, shift, HOPPER, prepared=True)


@pytest.fixture
def waits(monkeypatch):
    """A function to say which of a kernel's waits are left, and the number of all of them."""
    monkeypatch.setattr(cuda_harness, "keeps", False)
    wait = Frame.wait

    def leave(name: str, left: Callable[[int, int], bool]) -> None:
        frames: list[Frame] = []

        def every(frame: Frame) -> Frame:
            frames.append(frame)
            return wait(frame)

        monkeypatch.setattr(Frame, "wait", every)
        to_ptx(ahead(name)[1], HOPPER)
        numbers, count = iter(range(len(frames))), len(frames)

        def some(frame: Frame) -> Frame:
            return wait(frame) if left(next(numbers), count) else replace(frame, ahead=False)

        monkeypatch.setattr(Frame, "wait", some)

    return leave


@pytest.mark.parametrize("name", [x for x in (*CASES, *PRODUCTS) if not x.startswith("no")])
def test_a_wait_that_is_missing_is_caught(waits, name):
    _, spec, dims, arrays, shift = ahead(name)
    waits(name, lambda number, count: number == count - 1)
    with pytest.raises(EmulatorError, match=r"before griddepcontrol\.wait"):
        cuda_harness.run(spec, arrays, dims, shift, HOPPER, prepared=True)


@pytest.mark.parametrize("name", ["few rows", "rope", "nothing", "no rows"])
def test_blocks_that_do_not_wait_are_caught(waits, name):
    """Those that have no tile wait at the end."""
    _, spec, dims, arrays, _ = ahead(name)
    waits(name, lambda number, count: number < count - 1)
    if name == "rope":
        arrays[-3][:] = 0  # No token is in a row.
    with pytest.raises(EmulatorError, match=r"ends without griddepcontrol\.wait"):
        cuda_harness.run(spec, arrays, dims, machine=HOPPER, prepared=True)


@needs_assembler
@pytest.mark.parametrize("name", [*CASES, *PRODUCTS])
def test_no_register_is_spilled(name):
    check_no_spills(ahead(name)[1], HOPPER.arch)
