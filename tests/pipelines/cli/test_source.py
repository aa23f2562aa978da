"""`heddle compile FILE.py:FUNCTION`: a user's file is run as Python itself would run it."""

import json
import sys

import pytest

from heddle.runtime import Artifact
from heddle.runtime.errors import CompileError

GRAPH = """
from heddle.graph import DType, Graph, TensorType

def line(size):
    with Graph("line", [TensorType(DType.float32, [size])]) as graph:
        graph.output(graph.inputs[0] + 1)
    return graph
"""

MODEL = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from beside import line

@dataclass
class Sizes:
    width: int = 3
    depth: ClassVar[int] = 4

def build():
    import beside
    return beside.line(Sizes().width)
"""


@pytest.fixture
def compiled(heddle, tmp_path, monkeypatch):
    """Compiles `build` of a file with this text; the working folder is another one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "beside.py").write_text(GRAPH)
    sys.modules.pop("beside", None)

    def call(text, name="a_model", debug=(), **options):
        (folder / f"{name}.py").write_text(text)
        source = f"models/{name}.py:build"
        return heddle(*debug, "compile", source, "-t", "cpu:native", "-o", "out", **options)

    return call


@pytest.mark.parametrize("name", ["a_model", "json"])
def test_a_file_with_a_dataclass_and_another_file_beside_it(compiled, name):
    paths, modules = sys.path[:], {**sys.modules}
    compiled(MODEL, name)
    assert [row["shape"] for row in Artifact.load("out").inputs] == [[3]]
    assert sys.path == paths
    assert sys.modules.get(name) is modules.get(name)
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("{}['missing']", "KeyError: 'missing'"),
        ("assert not 1", "AssertionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("open('none')", "FileNotFoundError: [Errno 2] No such file or directory: 'none'"),
    ],
)
@pytest.mark.parametrize("text", ["def build():\n    {}\n", "if True:\n    {}\n"])
def test_what_the_code_raises_is_one_sentence_with_its_line(compiled, text, code, message):
    """In the function as at the file's own level, where the file's path is a relative one, too."""
    result = compiled(text.format(code), code=1)
    assert result.stderr == f"error: models/a_model.py:2: {message}\n"
    assert "a_model" not in sys.modules
    result = compiled(text.format(code), debug=("--debug",), code=1)
    assert isinstance(result.exception, CompileError)
    assert result.exception.__cause__ is not None


def test_an_error_of_heddle_stays_as_it_is(compiled, tmp_path):
    result = compiled("from beside import line\ndef build():\n    line(1.5)\n", code=1)
    place = f"{tmp_path}/models/beside.py:5"
    assert result.stderr == f"error: {place}: dim: wanted an int, a name or a Dim, got 1.5\n"
