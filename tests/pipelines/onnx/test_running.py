"""CumProd, of which Heddle has no kernel, and what it shares with CumSum."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, ops_of, parsed

from heddle.graph import compile
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(2)

KINDS = {"float32": "float", "float64": "double"}


def text(shape, axis, settings="", dtype="float32", kind="CumProd"):
    sizes = ", ".join(map(str, shape))
    given = f"{KINDS.get(dtype, dtype)}[{sizes}]"
    return f"""m ({given} x) => ({given} y) <int64 axis = {{{axis}}}> {{
      y = {kind} <{settings}> (x, axis) }}"""


@pytest.mark.parametrize("kind", ["CumProd", "CumSum"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((2, 8, 3), 1), ((3, 1), -1), ((2, 0), 1)])
def test_both_ways(shape, axis, reverse, exclusive, kind):
    settings = f"reverse = {reverse}, exclusive = {exclusive}"
    node = text(shape, axis, settings, kind=kind)
    x = RNG.uniform(-2, 2, shape).astype(np.float32)
    (found,) = computed(node, x, opset=26)
    if not x.size:
        assert found.shape == x.shape
        return
    (wanted,) = ReferenceEvaluator(parsed(node, 26)).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_wrap(dtype):
    x = RNG.integers(1, 1000, (2, 50)).astype(dtype)
    (found,) = computed(text(x.shape, 1, "reverse = 0", dtype), x, opset=26)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, np.cumprod(x, 1, dtype))


def test_narrow_floats_are_rounded_once():
    x = RNG.uniform(0.9, 1.1, 100).astype(np.float16)
    (found,) = computed(text(x.shape, 0, "reverse = 0", "float16"), x, opset=26)
    np.testing.assert_allclose(found, np.cumprod(x.astype(np.float64)), rtol=2**-11)


def test_zeros_and_what_is_no_number_go_on():
    x = np.array([2, 0, 3, np.nan, 1], np.float32)
    (found,) = computed(text(x.shape, 0, "reverse = 0"), x, opset=26)
    np.testing.assert_array_equal(found, np.cumprod(x))


def test_a_long_row_takes_few_steps():
    node = text(("n", 1000), 1, "exclusive = 1")
    assert len(ops_of(imported(node, 26))) < 60
    x = RNG.uniform(0.9, 1.1, (3, 1000)).astype(np.float32)
    model = InferenceSession(threads=1).load(compile(imported(node, 26).graph, "cpu:native"))
    (found,) = model.execute(x)
    wanted = np.cumprod(x.astype(np.float64), 1)[:, :-1]
    np.testing.assert_allclose(found.to_numpy()[:, 1:], wanted, rtol=1e-5)


def test_a_size_that_is_not_known():
    with pytest.raises(
        GraphError, match=r"CumProd 'y': wanted a known size along axis 1 \(give it"
    ):
        imported(text((2, "n"), 1, "reverse = 0"), 26)
