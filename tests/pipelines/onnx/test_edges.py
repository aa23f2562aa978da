"""ONNX files at the edges of what the format allows: found by random models and broken files."""

import contextlib

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_texts import computed, imported, parsed

from heddle.graph import DType
from heddle.pipelines.onnx import file, importer, load
from heddle.runtime.errors import ArtifactError, GraphError

BIG = 2**63 - 1
X = np.arange(6, dtype=np.float32)


def built(model, **sizes):
    return importer.build(file.checked(model, "m.onnx"), "m", "m.onnx", **sizes)


@pytest.mark.parametrize("size", ["6", "n"])
@pytest.mark.parametrize(
    ("start", "end", "step", "wanted"),
    [
        (BIG, -BIG, 1, []),
        (0, -BIG, 1, []),
        (-BIG, BIG, 2, [0, 2, 4]),
        (BIG, -BIG, -1, [5, 4, 3, 2, 1, 0]),
        (-1, -BIG, -1, [5, 4, 3, 2, 1, 0]),
    ],
)
def test_ends_of_slices_lie_inside(size, start, end, step, wanted):
    text = f"""m (float[{size}] x) => (float[k] y)
    <int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] c = {{0}}, int64[1] d = {{{step}}}>
    {{ y = Slice(x, a, b, c, d) }}"""
    (y,) = computed(text, X)
    assert y.tolist() == wanted


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [(5, BIG, []), (3, -7, [3, 2, 1, 0]), (BIG, 2, [5, 4, 3]), (9, -9, [5, 4, 3, 2, 1, 0])],
)
def test_steps_back_of_a_known_size(start, end, wanted):
    text = f"""m (float[6] x) => (float[k] y)
    <int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] c = {{0}}, int64[1] d = {{-1}}>
    {{ y = Slice(x, a, b, c, d) }}"""
    assert computed(text, X)[0].tolist() == wanted


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        ("LpNormalization <axis = 0, p = 1>", [[0.25, 0.5], [0.75, 0.5]]),
        ("GlobalMaxPool", None),
        ("ReduceSumSquare <keepdims = 0>", 18),
    ],
)
def test_what_is_known_is_computed_as_the_model_would(operator, wanted):
    """ONNX's reference is wrong for these."""
    array = np.array([[1, 2], [3, 2]], np.float32)
    if wanted is None:
        array, wanted = array.reshape(1, 1, 2, 2, 1), [[[[[3]]]]]
    model = parsed(f"m (float[2] x) => (float[k] y) {{ y = {operator}(w) }}")
    model.graph.initializer.append(numpy_helper.from_array(array, "w"))
    from heddle.graph import reference

    (y,) = reference.evaluate(built(model).graph, [X[:2]])
    assert y.tolist() == wanted


def test_softmax_of_an_old_opset_that_is_known():
    text = "m (float[2] x) => (float[2, 2] y) <float[2, 2, 1] w = {1, 1, 1, 1}> { y = Softmax(w) }"
    assert computed(text, X[:2], opset=7)[0].ravel().tolist() == [0.5] * 4


@pytest.mark.parametrize(
    ("node", "wanted"), [("Unsqueeze <axes = [0]>", [[[3]]]), ("Squeeze <axes = [0]>", [3])]
)
def test_old_opsets_that_the_reference_gets_wrong(node, wanted):
    text = f"m (float[2] x) => (float[k] y) <float[1, 1] w = {{3}}> {{ y = {node} (w) }}"
    assert computed(text, X[:2], opset=11)[0].tolist() == wanted


@pytest.mark.parametrize(
    "formula", ["y = Identity(c)", "g = Gather(c, one)  y = Add(g, k)", "y = Add(c, k)"]
)
def test_sizes_keep_the_dtype_that_they_are_cast_to(formula):
    text = f"""m (float[n, 3] x) => (int32[k] y) <int32[1] k = {{1}}, int64[1] one = {{1}}> {{
        s = Shape(x)  c = Cast <to = 6> (s)  {formula} }}"""
    (y,) = computed(text, np.ones((2, 3), np.float32))
    assert y.dtype == np.int32


def test_a_range_of_sizes_has_their_dtype():
    text = """m (float[n] x) => (int32[n] y) <int32 a = {0}, int32 d = {1}> {
        s = Size(x)  c = Cast <to = 6> (s)  y = Range(a, c, d) }"""
    (y,) = computed(text, X)
    assert y.dtype == np.int32
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_shape_of_zero_keeps_the_size_also_of_sizes():
    text = "m (float[n, 3] x) => (int64[2] y) <int64[1] z = {0}> { s = Shape(x) y = Reshape(s, z) }"
    assert computed(text, np.ones((2, 3), np.float32))[0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("reverse = 1", [np.inf, 3, 2]),
        ("exclusive = 1", [0, np.inf, np.inf]),
        ("exclusive = 1, reverse = 1", [3, 2, 0]),
    ],
)
@pytest.mark.parametrize("size", ["3", "n"])
def test_cumulative_sums_subtract_nothing(flags, wanted, size):
    text = (
        f"m (float[{size}] x) => (float[3] y) <int64 a = {{0}}> {{ y = CumSum <{flags}> (x, a) }}"
    )
    (y,) = computed(text, np.array([np.inf, 1, 2], np.float32))
    assert y.tolist() == wanted


