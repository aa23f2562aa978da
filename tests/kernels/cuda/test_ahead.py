"""Kernels that find their rows before the kernels in front have ended (sm_90a)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import cuda_harness
import numpy as np
import pytest
import ragged_batches as ragged
from assembler import needs_assembler
from emulator.memory import EmulatorError

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda._frame import Frame
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


def ahead(name: str):
    """The spec of a case, one whose kernel reads ahead, and dims and arrays."""
    spec, rows = CASES[name]
    batch = ragged.rotation if name == "rope" else ragged.batch
    return spec, spec.with_attr(AHEAD, True), *batch(spec, *rows)


@pytest.mark.parametrize("of_ptx", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_results_are_the_same(monkeypatch, name, of_ptx):
    monkeypatch.setattr(cuda_harness, "of_ptx", of_ptx)
    *specs, dims, arrays = ahead(name)
    run = partial(cuda_harness.run, arrays=arrays, dims=dims, machine=HOPPER, prepared=True)
    (wanted, status), (found, other) = map(run, specs)
    assert status == other == [0, 0, 0, 0]
    for pair in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(*(x.view(np.uint8) for x in pair))


@pytest.mark.parametrize("name", ["few rows", "rope"])
def test_what_is_wrong_is_reported_ahead(name):
    _, spec, dims, arrays = ahead(name)
    arrays[-2][0] = 10_000
    status = cuda_harness.run(spec, arrays, dims, machine=HOPPER)[1]
    assert status[:2] == [1, 10_000]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("by warps", "nothing")])
def test_rows_are_read_before_the_wait(monkeypatch, name):
    """What is said not to be settled is missed."""
    _, spec, dims, arrays = ahead(name)
    kernel = replace(find(spec.op, "cuda"), ahead=())
    monkeypatch.setattr(cuda_harness, "find", lambda op, target: kernel)
    with pytest.raises(EmulatorError, match=r"before griddepcontrol\.wait"):
        cuda_harness.run(spec, arrays, dims, machine=HOPPER, prepared=True)


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


@pytest.mark.parametrize("name", [name for name in CASES if name != "nothing"])
def test_a_wait_that_is_missing_is_caught(waits, name):
    _, spec, dims, arrays = ahead(name)
    waits(name, lambda number, count: number == count - 1)
    with pytest.raises(EmulatorError, match=r"before griddepcontrol\.wait"):
        cuda_harness.run(spec, arrays, dims, machine=HOPPER, prepared=True)


@pytest.mark.parametrize("name", ["few rows", "rope", "nothing"])
def test_blocks_that_do_not_wait_are_caught(waits, name):
    """Those that have no tile wait at the end."""
    _, spec, dims, arrays = ahead(name)
    waits(name, lambda number, count: number < count - 1)
    if name == "rope":
        arrays[-3][:] = 0  # No token is in a row.
    with pytest.raises(EmulatorError, match=r"ends without griddepcontrol\.wait"):
        cuda_harness.run(spec, arrays, dims, machine=HOPPER, prepared=True)


@needs_assembler
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name):
    assert ptx.assemble(to_ptx(ahead(name)[1], HOPPER), "sm_90a").spills == 0
