"""The runtime works where there is no compiler."""

import subprocess
import sys
from pathlib import Path

from heddle.runtime import _core


def test_the_runtime_needs_no_compiler(make, tmp_path):
    make("double").save(tmp_path / "m.heddle")
    script = """
import sys
for name in ("torch_mlir", "mlir", "llvmlite", "elftools", "heddle.graph", "heddle.kernels"):
    sys.modules[name] = None
import numpy as np
from heddle.runtime import InferenceSession
model = InferenceSession(threads=1).load(sys.argv[1])
assert model.execute(np.ones(3, np.float32))[0].to_numpy().tolist() == [2, 2, 2]
"""
    command = [sys.executable, "-W", "error", "-c", script, tmp_path / "m.heddle"]
    subprocess.run(command, check=True)


def test_importing_the_runtime_imports_nothing_slow():
    # dataclasses, with the classes that they would make, would double the time of the import.
    script = """
import sys
before = set(sys.modules)
import heddle.runtime
print({"numpy", "dataclasses", "pathlib"} & (set(sys.modules) - before))
"""
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "set()\n"


def test_the_stub_names_what_is_there():
    stub = (Path(__file__).parents[2] / "runtime" / "_core.pyi").read_text()
    public = {name: value for name, value in vars(_core).items() if not name.startswith("_")}
    assert "Buffer" in public
    for name, value in public.items():
        assert f"def {name}(" in stub or f"class {name}:" in stub, name
        members = vars(value) if isinstance(value, type) else ()
        for member in (member for member in members if not member.startswith("_")):
            assert f"def {member}(" in stub, (name, member)
