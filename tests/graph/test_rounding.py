"""Values and bits of the dtypes that NumPy lacks, against ml_dtypes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import DType, Graph, TensorType, Weight, ops
from heddle.graph.attributes import constant_array, constant_attr
from heddle.graph.compiler import compile
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held, loaded, stored
from heddle.kernels import mlir
from heddle.runtime import Buffer, InferenceSession, InputError

LACKING = [dtype for dtype in DType if not dtype.in_numpy]
FLOAT8 = [dtype for dtype in DType if dtype.is_float8]


def every_code(dtype):
    return np.arange(2 ** (8 * dtype.size)).astype(dtype.to_bits())


def same_bits(found, wanted):
    """Also the signs of zeros; all NaN are alike."""
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("dtype", LACKING)
def test_every_code_has_its_value_and_every_value_its_code(dtype):
    codes = every_code(dtype)
    values = loaded(codes, dtype)
    same_bits(values, codes.view(dtype.value).astype(np.float32))
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(stored(values, dtype)[numbers], codes[numbers])
    same_bits(held(values, dtype), values)


WHOLE = [dtype for dtype in DType if not dtype.is_float and dtype is not DType.bool]


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_floats_become_the_nearest_integers_that_fit(source, dtype):
    """As kernels have it: a constant is cast by the compiler, an input when the model runs."""
    low, high = dtype.range
    ends = [float(end) + step for end in (low, high) for step in (-1, -0.5, 0, 0.5, 1)]
    with np.errstate(over="ignore"):
        x = np.array([*ends, -0.5, 2.7, -2.7, 1e30, -1e30, np.inf, -np.inf, np.nan], source)
    wanted = [0 if np.isnan(v) else int(min(max(v, low), high)) for v in x.tolist()]
    assert held(x, dtype).tolist() == wanted
    with Graph("cast", [TensorType(DType.from_numpy(x.dtype), x.shape)]) as graph:
        graph.output(ops.cast(graph.inputs[0], dtype), ops.cast(graph.constant(x), dtype))
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
    assert [found.to_numpy().tolist() for found in model.execute(x)] == [wanted, wanted]


@pytest.mark.parametrize("source", [*WHOLE, DType.float64])
def test_wider_numbers_round_once_to_bfloat16(source):
    """Not to float32 first, which moves what lies near the middle of two onto it."""
    bits = 8 * source.size - 1 if source.size < 8 else 52  # those of a float64
    middles = [(257 << (k - 9)) - 1 + step for k in range(10, bits) for step in (0, 1, 2)]
    x = np.array([*middles, 3, 5], source.to_numpy())
    exact = [_nearest(int(value)) for value in x.tolist()]
    assert held(x, DType.bfloat16).tolist() == exact
    with Graph("cast", [TensorType(source, x.shape)]) as graph:
        narrow = ops.cast(graph.inputs[0], DType.bfloat16)
        graph.output(ops.cast(narrow, DType.float64))
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
    assert model.execute(x)[0].to_numpy().tolist() == exact


def _nearest(value):
    """A positive integer with 8 bits kept: the nearest, the even one of two."""
    step = 1 << max(value.bit_length() - 8, 0)
    low, rest = divmod(value, step)
    return float((low + (2 * rest > step or (2 * rest == step and low % 2))) * step)


@pytest.mark.parametrize("source", [dtype for dtype in DType if dtype.is_float])
@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_float])
def test_saturating_casts(source, dtype):
    """Infinities too; what fits is what a cast gives."""
    with np.errstate(over="ignore"):
        x = held(np.array([1.25, -448, 1e9, -1e39, np.inf, -np.inf, np.nan]), source)
    with Graph("cast", [TensorType(source, x.shape)]) as graph:
        graph.output(ops.saturating_cast(graph.inputs[0], dtype))
    (found,) = evaluate(graph, [x])
    with np.errstate(over="ignore"):
        wanted = held(np.clip(x.astype(np.float64), *dtype.range), dtype)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_what_lies_around_and_between_two_values_rounds_as_ml_dtypes_says(dtype):
    finite = np.unique(loaded(every_code(dtype), dtype))
    finite = np.append(finite[np.isfinite(finite)], 2 * finite[-2])
    ends = np.array([1e30, np.inf, -1e30, -np.inf], np.float32)
    for places in (finite, (finite[:-1] + finite[1:]) / 2, ends):
        for end in (-np.inf, places, np.inf):
            near = np.nextafter(places, end, dtype=np.float32)
            with np.errstate(over="ignore"):
                wanted = near.astype(dtype.value).view(np.uint8)
            np.testing.assert_array_equal(stored(near, dtype), wanted)
            # One rounding from float64, which ml_dtypes takes to float32 first.
            nearer = np.nextafter(places, end, dtype=np.float64)
            np.testing.assert_array_equal(stored(nearer, dtype), wanted)
    np.testing.assert_array_equal(
        stored([np.nan, -np.nan], dtype), np.array([np.nan, -np.nan], dtype.value).view(np.uint8)
    )


@pytest.mark.parametrize("dtype", LACKING)
def test_float32_rounds_to_nearest_even(dtype):
    @settings(deadline=None, database=None)
    @given(st.integers(0, 2**32 - 1))
    def check(bits):
        value = np.array([bits], np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            same_bits(held(value, dtype), value.astype(dtype.value).astype(np.float32))

    check()


@pytest.mark.parametrize("dtype", LACKING)
def test_constants_in_mlir_and_back(dtype):
    codes = every_code(dtype)
    arrays = [loaded(codes, dtype), loaded(codes[-9:], dtype), loaded(codes[:9], dtype)]
    arrays += [np.float32(-2), np.full(3, np.inf, np.float32), np.zeros((2, 0), np.float32)]
    with mlir.context():
        for array in arrays:
            same_bits(constant_array(constant_attr(array, dtype)), held(array, dtype))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_a_model_with_floats_of_8_bits(dtype):
    """Moves keep the bits; casts are those of the reference; a weight comes as it is or as bits."""
    codes = every_code(dtype)
    with Graph("g", [TensorType(dtype, (256,)), TensorType(DType.float32, ("n",))]) as graph:
        x, y = (value.tensor for value in graph.inputs)
        w = graph.add_weight(Weight("w", dtype, (256,)))
        zero = ops.constant(0.0, dtype)
        graph.output(
            ops.cast(x, DType.float32),
            ops.cast(y, dtype),
            ops.concat([w, x[::-1]]),
            ops.where(ops.equal(x, x), w, zero),
            ops.cast(ops.cast(x, DType.bfloat16), DType.float16),
        )
    values = loaded(codes, dtype)
    spread = np.tan(np.arange(256)) * 2.0 ** np.arange(-40, 24, 0.25)
    inputs = [values, spread.astype(np.float32)]
    wanted = evaluate(graph, inputs, {"w": values})
    for weight in (codes, codes.view(dtype.value)):
        model = InferenceSession(threads=2).load(
            compile(graph, weights={"w": weight}, embed_weights=True)
        )
        found = model.execute(Buffer.from_numpy(codes, dtype=dtype.value), inputs[1])
        for result, value in zip(found, wanted, strict=True):
            same_bits(result.to_numpy().astype(np.float32), value.astype(np.float32))
    np.testing.assert_array_equal(found[2].to_numpy().view(np.uint8), [*codes, *codes[::-1]])
    assert found[2].dtype == dtype.value


def test_a_python_number_is_no_float_of_8_bits():
    with Graph("g", [TensorType(DType.float8_e5m2, ())]) as graph:
        graph.output(ops.cast(graph.inputs[0].tensor, DType.float32))
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    with pytest.raises(InputError, match="wanted an array for float8_e5m2, got float"):
        model.execute(1.5)
