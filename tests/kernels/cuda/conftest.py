import sys
from pathlib import Path

import pytest

# The emulator lies beside the tests.
if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))

import cuda_harness

from heddle.kernels.mlir import context, ir


@pytest.fixture(autouse=True)
def kernels_are_built_under_their_patches(request):
    cuda_harness.keeps = "monkeypatch" not in request.fixturenames


@pytest.fixture
def in_a_context():
    """For a test that builds operations itself."""
    with context(), ir.Location.unknown():
        yield
