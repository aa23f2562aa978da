"""top_k, cumsum, iota and take_along on the emulator, and assembled."""

import cuda_cases as cases
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from emulator.memory import EmulatorError
from reference import evaluate, numpy_dtype, shape

from heddle.kernels.cuda import _block
from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Spec, Step

DIMS = {"d0": 5, "d1": 300}
NUMBERS = ("float32", "float64", "bfloat16", "int8", "uint32", "int64")


def specs(dtype: str) -> dict[str, Spec]:
    tensor = cases.tensor
    short, long = tensor(dtype, "d0", 40), tensor(dtype, "d0", "d1")
    columns, few = tensor(dtype, 2, "d1", "d0", 7), tensor(dtype, 3, "d1", 5)
    indices, scalar = tensor("int64", "d0", 6), tensor(dtype)
    return {
        "top_k": cases.plain("top_k", [short], indices, smallest=False),
        "top_k blocks": cases.plain("top_k", [long], indices, smallest=True),
        "cumsum": cases.plain("cumsum", [short], short, axis=1),
        "cumsum blocks": cases.plain("cumsum", [long], long, axis=1),
        "cumsum columns": cases.plain("cumsum", [columns], columns, axis=1),
        "cumsum of few columns": cases.plain("cumsum", [few], few, axis=1),
        "iota": cases.plain("iota", [scalar, scalar], tensor(dtype, 40), starts=("d0",)),
        "take_along": cases.plain("take_along", [long, indices], tensor(dtype, "d0", 6)),
    }


CASES = {f"{name}, {dtype}": s for dtype in NUMBERS for name, s in specs(dtype).items()}
FUSED = {
    f"{name}, fused, {dtype}": cases.fused(s, prologue="cumsum" in name)
    for dtype in ("float32", "bfloat16")
    for name, s in specs(dtype).items()
    if s.op != "top_k"
}


def cast_index() -> Spec:
    """As a cast after argmax."""
    x, result = cases.tensor("float32", "d0", "d1"), cases.tensor("int64", "d0", 1)
    body = Body((), (Step("cast", (0,), "float32"),), (1,))
    attrs = (("smallest", False),)
    return Spec("top_k", (x,), result, (cases.tensor("float32", "d0", 1),), attrs, None, body)


FUSED["top_k, fused"] = cast_index()


def arrays_for(spec: Spec) -> list[np.ndarray]:
    """Few different values, so that there are ties; sums stay small."""
    rng = np.random.default_rng(7)
    arrays = []
    for operand in spec.inputs:
        size, kind = shape(operand.shape, DIMS), numpy_dtype(operand.dtype)
        low = 0 if kind.kind == "u" or operand.dtype == "int64" else -5
        arrays.append(rng.integers(low, 6, size).astype(kind))
    if arrays[0].ndim > 1 and "float" in spec.operands[0].dtype and spec.op == "top_k":
        arrays[0][0, 7:9], arrays[0][1, 3:5] = (np.nan, -np.nan), (np.inf, -np.inf)
    return arrays


EVERY = [(name, 0) for name in {**CASES, **FUSED}] + [(n, 1) for n in CASES if "float32" in n]


@pytest.mark.parametrize(("name", "shift"), EVERY)
def test_on_the_emulator(name, shift):
    spec = {**CASES, **FUSED}[name]
    arrays = arrays_for(spec)
    found, status = run(spec, arrays, {d: DIMS[d] for d in spec.dims}, shift)
    assert status == [0, 0, 0, 0]
    for array, wanted in zip(found, evaluate(spec, DIMS, arrays), strict=True):
        np.testing.assert_allclose(array.astype(np.float64), wanted.astype(np.float64), rtol=1e-2)


def longer(dtype: str, length: int) -> tuple[Spec, np.ndarray]:
    """A row that takes a block several steps."""
    x = cases.tensor(dtype, "d0", length)
    array = np.random.default_rng(1).integers(0, 3, (1, length)).astype(numpy_dtype(dtype))
    return cases.plain("cumsum", [x], x, axis=1), array


