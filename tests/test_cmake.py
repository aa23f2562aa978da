"""The C++ library in projects of others, as docs/runtime.md shows it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "runtime.md").read_text()
INSTALLED_BYTES = 3_000_000

CMAKE = shutil.which("cmake") or shutil.which("cmake", path=Path(sys.executable).parent)
pytestmark = pytest.mark.skipif(
    not (CMAKE and shutil.which("c++") and shutil.which("make")), reason="needs CMake and C++"
)


def block(language: str) -> str:
    """The first block of the page in `language`."""
    return re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]


def cmake(*arguments: object) -> None:
    done = subprocess.run([CMAKE, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def build(project: Path, lists: str, *options: str) -> Path:
    """A build of the page's program by `lists`."""
    project.mkdir()
    (project / "CMakeLists.txt").write_text(lists)
    (project / "layer.cc").write_text(block("cpp"))
    made = project / "build"
    cmake("-S", project, "-B", made, "-G", "Unix Makefiles", *options)
    cmake("--build", made, "--parallel", "2")
    return made


def run(program: Path, folder: Path) -> str:
    return subprocess.run(
        [program], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_page_s_program_as_a_subdirectory_and_as_a_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    exec(compile(block("python"), "runtime.md", "exec"), names)
    save_file(names["weights"], "layer.safetensors")
    value = f"{names['y'].to_numpy()[0, 0]:.6f}"
    wanted = f"[3, 32]: {value}, again {value}\n"

    package = block("cmake")
    inside = f'set(HEDDLE_INSTALL ON)\nadd_subdirectory("{ROOT}" heddle)'
    subdirectory = package.replace("find_package(heddle REQUIRED)", inside)
    assert inside in subdirectory
    # Without optimization: to build the library is what takes the time here.
    made = build(tmp_path / "subdirectory", subdirectory, "-DCMAKE_BUILD_TYPE=MinSizeRel")
    assert run(made / "layer", tmp_path) == wanted

    prefix = tmp_path / "prefix"
    cmake("--install", made / "heddle", "--prefix", prefix)
    files = [path for path in prefix.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < INSTALLED_BYTES
    assert {path.suffix for path in files} == {".a", ".h", ".cmake"}
    headers = {path.name for path in files if path.suffix == ".h"}
    assert headers == {path.name for path in (ROOT / "runtime/include/heddle").iterdir()}

    made = build(tmp_path / "package", package, f"-DCMAKE_PREFIX_PATH={prefix}")
    assert run(made / "layer", tmp_path) == wanted
