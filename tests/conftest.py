"""What tests of all folders have in common.

The garbage collector looks at what tests make, not again and again at what stays: with its defaults
it takes a fifth of the time of tests that run in Python.
"""

import gc
import importlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


def pytest_configure():
    gc.set_threshold(20_000)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def script():
    """Imports scripts of benchmarks/ by name, as they import each other."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    try:
        yield importlib.import_module
    finally:
        sys.path.pop(0)
