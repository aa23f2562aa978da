"""What a kit needs before it runs: its files, and the runtime built from this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def unpacked(kit: Path, folder: Path) -> Path:
    """The folder of a kit: `kit` itself, or `folder`, into which the file `kit` is unpacked."""
    if kit.is_dir():
        return kit
    shutil.unpack_archive(kit, folder, "xztar")
    return folder


def build(folder: Path, kit: Path) -> None:
    """Builds the runtime's extension, and puts `heddle` together in `folder`."""
    site = folder / "heddle"
    site.mkdir(parents=True, exist_ok=True)
    links = {site / room: ROOT / room for room in ("contexts", "pipelines")}
    links |= {site / "runtime" / p.name: p for p in (ROOT / "runtime").glob("*.py*")}
    (site / "runtime").mkdir(exist_ok=True)
    for link, source in links.items():
        link.unlink(missing_ok=True)
        link.symlink_to(source)
    made = folder / "cmake"
    options = ["-DHEDDLE_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    options.append(f"-Dnanobind_DIR={kit.resolve() / 'nanobind' / 'cmake'}")
    cmake = shutil.which("cmake") or Path(sys.executable).with_name("cmake")
    subprocess.run([cmake, "-S", ROOT, "-B", made, *options], check=True)
    subprocess.run([cmake, "--build", made, "--parallel"], check=True)
    extension = next(made.glob("_core*.so"))
    (site / "runtime" / extension.name).write_bytes(extension.read_bytes())


def use(folder: Path) -> None:
    """Makes the `heddle` that was built in `folder` the one that is imported."""
    sys.path.insert(0, str(folder))
