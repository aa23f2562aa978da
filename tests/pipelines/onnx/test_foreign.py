"""Numbers of dtypes that Heddle lacks, such as int4: computed with where they are known."""

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper
from onnx_texts import computed, imported, ops_of, parsed

from heddle.graph import reference
from heddle.pipelines.onnx import file, importer
from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(0)

RANGES = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "uint2": (0, 4)}


@pytest.mark.parametrize("name", RANGES)
def test_weights_in_blocks(name):
    """More than a constant has; moved before they become floats, and a weight then."""
    dtype, (rows, columns, size) = np.dtype(getattr(ml_dtypes, name)), (64, 48, 16)
    model = parsed(
        f"""m (float[n, 64] x) => (float[n, 48] y) {{ q = Transpose(turned)
        w = DequantizeLinear <axis = 0, block_size = {size}> (q, s, z)  y = MatMul(x, w) }}""",
        opset=25,
    )
    q = RNG.integers(*RANGES[name], (rows, columns)).astype(dtype)
    z = RNG.integers(*RANGES[name], (rows // size, columns)).astype(dtype)
    s = RNG.uniform(0.1, 1, z.shape).astype(np.float32)
    for held, array in (("turned", q.T), ("s", s), ("z", z)):
        model.graph.initializer.append(numpy_helper.from_array(array, held))
    found = importer.build(file.checked(model, "m"), "m", "m")
    assert ops_of(found) == ["matmul"]
    x = RNG.standard_normal((3, rows)).astype(np.float32)
    (y,) = reference.evaluate(found.graph, [x], found.weights)
    less, factor = (np.repeat(each.astype(np.float32), size, axis=0) for each in (z, s))
    np.testing.assert_allclose(
        y, x @ ((q.astype(np.float32) - less) * factor), rtol=1e-4, atol=1e-4
    )


def test_what_is_cast_there_and_back():
    text = """m (float[3] x) => (float[3] y) <float[3] w = {-8.0, 2.4, 7.0}>
    { narrow = Cast <to = 22> (w)  v = Cast <to = 1> (narrow)  y = Add(x, v) }"""
    assert computed(text, np.zeros(3, np.float32))[0].tolist() == [-8, 2, 7]


LACKED = r"wanted (a dtype|one) of bool, .*, float8_e5m2, got int4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "m (int4[2] x) => (float[2] y) { y = Cast <to = 1> (x) }",
            rf"^m.onnx: input 'x': {LACKED}, which has to be known when the file is read$",
        ),
        (
            "m (float[2] x) => (int4[2] y) { y = Cast <to = 22> (x) }",
            rf"^m.onnx:1: Cast 'y': {LACKED}$",
        ),
        (
            "m (float[2] x) => (int4[2] y) <int4[2] like = {1, 2}> { y = CastLike (x, like) }",
            rf"^m.onnx:1: CastLike 'y': dtype: {LACKED}$",
        ),
        (
            """m (float[2] x) => (int4[2] y) <float s = {1}, int4 z = {1}>
            { y = QuantizeLinear (x, s, z) }""",
            rf"^m.onnx:1: QuantizeLinear 'y': dtype: {LACKED}$",
        ),
        (
            "m (float[2] x) => (int4[2] y) <int4[2] w = {1, 2}> { y = Identity (w) }",
            rf"^m.onnx: dtype: {LACKED}$",
        ),
    ],
)
def test_what_the_model_computes_is_refused(text, message):
    with pytest.raises(GraphError, match=message):
        imported(text)
