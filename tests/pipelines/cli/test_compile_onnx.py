"""`heddle compile model.onnx`."""

import json

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from heddle.runtime import Artifact

TEXT = """<ir_version: 10, opset_import: ["": 20]>
layer (float[rows, 4] x, float[more, 4] z) => (float[rows, 3] y) {
    sum = Add(x, z)
    product = MatMul(sum, w)
    y = Relu(product)
}"""


@pytest.fixture
def layer(tmp_path, monkeypatch):
    """The file of a layer, and its weight."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(TEXT)
    w = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(model, tmp_path / "layer.onnx")
    return w


def test_a_file_becomes_an_artifact_with_its_weights(heddle, layer):
    options = ("--dim", "rows=2:9", "--dim", "more=rows")
    heddle("compile", "layer.onnx", "-t", "cpu:native", *options)
    artifact = Artifact.load("layer.heddle")
    assert [row["name"] for row in artifact.inputs] == ["x", "z"]
    assert [row["embedded"] for row in artifact.weights] == [True]
    x = np.ones((5, 4), np.float32)
    np.save("x.npy", x)
    run = heddle(
        "run", "layer.heddle", "--input", "x=x.npy", "--input", "z=x.npy", "--output", "y.npz"
    )
    assert "float32 [5, 3]" in run.stdout
    np.testing.assert_allclose(np.load("y.npz")["y"], np.maximum(2 * x @ layer, 0), rtol=1e-5)


def test_shapes_of_inputs(heddle, layer):
    shapes = ("--shape", "x=n,4", "--shape", "z=n, 4")
    heddle("compile", "layer.onnx", "-t", "cpu:native", *shapes, "--json")
    symbols = Artifact.load("layer.heddle").symbols
    assert [row["name"] for row in symbols] == ["n"]


def test_sizes_that_differ_are_an_error_of_the_node(heddle, layer):
    result = heddle("compile", "layer.onnx", code=1)
    assert result.stderr.startswith("error: layer.onnx:1: Add 'sum': add: ")


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (
            ("--dim", "rows"),
            2,
            "--dim: wanted NAME=SIZE, NAME=LEAST:MOST or NAME=OTHER, got 'rows'",
        ),
        (("--dim", "rows=-1"), 2, "--dim: wanted NAME=SIZE, NAME=LEAST:MOST or NAME=OTHER"),
        (
            ("--dim", "rows=1", "--dim", "rows=2"),
            2,
            "--dim rows: wanted it once, got 'rows=2', too",
        ),
        (("--shape", "x=2,,3"), 2, "--shape: wanted INPUT=SIZE,SIZE, got 'x=2,,3'"),
        (("--dim", "rows=9:2"), 1, "layer.onnx: dim rows: wanted 0 <= minimum <= maximum"),
        (("--dim", "depth=9"), 1, "layer.onnx: dims: wanted one of the model's (more, rows)"),
        (("--shape", "q=9"), 1, "layer.onnx: shapes: wanted one of x, z, got 'q'"),
        (
            ("--dtype", "bfloat16"),
            2,
            "--dtype: wanted minilm or a model's folder, got 'layer.onnx'",
        ),
        (("--quantize", "int8"), 2, "--quantize: wanted minilm or a model's folder"),
        (("--weights", "layer.onnx"), 2, "--weights: wanted a source without its own"),
    ],
)
def test_options_that_are_refused(heddle, layer, options, status, message):
    more = () if "(more" in message else ("--dim", "more=rows")
    result = heddle("compile", "layer.onnx", *options, *more, code=status)
    assert message in " ".join(result.stderr.split())


def test_sizes_are_for_onnx_files(heddle, layer):
    result = heddle("compile", "minilm", "--dim", "rows=3", code=2)
    assert "--dim: wanted an ONNX file, got 'minilm'" in result.stderr


def test_a_summary(heddle, layer):
    shapes = ("--shape", "x=2,4", "--shape", "z=2,4")
    result = heddle("compile", "layer.onnx", "-t", "cpu:native", *shapes, "--json")
    assert json.loads(result.stdout)["artifact"] == "layer.heddle"
