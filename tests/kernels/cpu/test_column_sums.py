"""cumsum along an axis that is not the last: in one step and in two, of long and of short rows."""

import numpy as np
import pytest
from native import ARCHS, check, run
from reference import numpy_dtype

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.kernels.cpu import _column_sums
from heddle.kernels.emit import ITEM_SIZE
from heddle.kernels.spec import Body, Operand, Spec, Step
from heddle.runtime import InferenceSession

NUMBERS = [dtype for dtype in ITEM_SIZE if dtype != "bool"]


def sums(dtype, shape, axis, prologue=None, epilogue=None):
    x = Operand(dtype, shape)
    return Spec("cumsum", (x,), x, (x,), (("axis", axis),), prologue, epilogue)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_columns(dtype, arch):
    """Of any length, and of a length that is known: odd, of many rows for each task, of one."""
    for shape in ((2, 1, 1), (1, 13, 301)):
        dims = dict(zip(("d0", "d1", "d2"), shape, strict=True))
        check(sums(dtype, tuple(dims), 1), dims, arch=arch, rtol=1e-5, atol=2e-5)
    for shape in ((3, "d0", 50, 7), (3, "d0", 2, 100)):
        check(sums(dtype, shape, 1), {"d0": 6}, arch=arch, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("inner", [(700, 16), ("d0", 16), ("d0", "d1")])
def test_between_bodies(inner):
    """Inputs that move along some of the axes: rows of columns stay apart."""
    dims = {"d0": 700, "d1": 16}
    x, row = Operand("float32", (2, 9, *inner)), Operand("float32", inner[-1:])
    column = Operand("float32", (2, 9, inner[0], 1))
    before = Body((x, row), (Step("mul", (0, 1), "float32"),), (2,))
    after = Body((column,), (Step("mul", (0, 1), "float32"),), (2,))
    spec = sums("float32", x.shape, 1, before, after)
    check(spec, {name: dims[name] for name in spec.dims}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_nothing_to_add_up(shape):
    x, known = np.zeros(shape, np.int32), ("d0", "d1", shape[2])
    dims = dict(zip(("d0", "d1", "d2"), shape, strict=True))
    for spec in (sums("int32", ("d0", "d1", "d2"), 1), sums("int32", known, 1)):
        (found,), _ = run(spec, [x], {name: dims[name] for name in spec.dims})
        assert found.shape == shape


@pytest.mark.parametrize("shape", [(70, 3), (70, 300), (1 << 14, 64)])
def test_zero_keeps_its_sign(shape):
    """As NumPy does: -0.0 until the first other number; the last shape takes two steps."""
    x = np.full(shape, -0.0, np.float32)
    x[50, 1] = 0.0
    with Graph("sums", [TensorType(DType.float32, shape)]) as graph:
        graph.output(ops.cumsum(graph.inputs[0].tensor, axis=0))
    (found,) = InferenceSession().load(compile(graph, "cpu")).execute(x)
    assert found.to_numpy().tobytes() == np.cumsum(x, axis=0).tobytes()


def test_a_column_is_added_up_from_first_to_last():
    """As NumPy does, and beside the cache where there are more than 32 MiB."""
    x = np.random.default_rng(0).standard_normal((1030, 8192), np.float32)
    (found,), _ = run(sums("float32", (1030, 8192), 0), [x])
    assert found.tobytes() == np.cumsum(x, axis=0).tobytes()


def stages(*shape, axis=0):
    return [share.spec.attr("stage") for share in _column_sums.split(sums("float32", shape, axis))]


def test_which_calls_take_two_steps():
    both = ["parts", "joins"]
    assert stages(1 << 14, 64) == both
    assert stages((1 << 14) - 1, 64) == ["whole"]  # less than 4 MiB
    assert stages(1 << 14, 3 * 128) == both
    assert stages(1 << 14, 3 * 128 + 1) == ["whole"]  # tasks enough
    assert stages(4, 1 << 14, 64, axis=1) == ["whole"]
    assert stages(1 << 14, 20, 16) == both  # eight rows of columns are one task
    assert stages("d0", 64) == ["whole", *both]
    assert stages("d0", 512) == ["whole"]


@pytest.mark.parametrize("dtype", ["float32", "int16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((40_001, 60), 0), ((2_000_003, 3), 0), ((2, 9001, 5, 16), 1)]
)
def test_two_steps_compute_the_same(shape, axis, dtype):
    """Also for any number of threads, and of rows that one step adds up."""
    kind = TensorType(DType[dtype], [Dim("n", 0, 1 << 22) if i == axis else size
                                     for i, size in enumerate(shape)])  # fmt: skip
    with Graph("sums", [kind]) as graph:
        x = graph.inputs[0].tensor
        y = ops.cumsum(x * x, axis=axis)
        graph.output(y + ops.cast(ops.range(shape[-1]), kind.dtype))
    artifact = compile(graph, "cpu")
    models = [InferenceSession(threads=threads).load(artifact) for threads in (1, 2, 3)]
    values = np.random.default_rng(0).integers(0, 3, shape).astype(numpy_dtype(dtype))
    for count in (shape[axis], 40, 0):
        part = np.ascontiguousarray(values.take(range(count), axis))
        found = [model.execute(part)[0].to_numpy() for model in models]
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
        exact = np.cumsum(part.astype(np.int64) ** 2, axis=axis) + np.arange(shape[-1])
        if dtype == "bfloat16":
            sums = found[0].view(numpy_dtype(dtype)).astype(np.float32)
            np.testing.assert_allclose(sums, exact, rtol=2**-7)
        else:
            np.testing.assert_array_equal(found[0], exact.astype(found[0].dtype))
