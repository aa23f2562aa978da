"""Every CUDA kernel on the emulator, against what its spec means."""

from dataclasses import replace

import cuda_cases as cases
import numpy as np
import pytest
from cuda_harness import run
from emulator.memory import Memory
from reference import evaluate, numpy_dtype, shape

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-6, "float64": 1e-13}


def arrays_for(spec: Spec, dims: dict[str, int]) -> list[np.ndarray]:
    random = np.random.default_rng(list(spec.digest.encode()))
    arrays = [array_for(random, operand, dims) for operand in spec.inputs]
    if spec.op == "gather":
        place = len(spec.prologue.inputs) if spec.prologue else 1
        limit = spec.operands[0].shape[spec.attr("axis")]
        arrays[place] = random.integers(0, limit, arrays[place].shape)
    return arrays


def array_for(random, operand: Operand, dims: dict[str, int]) -> np.ndarray:
    size, dtype = shape(operand.shape, dims), numpy_dtype(operand.dtype)
    if dtype.kind == "b":
        return random.random(size) < 0.6
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return random.integers(ends.min, ends.max, size, dtype, endpoint=True)
    return random.standard_normal(size).astype(dtype)


def check(spec: Spec, dims: dict[str, int], shift: int = 0, of=run, arrays=None) -> None:
    """`of`: `run`, or `run_call`."""
    arrays = arrays or arrays_for(spec, dims)
    found, status = of(spec, arrays, dims, shift)
    assert status == [0, 0, 0, 0]
    for array, wanted, operand in zip(
        found, evaluate(spec, dims, arrays), spec.written, strict=True
    ):
        tolerance = TOLERANCE.get(operand.dtype, 0)
        if operand.dtype == "float64":  # of a result that may be narrower
            tolerance = TOLERANCE[spec.result.dtype]
        wide = np.float64 if tolerance else array.dtype
        scale = max(1.0, float(np.max(np.abs(wanted.astype(wide)), initial=0))) if tolerance else 1
        np.testing.assert_allclose(
            array.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance * scale
        )


@pytest.mark.parametrize("name", cases.ALL)
def test_vectors(name):
    check(cases.ALL[name], cases.DIMS)


@pytest.mark.parametrize("name", cases.FUSED)
def test_fused_bodies(name):
    check(cases.FUSED[name], cases.DIMS)


COMPUTED = ("reduce", "softmax", "norm", "matmul", "attention")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in cases.ALL
        if any(op in name for op in COMPUTED) and name.endswith((", bfloat16", ", float32"))
    ],
)
def test_results_of_64_bits(name):
    """Of which a vector of 16 bytes has two, whatever they are computed from."""
    spec = cases.ALL[name]
    body = Body((), (Step("cast", (0,), "float64"),), (1,))
    check(
        replace(spec, outputs=(replace(spec.result, dtype="float64"),), epilogue=body), cases.DIMS
    )


@pytest.mark.parametrize(
    "name", [name for name in {**cases.ALL, **cases.FUSED} if "float32" in name]
)
def test_unaligned_buffers_take_the_path_of_single_elements(name):
    check({**cases.ALL, **cases.FUSED}[name], cases.DIMS, shift=1)


VECTORS = (
    "attention",
    "concat",
    "gather",
    "layer_norm",
    "map",
    "matmul",
    "reduce columns",
    "reduce rows",
    "rms_norm",
    "slice",
    "softmax",
)


@pytest.mark.parametrize("name", VECTORS)
def test_aligned_buffers_are_read_in_16_bytes(monkeypatch, name):
    sizes = []
    load = Memory.load

    def recorded(memory, region, offset, lane, count):
        sizes.append(count)
        return load(memory, region, offset, lane, count)

    monkeypatch.setattr(Memory, "load", recorded)
    check(cases.ALL[f"{name}, float32"], cases.DIMS)
    assert 16 in sizes
    sizes.clear()
    check(cases.ALL[f"{name}, float32"], cases.DIMS, shift=1)
    assert name in ("matmul", "attention") or max(sizes) <= 8  # Those read shared memory, too.


def test_every_row_has_cases():
    stems = {name.split(",")[0].split()[0] for name in cases.ALL}
    assert all(find(stem, "cuda") for stem in stems)
