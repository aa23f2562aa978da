"""ONNX files as graphs: sizes, weights, what is known, and what is refused."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_texts import TWO, computed, imported, ops_of, parsed, types

from heddle.graph import DType, reference
from heddle.pipelines.onnx import file, importer, load
from heddle.runtime.errors import ArtifactError, GraphError

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape, np.float32)


def test_names_and_types_are_those_of_the_file():
    found = imported("m (float[batch, 8] x, int64[batch] n) => (float[batch, 8] y) { y = Relu(x) }")
    assert types(found) == ["float32[batch, 8] on cpu:0", "int64[batch] on cpu:0"]
    text = str(found.graph)
    assert 'heddle.name = "x"' in text
    assert 'heddle.name = "n"' in text
    assert 'heddle.outputs = ["y"]' in text


def test_one_entry_is_a_slice():
    text = """m (float[3, n] x) => (float[n] y, float[2, n] z)
    <int64 i = {-1}, int64[2] j = {2, -3}> { y = Gather(x, i)  z = Gather(x, j) }"""
    assert ops_of(imported(text)) == ["slice", "reshape", "gather"]
    x = floats(3, 4)
    y, z = computed(text, x)
    np.testing.assert_array_equal(y, x[-1])
    np.testing.assert_array_equal(z, x[[2, 0]])


def test_few_numbers_are_constants_and_many_floats_weights():
    found = imported(
        """m (float[2] x) => (float[2] y)
        <float[1] one = {1}, int64[2] n = {3, 4}, float[2] w = {1, 2}>
        { a = Add(x, one)  b = Cast <to = 1> (n)  c = Mul(a, b)  y = Mul(c, w) }"""
    )
    assert list(found.weights) == ["w"]
    assert found.weights["w"].tolist() == [1, 2]


def test_a_weight_that_an_operator_wants_to_know_is_known():
    text = """m (float[1, 2] x) => (float[1, 4] y) <float[2] scales = {1, 2}>
    { y = Resize <mode = "nearest", nearest_mode = "floor",
                  coordinate_transformation_mode = "asymmetric"> (x, , scales) }"""
    assert not imported(text).weights
    (y,) = computed(text, np.array([[1, 2]], np.float32))
    assert y.tolist() == [[1, 1, 2, 2]]


def test_what_no_output_needs_is_not_looked_at():
    found = imported(
        """m (float[2] x) => (float[2] y) { dead = NonZero(x)  more = Cast <to = 1> (dead)
        y = Relu(x) }"""
    )
    assert ops_of(found) == ["relu"]


BRANCHES = """m (float[2, n] x) => (float[k, n] y) <bool flag = {FLAG}> {
    y = If (flag) <
        then_branch = yes () => (float[k, n] a) { a = Relu(x) },
        else_branch = no () => (float[k, n] b) { c = Neg(x)  b = Abs(c) }
    >
}"""


@pytest.mark.parametrize(("flag", "wanted"), [(1, ["relu"]), (0, ["neg", "abs"])])
def test_a_branch_that_is_known_is_taken(flag, wanted):
    assert ops_of(imported(BRANCHES.replace("FLAG", str(flag)))) == wanted


def test_a_branch_that_is_not_known_is_refused():
    text = BRANCHES.replace("float[2, n] x)", "float[2, n] x, bool flag)")
    text = text.replace(" <bool flag = {FLAG}>", "")
    with pytest.raises(GraphError, match=r"^m.onnx:1: If 'y': wanted the condition known when"):
        imported(text)


def test_functions_of_the_model_and_of_onnx_are_replaced():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "own": 1]>
        m (float[n] x) => (float[n] y) { d = own.twice(x)  y = ThresholdedRelu <alpha = 1.5> (d) }
        <domain: "own", opset_import: ["": 21]> twice (a) => (b) { b = Add(a, a) }"""
    )
    found = importer.build(file.checked(model, "m"), "m", "m")
    (y,) = reference.evaluate(found.graph, [np.array([0.5, 1, 2], np.float32)])
    assert y.tolist() == [0, 2, 4]


def test_weights_beside_the_file(tmp_path):
    w = floats(16, 8)
    model = parsed(
        "m (float[n, 16] x) => (float[n, 8] y) { y = MatMul(x, w) }".replace(
            "{ y", "<float[16, 8] w> { y"
        )
    )
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    np.testing.assert_array_equal(load(tmp_path / "m.onnx").weights["w"], w)
    (tmp_path / "m.data").unlink()
    with pytest.raises((ArtifactError, GraphError), match=r"m\.data"):
        load(tmp_path / "m.onnx")


