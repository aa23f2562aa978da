"""The rules of the house (docs/design.md): who may import whom, and what nobody may do."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("kernels", "graph", "runtime", "contexts", "pipelines")

MAY_IMPORT = {
    "kernels": ("kernels",),
    "graph": (
        "graph",
        "kernels",
        "runtime.artifact",
        "runtime.artifact_writer",
        "runtime.config",
        "runtime.errors",
        "runtime.masked",
        "runtime.narrow_floats",
    ),
    "runtime": ("runtime",),
    "contexts": ("contexts", "runtime"),
    "pipelines": ROOMS,
}

LONG_FILES_SAY_WHY = 320

LISTENS = ROOT / "pipelines" / "serving" / "server.py"
"""What has a socket; no file calls another machine."""


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import of {node.module}"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_they_may(room):
    allowed = tuple(f"heddle.{name}" for name in MAY_IMPORT[room])
    for path in sources(room):
        for name in imports(path):
            if name.split(".")[0] == "heddle":
                inside = any(name == a or name.startswith(a + ".") for a in allowed)
                # The compiler hands its bytes to the runtime; a graph is loadable on its own.
                handover = room == "graph" and name == "heddle.runtime.Artifact"
                assert inside or handover, f"{path.relative_to(ROOT)} imports {name}"


def test_mlir_comes_through_one_file():
    for path in sources(*ROOMS):
        if path != ROOT / "kernels" / "mlir.py":
            roots = {name.split(".")[0] for name in imports(path)}
            assert not roots & {"mlir", "torch_mlir"}, path


def test_environment_is_read_in_one_file():
    for path in sources(*ROOMS):
        if path != ROOT / "runtime" / "config.py":
            for node in ast.walk(ast.parse(path.read_text())):
                name = getattr(node, "attr", getattr(node, "id", None))
                assert name not in ("environ", "getenv"), f"{path}:{node.lineno}"


def test_no_pickle_eval_or_network():
    forbidden = ("pickle", "marshal", "shelve", "socket", "urllib.request", "http", "requests")
    for path in sources(*ROOMS):
        for name in imports(path):
            if path == LISTENS and name == "socket":
                continue
            assert not f"{name}.".startswith(tuple(f"{f}." for f in forbidden)), f"{path}: {name}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"


def test_files_stay_small():
    """About 300 lines is the habit; a longer file says why in its first lines ("Long because")."""
    paths = sources(*ROOMS, "tests", "benchmarks", "examples")
    paths += [path for end in ("*.cc", "*.h") for path in (ROOT / "runtime").rglob(end)]
    for path in paths:
        lines = path.read_text().splitlines()
        if len(lines) > LONG_FILES_SAY_WHY:
            assert "Long because" in "\n".join(lines[:20]), f"{path}: {len(lines)} lines"


def test_modules_that_tests_share_have_names_of_their_own():
    """All folders of tests are on the path at once; one of two would be found by both."""
    shared = [p for p in sources("tests") if not p.name.startswith(("test_", "conftest"))]
    counted = Counter(path.name for path in shared if any(path.parent.glob("test_*.py")))
    assert [name for name, count in counted.items() if count > 1] == []


def test_every_cuda_kernel_has_the_stem_of_its_op():
    """Same stem in each backend; packing and its matmul are how the CPU lays out weights."""
    cpu, cuda = ({p.stem for p in (ROOT / "kernels" / t).glob("*.py")} for t in ("cpu", "cuda"))
    packed = {"pack_b", "pack_int4", "round_rows"}
    packed |= {s for s in cpu if s.endswith("matmul_packed") or s.startswith("_")}
    assert cpu - cuda <= packed
    plain = {stem.removesuffix("_packed") for stem in packed}
    plain.add("float8_matmul")  # a CPU has no products of them: they become bfloat16
    assert cuda - cpu <= plain | {s for s in cuda if s.startswith("_")}


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlir", "torch_mlir", "llvmlite", "elftools"):
            raise ImportError(f"blocked: {name}")
sys.meta_path.insert(0, Block())
import heddle.runtime, heddle.contexts
assert not [name for name in sys.modules if name.startswith(("heddle.graph", "heddle.kernels"))]
"""


def test_runtime_and_contexts_need_no_compiler():
    subprocess.run([sys.executable, "-W", "error", "-c", BLOCKED], check=True, timeout=60)
