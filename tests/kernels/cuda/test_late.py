"""Products of few rows let the next kernel start when they ask for nothing more (sm_90a)."""

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
from heddle.kernels.registry import MACHINES

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


@pytest.mark.parametrize("name", LATE)
def test_the_next_starts_behind_the_last_product(name):
    text = to_ptx(LATE[name], HOPPER)
    wait, start = (text.index(f"griddepcontrol.{word}") for word in ("wait", "launch_dependents"))
    products = [found.start() for found in re.finditer(r"\bw?g?mma(\.mma_async)?\.sync", text)]
    copies = [found.start() for found in re.finditer(r"cp\.async\.c|ld\.global|tensor\.", text)]
    assert wait < min(copies)
    assert max(products) < start < text.index("st.global")


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