def test_an_exponent_of_more_axes():
    text = "m (float[2] x) => (float[1, 1, 2] y) <float[1, 1, 1] e = {2}> { y = Pow(x, e) }"
    assert computed(text, X[1:3])[0].tolist() == [[[1, 4]]]


def test_integer_powers_lose_their_fraction():
    text = "m (int32[1] x, float e) => (int32[1] y) { y = Pow(x, e) }"
    (y,) = computed(text, np.array([3], np.int32), np.array(0.5, np.float32))
    assert y.tolist() == [1]


def test_an_odd_output_shape_cuts_more_off_the_start():
    text = """m (float[1, 1, 2] x) => (float[1, 1, 2] y) <float[1, 1, 2] w = {1, 10}>
    { y = ConvTranspose <output_shape = [2]> (x, w) }"""
    (y,) = computed(text, np.array([[[1, 2]]], np.float32))
    assert y.tolist() == [[[12, 20]]]


def test_scales_are_divided_as_float32():
    text = """m (float[1, 7] x) => (float[1, 4] y) <float[2] s = {1, 0.6}>
    { y = Resize <mode = "nearest", nearest_mode = "floor",
                  coordinate_transformation_mode = "asymmetric"> (x, , s) }"""
    assert computed(text, np.arange(7, dtype=np.float32)[None])[0].tolist() == [[0, 1, 3, 5]]


def test_what_squeeze_removes_is_known():
    text = "m (float[n, 1] x) => (float[n] y) { y = Squeeze(x) }"
    with pytest.raises(GraphError, match=r"^m.onnx:1: Squeeze 'y': wanted axes, or sizes that"):
        imported(text)
    assert computed(text, np.ones((2, 1), np.float32), dims={"n": (2, 9)})[0].shape == (2,)


@pytest.mark.parametrize(
    ("inputs", "node", "opset", "given", "wanted"),
    [
        ("bool[3] x", "Pad(x, p)", 21, [True, True, True], [True, True, True, False]),
        ("int32[3] x", "Shrink <lambd = 1.5, bias = 1.0> (x)", 21, [-3, 1, 3], [-2, 0, 2]),
        ("uint8[3] x", "Mod <fmod = 1> (x, x)", 21, [3, 4, 5], [0, 0, 0]),
        ("float[3] x", "Clip <max = 1.0> (x)", 7, [0, 1, 2], [0, 1, 1]),
        ("float[n] x", "ArgMax <select_last_index = 1> (x)", 21, [2, 2, 1], [1]),
    ],
)
def test_what_was_refused(inputs, node, opset, given, wanted):
    text = f"m ({inputs}) => (float[k] y) <int64[2] p = {{0, 1}}> {{ y = {node} }}"
    dtype = {"b": bool, "i": np.int32, "u": np.uint8, "f": np.float32}[inputs[0]]
    assert computed(text, np.array(given, dtype), opset=opset)[0].tolist() == wanted


def test_a_lower_triangle_of_bools():
    text = "m (bool[2, 2] x) => (bool[2, 2] y) { y = Trilu <upper = 0> (x) }"
    assert computed(text, np.ones((2, 2), bool))[0].tolist() == [[True, False], [True, True]]


def test_names_of_sizes_that_are_cleaned_stay_apart():
    model = parsed("m (float[a] x, float[a_b] z, float[?] u) => (float[a] y) { y = Relu(x) }")
    names = [row.type.tensor_type.shape.dim[0] for row in model.graph.input]
    names[0].dim_param = "a.b"
    names[1].dim_param = "a_b"
    model.graph.input[0].name = model.graph.node[0].input[0] = "a"
    types = [str(value.type.shape) for value in built(model).graph.inputs]
    assert types == ["[a_b_]", "[a_b]", "[u_0]"]


@pytest.mark.parametrize(("name", "wanted"), [("-1", "_1"), ("class", "_class"), ("x_0", "x_0")])
def test_names_that_no_dim_can_have(name, wanted):
    model = parsed("m (float[a] z, float[?] x) => (float[a] y) { y = Relu(z) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    first, second = (str(value.type.shape) for value in built(model).graph.inputs)
    assert first == f"[{wanted}]"
    assert second != first


def test_a_size_of_another_name_is_narrowed_too():
    text = """m (float[n, 2] x) => (float[n, 2] y) <int64[1] z = {0}, int64[1] i = {0}> {
        s = Shape(x)  n = Gather(s, i)  part = Slice(table, z, n)  y = Add(x, part) }"""
    model = parsed(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((9, 2), np.float32), "table"))
    assert built(model, dims={"n": "rows"}).graph.symbols == {"rows": (1, 9)}


def test_many_elements_are_not_computed_while_a_file_is_read():
    text = """m (float[2] x) => (float[a] y) <int64[1] s = {1000000000000}> {
        c = ConstantOfShape(s)  y = Shape(c) }"""
    assert computed(text, X[:2])[0].tolist() == [10**12]


