"""Operators of ai.onnx.ml."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, parsed

from heddle.runtime.errors import GraphError

KINDS = {"float32": "float", "float64": "double"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("threshold", [-1.5, 0.0, 0.5, 2.0])
def test_above_a_threshold(dtype, threshold):
    kind = KINDS.get(dtype, dtype)
    x = np.array([[-2, -1, 0, 1, 2, 3]], dtype) + (0.5 if dtype.startswith("float") else 0)
    x = x.astype(dtype)
    text = f"""m ({kind}[n, 6] x) => ({kind}[n, 6] y) {{
      y = ai.onnx.ml.Binarizer <threshold = {threshold}> (x) }}"""
    (found,) = computed(text, x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x > threshold)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("indices", [[4, 0, 4], [[1, 2]]])
def test_columns_by_their_numbers(shape, indices):
    indices = np.array(indices)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    sizes, places = (", ".join(map(str, each)) for each in (shape, indices.shape))
    result = ", ".join("abcd"[: max(len(shape), 2)])
    text = f"""m (float[{sizes}] x, int64[{places}] indices) => (float[{result}] y) {{
      y = ai.onnx.ml.ArrayFeatureExtractor(x, indices) }}"""
    (found,) = computed(text, x, indices)
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x, "indices": indices})
    np.testing.assert_array_equal(found, wanted)


LABELS = """m ({kind}[n, 4] x) => ({result}[n, 4] y) {{
  y = ai.onnx.ml.LabelEncoder <{settings}> (x) }}"""


@pytest.mark.parametrize(
    ("kind", "result", "settings", "wanted"),
    [
        (
            "int64",
            "float",
            "keys_int64s = [7, 2, 7], values_floats = [0.5, 3.0, 4.0]",
            [0.5, 3, 0, 0],
        ),
        (
            "int64",
            "int64",
            "keys_int64s = [2], values_int64s = [9], default_int64 = 5",
            [5, 9, 5, 5],
        ),
        ("float", "int64", "keys_floats = [7.0, -1.0], values_int64s = [1, 2]", [1, -1, 2, -1]),
        (
            "int16",
            "double",
            """keys_tensor = int16[2] {7, 2}, values_tensor = double[2] {1, 2},
            default_tensor = double[1] {8}""",
            [1, 2, 8, 8],
        ),
    ],
)
def test_values_by_their_keys(kind, result, settings, wanted):
    dtypes = {"float": "float32", "double": "float64"}
    x = np.array([[7, 2, -1, 3]] * 2, dtypes.get(kind, kind))
    (found,) = computed(LABELS.format(kind=kind, result=result, settings=settings), x)
    assert found.dtype == dtypes.get(result, result)
    assert found.tolist() == [wanted] * 2


def test_what_is_no_number_is_a_key():
    settings = "keys_floats = [1.0, nan], values_int64s = [5, 6]"
    node = LABELS.format(kind="float", result="int64", settings=settings)
    (found,) = computed(node, np.array([[np.nan, 1, 2, -np.inf]], np.float32))
    assert found.tolist() == [[6, 5, -1, -1]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('keys_strings = ["a"], values_int64s = [1]', "wanted keys that are numbers, got texts"),
        ('keys_int64s = [1], values_strings = ["a"]', "wanted values that are numbers, got texts"),
        ("keys_int64s = [1, 2], values_int64s = [1]", "wanted as many keys as values, got"),
    ],
)
def test_labels_that_are_refused(settings, message):
    text = LABELS.format(kind="int64", result="int64", settings=settings)
    with pytest.raises(GraphError, match=f"m.onnx:1: ai.onnx.ml.LabelEncoder 'y': {message}"):
        imported(text)
