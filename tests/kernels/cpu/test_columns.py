"""Long columns, reduced in two steps: what is asked for when, and that nothing else changes."""

import ml_dtypes
import numpy as np
import pytest

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, compile, ops
from heddle.kernels.cpu import _columns
from heddle.kernels.spec import Operand, Spec
from heddle.runtime import InferenceSession


def column_sum(*shape, axis=0, dtype="float32"):
    result = Operand(dtype, (*shape[:axis], 1, *shape[axis + 1 :]))
    attrs = (("axis", axis), ("kind", "sum"))
    return Spec("reduce", (Operand(dtype, shape),), result, (result,), attrs)


def stages(*shape, **options):
    return [share.spec.attr("stage") for share in _columns.split(column_sum(*shape, **options))]


def test_which_calls_take_two_steps():
    both = ["parts", "joins"]
    assert stages(4096, 256) == both
    assert stages(4096, 255) == ["whole"]  # less than 4 MiB
    assert stages(255, 8192) == ["whole"]  # short
    assert stages(4096, 128 * 127) == both
    assert stages(4096, 128 * 128) == ["whole"]  # tasks enough
    assert stages(64, 4096, 128, axis=1) == both
    assert stages(128, 4096, 128, axis=1) == ["whole"]
    assert stages("d0", 256) == ["whole", *both]
    assert stages("d0", 128 * 128) == ["whole"]


def reduced(op, axis, rank, dtype, threads):
    """A model of `op` over squares plus one, whose result is doubled, for arrays of any sizes."""
    kind = TensorType(DType[dtype], [Dim(f"n{i}", 0, 1 << 20) for i in range(rank)])
    with Graph("columns", [kind]) as graph:
        x = graph.inputs[0].tensor
        y = op(x * x + 1, axis=axis)
        graph.output(y + y)
    return InferenceSession(threads=threads).load(compile(graph, "cpu"))


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(("shape", "axis"), [((4099, 300), 0), ((2, 2053, 3, 150), 1)])
def test_two_steps_compute_the_same(kind, shape, axis):
    models = [reduced(getattr(ops, kind), axis, len(shape), "float32", n) for n in (1, 2, 3)]
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    for rows in (shape[axis], 40, 0 if kind == "sum" else 1):
        part = np.ascontiguousarray(x.take(range(rows), axis))
        found = [model.execute(part)[0].to_numpy() for model in models]
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
        exact = getattr(np, kind)(part.astype(np.float64) ** 2 + 1, axis=axis, keepdims=True)
        np.testing.assert_allclose(found[0].reshape(exact.shape), 2 * exact, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bfloat16", "float64"])
def test_dtypes(dtype):
    rows, columns = 16411, 513
    rng = np.random.default_rng(0)
    model = reduced(ops.sum, 0, 2, dtype, 2)
    if dtype == "bfloat16":
        x = rng.standard_normal((rows, columns), np.float32).astype(ml_dtypes.bfloat16)
        (found,) = model.execute(x)
        exact = (x.astype(np.float64) ** 2 + 1).sum(0, keepdims=True)
        got = found.to_numpy().view(ml_dtypes.bfloat16).astype(np.float64)
        np.testing.assert_allclose(got.reshape(exact.shape), 2 * exact, rtol=2**-7)
        return
    x = rng.integers(0, 5, (rows, columns)).astype(dtype)
    (found,) = model.execute(x)
    exact = 2 * (x.astype(np.int64) ** 2 + 1).sum(0, keepdims=True)
    assert np.array_equal(found.to_numpy().reshape(exact.shape), exact.astype(found.dtype))


def test_a_number_that_is_none_is_found():
    x = np.ones((4096, 300), np.float32)
    x[4000, 7] = np.nan
    for op in (ops.max, ops.min):
        (found,) = reduced(op, 0, 2, "float32", 2).execute(x)
        assert np.isnan(found.to_numpy().ravel()).nonzero()[0].tolist() == [7]


def test_columns_on_the_host_alone():
    """Kernels for GPUs reduce in one."""
    kind = TensorType(DType.float32, (8192, 256), DeviceRef.GPU())
    with Graph("columns", [kind]) as graph:
        graph.output(ops.sum(graph.inputs[0].tensor, axis=0))
    assert compile(graph, "cuda:sm_80", stop_after="plan").count("heddle.fused") == 1
