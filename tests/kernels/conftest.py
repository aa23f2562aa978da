import sys
from pathlib import Path

import pytest

# What the kernels' tests share lies beside this file.
if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))

import kept


@pytest.fixture(scope="session", autouse=True)
def keep_what_tools_make():
    with pytest.MonkeyPatch.context() as patch:
        kept.install(patch)
        yield


@pytest.fixture
def live_tools(monkeypatch):
    """LLVM and the assemblers run, whatever is kept."""
    monkeypatch.setattr(kept, "enabled", False)
