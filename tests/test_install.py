"""What a machine that only runs models has to install."""

from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

BYTES = 5_000_000


def test_running_needs_numpy_alone():
    needed = [line for line in requires("heddle") or () if "extra ==" not in line]
    assert [line[:5] for line in needed] == ["numpy"], needed


def test_the_runtime_and_the_contexts_are_small():
    size = 0
    for room in ("runtime", "contexts"):
        folder = Path(find_spec(f"heddle.{room}").origin).parent
        size += sum(path.stat().st_size for path in folder.rglob("*.py"))
    size += Path(find_spec("heddle.runtime._core").origin).stat().st_size
    assert 0 < 2 * size < BYTES  # Twice: bytecode is about as large as its source.