@pytest.mark.parametrize(
    ("dtype", "length"), [("float32", 2100), ("float64", 1029), ("int8", 9001)]
)
def test_cumsum_of_several_steps(dtype, length):
    spec, array = longer(dtype, length)
    (found,), _ = run(spec, [array], {"d0": 1})
    np.testing.assert_array_equal(found, np.cumsum(array, axis=-1, dtype=array.dtype))


@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 40), 1), ((2, 2100), 1), ((70, 3), 0), ((70, 40), 0)]
)
def test_cumsum_keeps_the_sign_of_zero(shape, axis):
    """As NumPy does: -0.0 until the first other number."""
    array = np.full(shape, -0.0, np.float32)
    array[1, 1] = 0.0
    x = cases.tensor("float32", *shape)
    (found,), _ = run(cases.plain("cumsum", [x], x, axis=axis), [array], {})
    assert found.tobytes() == np.cumsum(array, axis=axis).tobytes()


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (1, 1, 1)])
def test_cumsum_of_columns_of_nothing_or_one(shape):
    dims = dict(zip(("d0", "d1", "d2"), shape, strict=True))
    x = cases.tensor("int32", *dims)
    (found,), _ = run(cases.plain("cumsum", [x], x, axis=1), [np.ones(shape, np.int32)], dims)
    assert found.shape == shape
    assert found.sum() == np.prod(shape)


@pytest.mark.parametrize("smallest", [False, True])
def test_the_best_of_nothing_is_at_0(smallest):
    spec = cases.plain(
        "top_k",
        [cases.tensor("float32", 3, "d0")],
        cases.tensor("int64", 3, 1),
        smallest=smallest,
    )
    (found,), _ = run(spec, [np.zeros((3, 0), np.float32)], {"d0": 0})
    assert found.tolist() == [[0]] * 3


def test_cumsum_without_a_barrier_is_caught(monkeypatch):
    barrier, calls = _block.barrier, iter(range(9))
    monkeypatch.setattr(_block, "barrier", lambda: next(calls) == 0 or barrier())
    spec, array = longer("float32", 2100)
    with pytest.raises(EmulatorError, match="race"):
        run(spec, [array], {"d0": 1})


def test_an_index_outside_is_reported_and_clamped():
    spec = specs("float32")["take_along"]
    arrays = arrays_for(spec)
    arrays[1][2, 3] = 300
    found, status = run(spec, arrays, DIMS)
    np.testing.assert_array_equal(found[0], evaluate(spec, DIMS, arrays)[0])
    assert status == [1, 300, 300, 0]


@pytest.mark.parametrize(("kind", "bad"), [("int64", -1), ("uint64", 2**64 - 1), ("int32", 7)])
@pytest.mark.parametrize("rows", [7, 0])
@pytest.mark.parametrize("op", ["gather", "take_along"])
def test_an_index_outside_is_reported_and_nothing_outside_is_read(op, rows, kind, bad):
    """The emulator refuses what reads outside of a buffer."""
    attrs = {"axis": 0} if op == "gather" else {}
    tensors = cases.tensor("float32", "d0"), cases.tensor(kind, 5)
    spec = cases.plain(op, list(tensors), cases.tensor("float32", 5), **attrs)
    arrays = [np.ones(rows, np.float32), np.array([bad] * 5, kind)]
    found, status = run(spec, arrays, {"d0": rows})
    assert status == [3 if kind == "uint64" else 1, -1 if bad == 2**64 - 1 else bad, rows, 0]
    assert rows == 0 or found[0].tolist() == [1] * 5


def test_refusals():
    for op, reason in (("top_k", "no order"), ("cumsum", "no sum"), ("iota", "no steps")):
        spec = specs("bool")[op]
        assert find(op, "cuda").supports(spec) == f"{reason} of bool"
    x = cases.tensor("float32", 3, 4)
    spec = cases.plain("take_along", [x, x], x)
    assert find("take_along", "cuda").supports(spec) == "take_along by float32"


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name, arch):
    check_no_spills(CASES[name], arch)
