import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import heddle.contexts

BLOCKED = ("torch_mlir", "mlir", "llvmlite", "cupy", "torch", "llguidance", "PIL", "msgspec")

PROGRAM = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocker())
import heddle.contexts
assert "numpy" not in sys.modules
import numpy
context = heddle.contexts.TextContext(max_length=9, tokens=numpy.array([1]))
context.update(2)
for name in ("TTSContext", "TextAndVisionContext", "PixelContext", "TextGenerationRequest"):
    getattr(heddle.contexts, name)
assert not [name for name in sys.modules if name.startswith("heddle.runtime")]
assert heddle.contexts.validate_only_one_image(context) is None
"""


def test_contexts_need_neither_a_compiler_nor_the_optional_packages():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_name_is_there():
    assert dir(heddle.contexts) == heddle.contexts.__all__
    for name in heddle.contexts.__all__:
        assert getattr(heddle.contexts, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        heddle.contexts.Nothing  # noqa: B018


def test_type_checkers_see_the_same_names():
    stub = ast.parse(Path(heddle.contexts.__file__).with_suffix(".pyi").read_text())
    names = [name for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert sorted(name.asname for name in names) == heddle.contexts.__all__
    for node in stub.body[1:]:
        for name in node.names:
            home = getattr(importlib.import_module(node.module), name.name)
            assert home is getattr(heddle.contexts, name.asname)