@pytest.mark.parametrize(
    ("text", "opset", "message"),
    [
        (
            "m (float[2, 3] x, float[3] s) => (float[2, 3] y, float[3] a) "
            "{ y, a, b, c, d = BatchNormalization(x, s, s, s, s) }",
            9,
            r"^m.onnx: wanted 'a', an output that Heddle does not build$",
        ),
        (
            "m (float[n, 3] x) => (float[k] y) <int64[1] i = {5}> "
            "{ s = Shape(x)  g = Gather(s, i)  y = Reshape(x, g) }",
            21,
            r"^m.onnx:2: Gather 'g': index 5 is out of bounds",
        ),
    ],
)
def test_errors_say_where(text, opset, message):
    with pytest.raises(GraphError, match=message):
        imported(text, opset)


def test_an_initializer_of_too_few_elements():
    model = parsed("m (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    model.graph.initializer[0].raw_data = b"1234"
    del model.graph.initializer[0].float_data[:]
    with pytest.raises(GraphError, match=r"m.onnx: .*"):
        built(model)


def test_an_input_of_no_dtype():
    model = parsed("m (float[2] x) => (float[2] y) { y = Add(x, x) }")
    model.graph.input[0].type.tensor_type.elem_type = 127
    with pytest.raises(GraphError, match=r"^m.onnx: .*127"):
        built(model)


def test_broken_files_are_refused(tmp_path):
    """Each is a graph or an error of Heddle: cut off, and with a byte changed."""
    text = """m (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}, int64[1] i = {0}> {
        s = Shape(x)  d = Gather(s, i)  t = Mul(x, w)  q = Slice(t, i, d)  y = Relu(q) }"""
    data, path = parsed(text).SerializeToString(), tmp_path / "m.onnx"
    rng = np.random.default_rng(0)
    changed = [data[:place] for place in range(0, len(data), 7)]
    for place in range(len(data)):
        byte = bytes([data[place] ^ int(rng.integers(1, 256))])
        changed.append(data[:place] + byte + data[place + 1 :])
    for content in changed:
        path.write_bytes(content)
        with contextlib.suppress(ArtifactError, GraphError):
            load(path)


def test_dropout_of_an_old_opset_has_a_mask_of_numbers():
    found = imported("m (float[2] x) => (float[2] y, float[2] z) { y, z = Dropout(x) }", 7)
    dtypes = [onnx.helper.tensor_dtype_to_np_dtype(1)] * 2
    from heddle.graph import reference

    assert [array.dtype for array in reference.evaluate(found.graph, [X[:2]])] == dtypes
    assert DType.from_numpy(dtypes[0]) is DType.float32


def test_log_sum_exp_of_no_axes_is_its_input():
    text = "m (float[3] x) => (float[3] y) { y = ReduceLogSumExp <noop_with_empty_axes = 1> (x) }"
    x = np.array([1, -2, 300], np.float32)
    np.testing.assert_array_equal(computed(text, x)[0], x)


def test_the_sign_of_nan_is_nan():
    (y,) = computed("m (float[3] x) => (float[3] y) { y = Sign(x) }", np.float32([np.nan, -2, 0]))
    np.testing.assert_array_equal(y, [np.nan, -1, 0])


@pytest.mark.parametrize(("kind", "dtype"), [("float", "f4"), ("float16", "f2"), ("double", "f8")])
def test_nan_is_no_smallest_number(kind, dtype):
    """It is larger than all, also than infinity before which it stands."""
    text = f"""m ({kind}[n, 6] x) => ({kind}[n, 6] y, int64[n, 6] places) <int64[1] k = {{6}}>
    {{ y, places = TopK <largest = 0> (x, k) }}"""
    most = np.finfo(dtype).max / 2
    x = np.array([[np.nan, np.inf, 3, np.nan, most, -np.inf]], dtype)
    y, places = computed(text, x)
    np.testing.assert_array_equal(y, [[-np.inf, 3, most, np.inf, np.nan, np.nan]])
    assert places.tolist() == [[5, 2, 4, 1, 0, 3]]


def test_many_parts_of_unlike_sizes():
    inputs = ", ".join(f"float[{size}] x{size}" for size in range(70))
    names = ", ".join(f"x{size}" for size in range(70))
    text = f"m ({inputs}) => (float[k] y) {{ y = Concat <axis = 0> ({names}) }}"
    parts = [np.full(size, size, np.float32) for size in range(70)]
    np.testing.assert_array_equal(computed(text, *parts)[0], np.concatenate(parts))


@pytest.mark.parametrize(("kind", "dtype"), [("float", "f4"), ("float16", "f2")])
@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [("min = 0.0", [0, 2, 3]), ("max = 2.5", [-1, 2, 2.5]), ("max = 1e6", [-1, 2, 3])],
)
def test_a_bound_of_an_old_clip_that_is_left_out(kind, dtype, bounds, wanted):
    """It is that of float32, which float16 does not have."""
    text = f"m ({kind}[3] x) => ({kind}[3] y) {{ y = Clip <{bounds}> (x) }}"
    assert computed(text, np.array([-1, 2, 3], dtype), opset=10)[0].tolist() == wanted
