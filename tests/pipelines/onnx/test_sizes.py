"""Sizes of ONNX files: names, ranges, and what is computed of them while a file is read."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_texts import TWO, computed, imported, ops_of, parsed, types

from heddle.graph import reference
from heddle.pipelines.onnx import file, importer, load
from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape, np.float32)


def test_a_size_without_a_name_gets_one():
    found = imported("m (float[?, batch, 2] x) => (float[?, batch, 2] y) { y = Relu(x) }")
    assert types(found) == ["float32[x_0, batch, 2] on cpu:0"]


def named(*dims):
    """A model of one input whose sizes have these names, which the text form cannot write."""
    model = parsed("m (float[a, b] x, float[c] z) => (float[a, b] y) { y = Relu(x) }")
    rows = [*model.graph.input[0].type.tensor_type.shape.dim]
    rows += model.graph.input[1].type.tensor_type.shape.dim
    for row, name in zip(rows, dims, strict=True):
        row.dim_param = name
    return model


@pytest.mark.parametrize(
    ("dims", "wanted"),
    [
        (("past", "new", "past + new"), ["float32[past, new]", "float32[new + past]"]),
        (("a.b", "n", "n"), ["float32[a_b, n]", "float32[n]"]),
        (("2x", "n", "other + n"), ["float32[_2x, n]", "float32[other_n]"]),
    ],
)
def test_names_that_are_formulas_or_no_names(tmp_path, dims, wanted):
    onnx.save(named(*dims), tmp_path / "m.onnx")
    assert types(load(tmp_path / "m.onnx")) == [f"{type} on cpu:0" for type in wanted]


@pytest.mark.parametrize(
    ("dims", "wanted", "ranges"),
    [
        ({"a": 4}, "float32[4, b]", {"b": (1, 2**31 - 1)}),
        ({"a": (0, 8)}, "float32[a, b]", {"a": (0, 8), "b": (1, 2**31 - 1)}),
        ({"a": "b", "b": (2, 3)}, "float32[b, b]", {"b": (2, 3)}),
    ],
)
def test_dims_say_what_sizes_are(dims, wanted, ranges):
    found = imported(TWO, dims=dims)
    assert types(found) == [f"{wanted} on cpu:0"] * 2
    assert found.graph.symbols == ranges


def test_shapes_replace_those_of_the_file():
    found = imported(TWO, shapes={"x": ["n", 8], "z": ["n", 8]})
    assert types(found) == ["float32[n, 8] on cpu:0"] * 2


def test_a_table_of_positions_narrows_the_sequence():
    text = """m (int64[batch, sequence] ids) => (float[batch, sequence, 4] y)
    <float[512, 4] table, float[9, 4] words> {
        shape = Shape(ids)
        one = Constant <value_ints = [1]> ()
        zero = Constant <value_ints = [0]> ()
        end = Gather(shape, one)
        positions = Slice(table, zero, end, zero)
        x = Gather(words, ids)
        y = Add(x, positions)
    }"""
    model = parsed(text)
    table, words = floats(512, 4), floats(9, 4)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    model.graph.initializer.append(numpy_helper.from_array(words, "words"))
    found = importer.build(file.checked(model, "m"), "m", "m", {"sequence": (3, 1000)})
    assert found.graph.symbols["sequence"] == (3, 512)
    assert found.weights.keys() == {"table", "words"}
    ids = RNG.integers(0, 9, (2, 5))
    (y,) = reference.evaluate(found.graph, [ids], found.weights)
    np.testing.assert_array_equal(y, words[ids] + table[:5])


SPLIT = """m (float[batch, sequence, 12] x) => (float[batch, sequence, 12] y) {
    shape = Shape(x)
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    batch = Gather(shape, zero)
    sequence = Gather(shape, one)
    heads = Constant <value_int = 3> ()
    size = Constant <value_int = -1> ()
    axes = Constant <value_ints = [0]> ()
    a = Unsqueeze(batch, axes)
    b = Unsqueeze(sequence, axes)
    c = Unsqueeze(heads, axes)
    d = Unsqueeze(size, axes)
    wanted = Concat <axis = 0> (a, b, c, d)
    split = Reshape(x, wanted)
    turned = Transpose <perm = [0, 2, 1, 3]> (split)
    back = Transpose <perm = [0, 2, 1, 3]> (turned)
    y = Reshape(back, shape)
}"""


def test_shapes_are_computed_while_the_file_is_read():
    found = imported(SPLIT)
    assert ops_of(found) == ["reshape", "transpose", "transpose", "reshape"]
    x = floats(2, 5, 12)
    np.testing.assert_array_equal(computed(SPLIT, x)[0], x)


def test_a_size_may_be_a_number_of_the_run():
    text = """m (float[n, 4] x) => (float[4] y, int64[2] s) {
        s = Shape(x)
        axes = Constant <value_ints = [0]> ()
        zero = Constant <value_int = 0> ()
        n = Gather(s, zero)
        count = Cast <to = 1> (n)
        total = ReduceSum <keepdims = 0> (x, axes)
        y = Div(total, count)
    }"""
    x = floats(3, 4)
    y, shape = computed(text, x)
    np.testing.assert_allclose(y, x.mean(0), rtol=1e-6)
    assert shape.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("r = Add(n, two)", lambda n: n + 2),
        ("r = Sub(n, two)", lambda n: n - 2),
        ("r = Mul(n, two)", lambda n: n * 2),
        ("r = Div(n, two)", lambda n: n // 2),
        ("r = Min(n, two)", lambda n: min(n, 2)),
        ("r = Max(n, two, n)", lambda n: max(n, 2)),
        ("e = Equal(n, minus) r = Where(e, two, n)", lambda n: n),
    ],
)
@pytest.mark.parametrize("n", [2, 5])
def test_sizes_that_are_computed(formula, wanted, n):
    text = f"""m (float[n] x) => (float[r] y) {{
        s = Shape(x)
        zero = Constant <value_int = 0> ()
        two = Constant <value_ints = [2]> ()
        minus = Constant <value_ints = [-1]> ()
        n = Slice(s, zeros, ones)
        {formula}
        one = Constant <value_float = 1.0> ()
        y = Expand(one, r)
    }}""".replace(
        "zero = Constant <value_int = 0> ()",
        """zeros = Constant <value_ints = [0]> ()
        ones = Constant <value_ints = [1]> ()""",
    )
    (y,) = computed(text, floats(n), dims={"n": (2, 9)})
    assert y.shape == (wanted(n),)


def test_a_triangle_behind_a_past():
    text = """m (float[p, 2] past, float[t, 2] x) => (float[a, b] y) {
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        none = Constant <value_float = -inf> ()
        of_past = Shape(past)
        of_x = Shape(x)
        p = Gather(of_past, zero)
        t = Gather(of_x, zero)
        all = Add(p, t)
        shape = Concat <axis = 0> (t, all)
        full = Expand(none, shape)
        next = Add(p, one)
        k = Squeeze(next, zero)
        y = Trilu <upper = 1> (full, k)
    }""".replace("-inf", "-1e30")
    past, x = floats(3, 2), floats(2, 2)
    (y,) = computed(text, past, x, dims={"p": (0, 9)})
    np.testing.assert_array_equal(y < -1, np.arange(5) >= np.arange(4, 6)[:, None])


SHAPELESS = "m (float[] x, float[3] z) => (float[] y) { y = Add(x, z) }"
"""No brackets would be a scalar, empty ones tell no shape."""


def test_an_input_whose_shape_the_file_does_not_tell():
    x = np.ones((2, 3), np.float32)
    (y,) = computed(SHAPELESS, x, x[0], shapes={"x": ["n", 3]})
    assert y.tolist() == [[2, 2, 2], [2, 2, 2]]
    with pytest.raises(GraphError, match=r"input 'x': wanted its shape, .*--shape x="):
        imported(SHAPELESS)
    scalar = imported("m (float x, float[3] z) => (float[] y) { y = Add(x, z) }")
    assert types(scalar)[0] == "float32[] on cpu:0"


@pytest.mark.parametrize("types", ["float[] x, float[3] z", "float[2, 3] x, float[3] z"])
def test_nodes_are_checked_where_a_shape_is_missing(types):
    with pytest.raises(GraphError, match=r"wanted a valid ONNX model: .*bogus"):
        imported(f"m ({types}) => (float[] y) {{ y = Add <bogus = 1> (x, z) }}")