def test_initializers_that_are_listed_as_inputs_are_none():
    model = parsed("m (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(floats(2), "w"))
    found = importer.build(file.checked(model, "m"), "m", "m")
    assert types(found) == ["float32[2] on cpu:0"]
    assert list(found.weights) == ["w"]


def test_dtypes():
    text = "m (bfloat16[2] a, float8e4m3fn[2] b, double[2] c, bool[2] d) => (float16[2] y) {" + (
        "y = Cast <to = 10> (a) }"
    )
    found = imported(text)
    wanted = [DType.bfloat16, DType.float8_e4m3fn, DType.float64, DType.bool]
    assert [value.dtype for value in found.graph.inputs] == wanted


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        (
            "m (float[n] x) => (float[n] y) { y = NonZero(x) }",
            {},
            r"^m.onnx:1: NonZero 'y': Heddle cannot build this operator$",
        ),
        (
            "m (float[n] x, int64[1] s) => (float[k] y) { y = Reshape(x, s) }",
            {},
            r"^m.onnx:1: Reshape 'y': wanted the shape made of sizes, got what the model computes",
        ),
        (
            "m (float[n] x, int64[1] s) => (float[k] y) { a = Relu(x) y = Tile(a, s) }",
            {},
            r"^m.onnx:2: Tile 'y': wanted the repeats known when the file is read",
        ),
        (
            "m (float[a, 4] x, float[b, 4] z) => (float[a, 4] y) { y = Add(x, z) }",
            {},
            r"^m.onnx:1: Add 'y': add: ",
        ),
        (
            "m (string[n] x) => (string[n] y) { y = Identity(x) }",
            {},
            r"^m.onnx: input 'x': wanted a dtype of bool, .*, got string$",
        ),
        (
            "m (seq(float[n]) x) => (float[n] y) { i = Constant <value_int = 0> () "
            "y = SequenceAt(x, i) }",
            {},
            r"^m.onnx: input 'x': wanted a tensor, got sequence_type$",
        ),
        (TWO, {"dims": {"c": 3}}, r"^m.onnx: dims: wanted one of the model's \(a, b\), got 'c'$"),
        (TWO, {"shapes": {"q": [3]}}, r"^m.onnx: shapes: wanted one of x, z, got 'q'$"),
        (TWO, {"shapes": {"x": [3]}}, r"^m.onnx: input 'x': wanted 2 dims, got \[3\]$"),
        (
            "m (float[n] x) => (float[n] y) { y = Softmax <axis = 1> (x) }",
            {},
            r"^m.onnx:1: Softmax 'y': wanted an axis from -1 to 0, got 1$",
        ),
    ],
)
def test_what_is_refused(text, sizes, message):
    with pytest.raises(GraphError, match=message):
        imported(text, **sizes)


def test_outputs_may_have_no_rank():
    model = parsed("m (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    found = importer.build(file.checked(model, "m"), "m", "m")
    assert ops_of(found) == ["relu"]


def test_of_old_opsets_what_has_not_changed_is_built():
    text = "m (float[2] x, float[2] y) => (float[2] z) { w = Relu(x)  z = Add(w, y) }"
    with pytest.raises(GraphError, match=r"^m.onnx: Add: wanted opset 7 or newer, got 6$"):
        imported(text, opset=6)
    assert ops_of(imported("m (float[2] x) => (float[2] y) { y = Relu(x) }", opset=6)) == ["relu"]


def test_a_model_that_breaks_the_rules_is_refused():
    with pytest.raises(GraphError, match=r"^m.onnx: wanted a valid ONNX model: .*nothing"):
        imported("m (float[2] x) => (float[2] y) { y = Relu <nothing = 3> (x) }")
    with pytest.raises(GraphError, match=r"input 'z' of node: name: OpType: Add is not output of"):
        imported("m (float[2] x) => (float[2] y) { y = Add(x, z) }")


@pytest.mark.parametrize("content", [b"", b"\x08\x0a", b"no model at all"])
def test_a_file_of_something_else(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"m.onnx: wanted an ONNX model") as caught:
        load(path)
    assert caught.value.reason == "malformed"


def test_no_file(tmp_path):
    with pytest.raises(ArtifactError, match=r"m.onnx: no such file$") as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.reason == "not_found"


def test_the_package_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    import builtins

    real = builtins.__import__

    def missing(name, *rest):
        if name == "onnx":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        ModuleNotFoundError, match=r"package onnx, .*; pip install 'heddle\[onnx\]'"
    ):
        load(tmp_path / "m.onnx")
