"""Elementwise groups: every op with every dtype, broadcasting, and steps that share values."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_code import assembly
from native import ARCHS, DOTS, check, random, run

from heddle.kernels.emit import ITEM_SIZE
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import EXPR_OPS, Body, Operand, Spec, Step, fold

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + SIGNED + UNSIGNED
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
DTYPES = (*NUMBERS, *FLOAT8, "bool")
GELU = {"none": (("approximate", "none"),), "tanh": (("approximate", "tanh"),)}


def elementwise(inputs, steps, results, shape):
    body = Body(tuple(inputs), tuple(steps), tuple(results))
    kinds = [operand.dtype for operand in inputs] + [step.dtype for step in steps]
    outputs = tuple(Operand(kinds[number], shape) for number in results)
    return Spec("map", outputs[:1], outputs[0], outputs, (), body)


def all_ops(dtype: str) -> Spec:
    """One kernel that computes every op that `dtype` has on inputs x, y and a condition."""
    x = Operand(dtype, ("d0", 37))
    steps = [Step(op, (0, 1), "bool") for op in ("equal", "not_equal")]
    steps.append(Step("where", (2, 0, 1), dtype))
    if dtype in NUMBERS:
        steps += [Step(op, (0, 1), dtype) for op in ("add", "sub", "mul", "maximum", "minimum")]
        orders = ("less", "less_equal", "greater", "greater_equal")
        steps += [Step(op, (0, 1), "bool") for op in orders]
        steps += [Step(op, (0,), dtype) for op in ("abs", "relu")]
    if dtype in FLOATS + SIGNED:
        steps.append(Step("neg", (0,), dtype))
    if dtype in FLOATS:
        steps.append(Step("div", (0, 1), dtype))
        ops = ("sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "tanh", "erf", "silu", "sigmoid")
        steps += [Step(op, (0,), dtype) for op in ops]
        steps.append(Step("softplus", (0,), dtype))
        steps += [Step("gelu", (0,), dtype, attrs) for attrs in GELU.values()]
    results = range(3, 3 + len(steps))
    return elementwise([x, x, Operand("bool", ("d0", 37))], steps, results, ("d0", 37))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op(dtype, arch):
    check(all_ops(dtype), {"d0": 3}, arch=arch)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity(dtype):
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5]
    a, b = (grid.ravel() for grid in np.meshgrid(values, values))
    count = 37 * 3
    spec = all_ops(dtype)
    kind = random(np.random.default_rng(0), (), dtype).dtype
    arrays = [np.resize(v, (3, 37)).astype(kind) for v in (a, b)]
    check(spec, {"d0": 3}, [*arrays, np.resize([True, False], count).reshape(3, 37)])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", DTYPES)
def test_cast_to_every_dtype(source, arch):
    shape = (129,)
    steps = [Step("cast", (0,), target) for target in DTYPES if target != source]
    results = range(1, len(steps) + 1)
    spec = elementwise([Operand(source, shape)], steps, results, shape)
    rng = np.random.default_rng(3)
    x = random(rng, shape, source)
    if source in FLOATS + FLOAT8:
        x = (x * 100).astype(x.dtype)
        x[:4] = np.array([0, np.inf, -np.inf, np.nan]).astype(x.dtype)
    check(spec, {}, [x], arch=arch)


def test_float_to_integer_saturates():
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1.5, 300.7, 70000.0], np.float32)
    targets = SIGNED + UNSIGNED
    steps = [Step("cast", (0,), target) for target in targets]
    spec = elementwise([Operand("float32", x.shape)], steps, range(1, 9), x.shape)
    got, _ = run(spec, [x])
    for target, values in zip(targets, got, strict=True):
        info = np.iinfo(target)
        clamped = [0 if np.isnan(v) else min(max(v, info.min), info.max) for v in x.tolist()]
        assert values.tolist() == [int(v) for v in clamped], target


@pytest.mark.parametrize("target", ["float16", "bfloat16", *FLOAT8])
def test_float64_is_rounded_once(target):
    # Just above the middle of two numbers: rounding to float32 first would land on the middle.
    bits = {"float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}[target]
    middle = 1 + 2.0 ** -(bits + 1)
    x = np.array([middle, middle + 2**-40, middle - 2**-40, -middle - 2**-40, 1e300, np.nan])
    spec = elementwise([Operand("float64", (6,))], [Step("cast", (0,), target)], [1], (6,))
    got = run(spec, [x])[0][0].astype(np.float64)
    up = 1 + 2.0**-bits
    over = np.nan if target == "float8_e4m3fn" else np.inf
    np.testing.assert_array_equal(got, [1, up, 1, -up, over, np.nan])


@pytest.mark.parametrize("arch", DOTS)
def test_bfloat16_is_rounded_to_nearest_even(arch):
    """All of them, halfway to the next and beside that; some registers hold one denormal number."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    bits = (upper[:, None] | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).ravel()
    mixed = np.random.default_rng(0).permutation(bits)
    few = np.where(np.arange(bits.size) % 37, 0x3F800001, mixed).astype(np.uint32)
    numbers = np.concatenate([bits, mixed, few, bits[:5]]).view(np.float32)
    x = Operand("float32", (numbers.size,))
    spec = elementwise([x], [Step("cast", (0,), "bfloat16")], [1], x.shape)
    (found,), _ = run(spec, [numbers], arch=arch)
    with np.errstate(invalid="ignore"):
        wanted = numbers.astype(ml_dtypes.bfloat16)
    number = ~np.isnan(numbers)
    assert (np.isnan(found) == ~number).all()
    assert (found.view(np.uint16) == wanted.view(np.uint16))[number].all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_compared_or_cut_is_what_is_stored(dtype):
    """A sum that rounds to `top` equals it, is no more, and becomes that integer."""
    top, kind = {"float16": (2048, np.float16), "bfloat16": (256, ml_dtypes.bfloat16)}[dtype]
    x, y = np.array([top, 1.5], kind), np.array([1, 0.25], kind)
    steps = [Step("add", (0, 1), dtype), Step("constant", (), dtype, (("value", float(top)),))]
    steps += [Step("equal", (2, 3), "bool"), Step("greater", (2, 3), "bool")]
    steps += [Step("cast", (2,), "int32"), Step("floor", (2,), dtype)]
    spec = elementwise([Operand(dtype, (2,))] * 2, steps, [2, 4, 5, 6, 7], (2,))
    shown, equal, more, whole, floor = (found.tolist() for found in run(spec, [x, y])[0])
    assert (shown, equal, more) == ([top, 1.75], [True, False], [False, False])
    assert (whole, floor) == ([top, 1], [top, 1])


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_broadcasting(data):
    rank = data.draw(st.integers(0, 4))
    dims = {"d0": data.draw(st.sampled_from([1, 2, 7])), "d1": data.draw(st.integers(0, 40))}
    extent = st.sampled_from(["d0", "d1", 1, 3, 33, fold("add", "d0", 1)])
    shape = tuple(data.draw(st.lists(extent, min_size=rank, max_size=rank)))
    inputs = []
    for _ in range(3):
        kept = data.draw(st.integers(0, rank))
        stretch = data.draw(st.lists(st.booleans(), min_size=kept, max_size=kept))
        tail = shape[rank - kept :]
        inputs.append(
            Operand("float32", tuple(1 if s else n for s, n in zip(stretch, tail, strict=True)))
        )
    steps = [Step("add", (0, 1), "float32"), Step("mul", (3, 2), "float32")]
    spec = elementwise(inputs, steps, [4, 3], shape)
    used = {name: dims[name] for name in spec.dims}
    check(spec, used, arch=data.draw(st.sampled_from(ARCHS)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants(dtype):
    value = {"bool": True, "uint64": 2**64 - 1, "int64": -(2**63)}.get(dtype, 3)
    steps = [Step("constant", (), dtype, (("value", value),)), Step("equal", (0, 1), "bool")]
    spec = elementwise([Operand(dtype, (21,))], steps, [1, 2], (21,))
    check(spec)


def test_a_long_row_is_many_tasks():
    x = Operand("float32", ("d0",))
    spec = elementwise([x], [Step("neg", (0,), "float32")], [1], ("d0",))
    check(spec, {"d0": 3 * 4096 + 5})


@pytest.mark.parametrize("arch", ARCHS)
def test_a_function_has_the_same_bits_at_each_place(arch):
    """Functions are taken several vectors at a time, then one, then under a mask."""
    x = Operand("float32", ("d0",))
    spec = elementwise([x], [Step("silu", (0,), "float32")], [1], ("d0",))
    values = random(np.random.default_rng(3), (103,), "float32")
    whole = run(spec, [values], {"d0": 103}, arch)[0][0]
    for first in range(40):
        got = run(spec, [values[first:]], {"d0": 103 - first}, arch)[0][0]
        np.testing.assert_array_equal(got, whole[first:])


@pytest.mark.parametrize("op", EXPR_OPS)
def test_sizes_are_computed(op):
    for size in ((op, "d0", "d1"), (op, ("add", "d0", 9), 4)):
        x = Operand("float32", (size, 3))
        step = Step("neg", (0,), "float32")
        spec = elementwise([x], [step], [1], x.shape)
        check(spec, {name: {"d0": 17, "d1": 5}[name] for name in spec.dims})


def test_all_sizes_are_known():
    assert set(DTYPES) == set(ITEM_SIZE)


@pytest.mark.parametrize(("rows", "asks"), [("d0", True), (4096, True), (64, False)])
def test_large_results_ask_memory_for_their_inputs(rows, asks):
    x = Operand("float32", (rows, 4096))
    spec = elementwise([x], [Step("gelu", (0,), "float32", GELU["none"])], [1], (rows, 4096))
    assert ("prefetcht0" in assembly(spec, MACHINES["x86-64-v4"])) == asks
