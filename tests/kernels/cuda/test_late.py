"""Products of few rows let the next kernel start when they ask for nothing more (sm_90a)."""

from functools import partial

import cuda_harness
import pytest
from emulator import dependence
from emulator.memory import EmulatorError
from test_kernels import check
from test_strip_parts import PARTS
from test_tensor_cores import product, quantized

from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda import _overlap
from heddle.kernels.registry import MACHINES, find

HOPPER = MACHINES["sm_90a"]
LATE = {
    "b as [n, k]": product("bfloat16", 3, 40, 520, True),
    "b as [k, n]": product("float16", 11, 72, 264, False),
    "by wgmma": product("float16", 17, 72, 264, True),
    "4 bits": quantized("bfloat16", 2, 72, 288, 4, 32, "uint8"),
    "8 bits": quantized("float16", 13, 40, 320, 8, 64),
    "parts of 8 bits": PARTS["8 bits"][0],
    "parts": PARTS["three parts of b in rows"][0],
}


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("of_ptx", [False, True])
@pytest.mark.parametrize("name", LATE)
def test_results(monkeypatch, name, of_ptx, shift):
    monkeypatch.setattr(cuda_harness, "of_ptx", of_ptx)
    check(LATE[name], {}, shift, partial(cuda_harness.run, machine=HOPPER))


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", LATE)
def test_the_next_starts_when_a_thread_asks_for_no_more(monkeypatch, name, shift):
    spec, said, blocks = LATE[name], set(), set()
    reads, checked = len(spec.inputs), dependence.check
    threads = find(spec.op, "cuda").launch_on(spec, HOPPER).block[0]

    def say(grid, mask):
        lanes = grid.lane[mask]
        said.update(lanes.tolist())
        blocks.update((lanes // threads).tolist())

    def access(grid, lane, region):
        for thread, buffer in zip(lane.tolist(), region.tolist(), strict=True):
            assert buffer >= reads or thread not in said, "it asks for more"
            if reads <= buffer < len(spec.buffers):
                assert thread // threads in blocks, "it writes, and has not said so"
                writers.add(thread // threads)
        checked(grid, lane, region)

    writers = set()
    monkeypatch.setattr(cuda_harness, "keeps", False)
    monkeypatch.setattr(dependence, "launch_dependents", say)
    monkeypatch.setattr(dependence, "check", access)
    check(spec, {}, shift, partial(cuda_harness.run, machine=HOPPER))
    assert writers


def test_others_let_it_start_at_once():
    text = to_ptx(product("bfloat16", 300, 40, 520, True), HOPPER)
    assert text.index("griddepcontrol.launch_dependents") < text.index("griddepcontrol.wait")


def test_a_wait_that_comes_late_is_caught(monkeypatch):
    wait = _overlap.wait
    monkeypatch.setattr(cuda_harness, "keeps", False)
    monkeypatch.setattr(_overlap, "wait", lambda: None)
    monkeypatch.setattr(_overlap, "let_next_start", wait)
    with pytest.raises(EmulatorError, match=r"before griddepcontrol\.wait"):
        check(LATE["4 bits"], {}, 0, partial(cuda_harness.run, machine=HOPPER))
