"""Strips ask for their first weights before they wait for the kernel in front (sm_90a)."""

import re
from functools import partial

import cuda_harness
import pytest
from emulator.memory import EmulatorError
from test_kernels import check
from test_strip_parts import PARTS
from test_tensor_cores import product, quantized

from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda import _overlap
from heddle.kernels.cuda.products import mma
from heddle.kernels.registry import MACHINES

HOPPER = MACHINES["sm_90a"]
STRIPS = {
    "b as [n, k]": product("bfloat16", 3, 40, 520, True),
    "b as [k, n]": product("float16", 17, 72, 264, False),
    "4 bits": quantized("bfloat16", 2, 72, 288, 4, 32, "uint8"),
    "8 bits": quantized("float16", 13, 40, 320, 8, 64),
    "parts of 8 bits": PARTS["8 bits"][0],
    "parts": PARTS["three parts of b in rows"][0],
}


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("of_ptx", [False, True])
@pytest.mark.parametrize("name", STRIPS)
def test_results(monkeypatch, name, of_ptx, shift):
    monkeypatch.setattr(cuda_harness, "of_ptx", of_ptx)
    check(STRIPS[name], {}, shift, partial(cuda_harness.run, machine=HOPPER))


@pytest.mark.parametrize("name", STRIPS)
def test_what_is_asked_for_comes_first_and_every_block_waits(name):
    text = to_ptx(STRIPS[name], HOPPER)
    order = [
        r"griddepcontrol\.launch_dependents",
        r"cp\.async\.bulk\.prefetch\.L2\.global",
        r"griddepcontrol\.wait",
        r"cp\.async\.c|(ld|st)\.global",
    ]
    if name == "b as [k, n]":  # Many short pieces, for which nobody asks.
        order.pop(1)
    places = [re.search(pattern, text).start() for pattern in order]
    assert places == sorted(places)
    assert re.search(r"griddepcontrol\.wait;\s+ret;", text)


def test_no_wait_is_caught(monkeypatch):
    def ahead_alone(_frame, ahead):
        ahead()

    monkeypatch.setattr(cuda_harness, "keeps", False)
    monkeypatch.setattr("heddle.kernels.cuda._frame.Frame.wait", ahead_alone)
    with pytest.raises(EmulatorError, match=r"before griddepcontrol\.wait"):
        check(STRIPS["4 bits"], {}, 0, partial(cuda_harness.run, machine=HOPPER))


@pytest.mark.parametrize("wrong", [1 << 20, 4])
def test_asking_for_what_is_not_there_is_caught(monkeypatch, wrong):
    ask = _overlap.ask
    monkeypatch.setattr(cuda_harness, "keeps", False)
    monkeypatch.setattr(_overlap, "ask", lambda at, size: ask(mma.byte_at(at, wrong), size))
    with pytest.raises(EmulatorError, match="prefetch"):
        check(STRIPS["4 bits"], {}, 0, partial(cuda_harness.run, machine=HOPPER))
