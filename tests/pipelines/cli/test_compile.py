"""`heddle compile`."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from heddle.runtime import Artifact, config

SOURCES = "'minilm', a folder, FILE.gguf, FILE.onnx or FILE.py:FUNCTION"

MODEL = """
from heddle.graph import Dim, DType, Graph, TensorType, Weight

def build():
    x = TensorType(DType.float32, (Dim("n", 1, 9), 4))
    with Graph("line", [x], input_names=["x"]) as graph:
        w = graph.add_weight(Weight("w", DType.float32, (4,)))
        graph.output(graph.inputs[0] * w + 1)
    return graph

def wrong():
    return 3

def sized(n):
    return n

value = 4
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A Python file with a graph, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line.py").write_text(MODEL)
    save_file({"v": np.zeros(4, np.float32)}, tmp_path / "other.safetensors")
    return tmp_path / "line.py"


def test_a_function_of_a_file(heddle, source):
    result = heddle("compile", f"{source}:build", "-t", "cpu:native")
    assert "line.heddle" in result.stdout
    artifact = Artifact.load(source.with_name("line.heddle"))
    assert artifact.name == "line"
    assert [row["name"] for row in artifact.weights] == ["w"]
    assert [row["target"] for row in artifact.requirements] == ["cpu"]


def test_a_checkpoint_with_its_weights(heddle, tiny, tmp_path):
    path = tmp_path / "out.heddle"
    result = heddle("compile", tiny, "-t", "cpu:native", "--embed-weights", "-o", path, "--json")
    report = json.loads(result.stdout)
    assert report["artifact"] == str(path)
    assert report["bytes"] == path.stat().st_size
    weights = Artifact.load(path).weights
    assert all(row["embedded"] and row["sha256"] for row in weights)
    assert not [row for row in weights if "pooler" in row["name"]]


def test_a_checkpoint_in_bfloat16(heddle, tiny, tmp_path):
    path = tmp_path / "out.heddle"
    heddle("compile", tiny, "-t", "cpu:native", "--dtype", "bfloat16", "-o", path)
    artifact = Artifact.load(path)
    assert {row["dtype"] for row in artifact.weights} == {"float32"}
    (program,) = artifact.programs
    assert any("cast" in step["label"] for step in program["init"]["instructions"])


def test_targets_may_be_repeated(heddle, source):
    heddle("compile", f"{source}:build", "-t", "cpu:x86-64-v3", "-t", "cuda:sm_90a", "-o", "two")
    needs = Artifact.load("two").requirements
    assert [(row["target"], set(row["any_of"])) for row in needs] == [
        ("cpu", {"x86-64-v3"}),
        ("cuda", {"sm_90a", "sm_90a (ptx)"}),
    ]


def test_stop_after_prints_the_module_and_writes_nothing(heddle, source):
    text = heddle("compile", f"{source}:build", "--stop-after", "fuse").stdout
    assert text.startswith("module @line")
    assert "heddle.fused" in text
    assert not source.with_name("line.heddle").exists()


def test_dump_writes_the_module_after_each_pass(heddle, source, tmp_path, monkeypatch):
    monkeypatch.setenv("HEDDLE_DUMP", "")  # so that it is restored afterwards
    folder = tmp_path / "dump"
    heddle("compile", f"{source}:build", "--stop-after", "fuse", "--dump", folder)
    assert config.get("HEDDLE_DUMP") == str(folder)
    names = [path.name for path in sorted(folder.rglob("*.mlir"))]
    assert names[0].endswith("input.mlir")
    assert names[-1].endswith("fuse.mlir")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["nope"],
            1,
            f"model 'nope': wanted {SOURCES}, found no such folder\n",
        ),
        (
            ["line.py"],
            1,
            f"model 'line.py': wanted {SOURCES}, found a file\n",
        ),
        (["nope.py:build"], 1, "nope.py: wanted a Python file, found none"),
        (["line.py:missing"], 1, "line.py: wanted a function named 'missing', found none"),
        (["line.py:value"], 1, "line.py: wanted a function named 'value', found none"),
        (["line.py:wrong"], 1, "line.py:wrong: wanted a function that returns a Graph, got int"),
        (
            ["line.py:sized"],
            1,
            "line.py:sized: wanted a function without arguments, got sized(n): missing a required",
        ),
        (["line.py:build", "--dtype", "bfloat16"], 2, "--dtype: wanted minilm or a model's folder"),
        (["line.py:build", "-t", "tpu"], 2, "target 'tpu': wanted one of cpu"),
        (["line.py:build", "--stop-after", "nope"], 2, "stop_after: wanted one of canonicalize"),
        (["line.py:build", "--stop-after", "fuse", "-o", "x"], 2, "-o: wanted no --stop-after"),
        (["line.py:build", "--stop-after", "fuse", "--json"], 2, "--json: wanted no --stop-after"),
        (
            ["line.py:build", "--weights", "none"],
            1,
            "none: cannot be read: No such file",
        ),
        (["line.py:build", "-o", "no/such/folder"], 1, "no/such/folder"),
        (
            ["line.py:build", "--embed-weights"],
            2,
            "--embed-weights: wanted --weights with those of line.py:build, got none",
        ),
        (
            ["line.py:build", "--weights", "other.safetensors"],
            1,
            "other.safetensors: wanted the weight w, got none of that name",
        ),
    ],
)
def test_what_is_wrong_is_said(heddle, source, arguments, code, message):
    result = heddle("compile", *arguments, code=code)
    assert message in result.stderr
    assert not source.with_name("line.heddle").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\nimport none_such\n", "2: ModuleNotFoundError: No module named 'none_such'"),
        ("x = 1\n\nif x:\n", "3: IndentationError: expected an indented block"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "2: ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_in_the_file_is_placed(heddle, source, code, message):
    source.write_text(code)
    result = heddle("compile", f"{source}:build", code=1)
    assert result.stderr.startswith(f"error: {source}:{message}")
    assert result.stderr.count("\n") == 1
