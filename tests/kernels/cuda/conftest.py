import sys
from pathlib import Path

import pytest

# The emulator lies beside the tests.
if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))

import cuda_harness

from heddle.kernels.cuda.flash import split
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES


@pytest.fixture(autouse=True)
def kernels_are_built_under_their_patches(request):
    cuda_harness.keeps = "monkeypatch" not in request.fixturenames


@pytest.fixture
def in_a_context():
    """For a test that builds operations itself."""
    with context(), ir.Location.unknown():
        yield


@pytest.fixture
def on_hopper(monkeypatch):
    """Kernels are those of sm_90a, unless a call says otherwise."""
    monkeypatch.setattr(cuda_harness, "MACHINE", MACHINES["sm_90a"])


@pytest.fixture
def short_parts(monkeypatch):
    """Parts of one stage of 64 keys, as far as eight of them for all sequences go."""
    monkeypatch.setattr(split, "LEAST", 1)
    monkeypatch.setattr(split, "BLOCKS", 8)
