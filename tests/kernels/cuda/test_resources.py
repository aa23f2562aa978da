"""Every CUDA kernel assembles for both architectures, without spilling a register."""

import cuda_cases as cases
import pytest
import wgmma_registers
from assembler import check_no_spills, needs_ptxas
from cuda_resources import ARCHS, DOCUMENT, HEAD, TABLE, line, texts_of

from heddle.graph.compiler.codegen import ptx

VERSION = {"sm_80": "8.0", "sm_90a": "8.4"}
VECTORS = ("map", "reduce rows", "reduce columns", "concat", "slice", "gather", "softmax")
VECTORS += ("layer_norm", "rms_norm", "matmul", "attention")


@pytest.mark.parametrize("name", TABLE)
def test_a_kernel_is_complete_and_the_document_tells_its_resources(name):
    texts = texts_of(TABLE[name])
    for text in texts:
        wgmma_registers.check(text)
    if name in cases.ALL and name.endswith("float32"):
        for arch, text in zip(ARCHS, texts, strict=True):
            check_complete(text, arch)
        if name.removesuffix(", float32") in VECTORS:
            assert "ld.global.v4.b32" in texts[1], "wanted 16 bytes moved at once"
    if not ptx.find_ptxas():
        pytest.skip("ptxas is not installed, whose numbers the table has")
    found = line(name, TABLE[name], texts)
    assert found.split(" | ")[3] == "0", f"spills: {found}"
    assert found in DOCUMENT.read_text().splitlines(), (
        f"docs/cuda/resources.md: wanted {found!r}; run python tests/kernels/cuda/cuda_resources.py"
    )


def check_complete(text, arch):
    assert f".version {VERSION[arch]}\n.target {arch}\n" in text
    assert text.count(".visible .entry heddle_") == 1
    assert ".reqntid" in text
    assert "ld.global" in text
    # Nothing is called (libdevice, printf), and no array lives in local memory.
    assert not any(word in text for word in (".extern", "call", ".local", ".approx", ".ftz"))


def test_document_has_a_line_for_each_kernel():
    text = DOCUMENT.read_text()
    assert text.startswith(HEAD)
    names = [row.split(" | ")[0].removeprefix("| ") for row in text[len(HEAD) :].splitlines()]
    assert names == list(TABLE)


@needs_ptxas
@pytest.mark.parametrize("name", [name for name in cases.FUSED if name.endswith("float32")])
def test_fused_kernels_spill_nothing(name):
    for arch in ARCHS:
        check_no_spills(cases.FUSED[name], arch)
