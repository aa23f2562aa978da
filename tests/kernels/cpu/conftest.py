import sys
from pathlib import Path

import pytest

# The harness lies beside the tests.
if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def products(monkeypatch):
    """The products of tiles that were emulated, in all calls: a kernel is also called for no task.

    They are in `amx_emulation.products`.
    """
    import amx_emulation

    class Products(list):
        def clear(self):
            pass

    monkeypatch.setattr(amx_emulation, "products", Products())


@pytest.fixture
def emitted_anew():
    """For a test that changes how kernels are emitted: no other one meets its code."""
    import native

    native.load.cache_clear()
    yield
    native.load.cache_clear()
