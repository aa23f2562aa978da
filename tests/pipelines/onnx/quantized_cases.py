"""Nodes of ONNX Runtime's operators of quantized tensors, and what NumPy makes of their inputs.

Scales are powers of two where halves are to be rounded: then all numbers are exact, and so is what
is even.
"""

import numpy as np

CASES = {}


def case(function):
    """Registers what gives a node, its inputs and its output for a random generator and a dtype."""
    CASES[function.__name__] = function
    return function


def integers(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def tensor(rng, dtype, shape, scale):
    """Integers with all of their dtype, their scale and a zero point."""
    return [integers(rng, dtype, *shape), np.array(scale, np.float32), integers(rng, dtype)[()]]


def real(x, scale, zero):
    return (x.astype(np.float64) - zero) * scale


def quantized(x, zero, late=False):
    """Numbers in units of the scale; `late`: the zero point is part of what is rounded."""
    limits = np.iinfo(zero.dtype)
    whole = np.rint(x + zero) if late else np.rint(x) + zero
    return np.clip(whole, limits.min, limits.max).astype(zero.dtype)


def node(kind, count, **settings):
    """A node of inputs x0, x1, ..."""
    given = ", ".join(f"{name} = {value}" for name, value in settings.items())
    inputs = ", ".join(f"x{at}" for at in range(count))
    return f"com.microsoft.{kind} {f'<{given}> ' if given else ''}({inputs})"


def of_two(kind, function, rng, dtype, scale):
    a, b = tensor(rng, dtype, (2, 3, 4, 50), 0.25), tensor(rng, dtype, (3, 1, 50), 0.125)
    _, scale, zero = tensor(rng, dtype, (), scale)
    wanted = quantized(function(real(*a), real(*b)) / scale, zero, late=True)
    return node(kind, 8), [*a, *b, scale, zero], wanted


@case
def add(rng, dtype):
    return of_two("QLinearAdd", np.add, rng, dtype, 0.5)


@case
def multiply(rng, dtype):
    return of_two("QLinearMul", np.multiply, rng, dtype, 8)


def of_one(kind, function, rng, dtype, scales, shape=(2, 3, 20), **settings):
    x = tensor(rng, dtype, shape, scales[0])
    _, scale, zero = tensor(rng, dtype, (), scales[1])
    wanted = quantized(function(real(*x)) / scale, zero)
    return node(kind, 5, **settings), [*x, scale, zero], wanted


@case
def sigmoid(rng, dtype):
    return of_one("QLinearSigmoid", lambda x: 1 / (1 + np.exp(-x)), rng, dtype, (0.03, 0.004))


def leaky(alpha):
    return lambda x: np.where(x < 0, alpha * x, x)


@case
def leaky_relu(rng, dtype):
    return of_one("QLinearLeakyRelu", leaky(0.25), rng, dtype, (0.5, 0.25), alpha=0.25)


@case
def leaky_relu_by_default(rng, dtype):
    return of_one("QLinearLeakyRelu", leaky(0.01), rng, dtype, (0.03, 0.017))


def shares(*axes):
    def function(x):
        parts = np.exp(x - x.max(axes, keepdims=True))
        return parts / parts.sum(axes, keepdims=True)

    return function


@case
def softmax(rng, dtype):
    return of_one("QLinearSoftmax", shares(1), rng, dtype, (0.02, 2**-8), axis=1, opset=13)


@case
def softmax_of_many_axes(rng, dtype):
    return of_one("QLinearSoftmax", shares(1, 2), rng, dtype, (0.02, 2**-8), axis=1, opset=11)


@case
def global_average(rng, dtype):
    kind, shape = "QLinearGlobalAveragePool", (2, 30, 2, 4)
    return of_one(kind, lambda x: x.mean((2, 3), keepdims=True), rng, dtype, (0.25, 0.125), shape)


@case
def global_average_of_last(rng, dtype):
    return of_one(
        "QLinearGlobalAveragePool",
        lambda x: x.mean((1, 2), keepdims=True),
        rng,
        dtype,
        (0.3, 0.1),
        (2, 3, 5, 4),
        channels_last=1,
    )


WINDOWS = {"kernel_shape": "[2, 3]", "strides": "[2, 3]"}


@case
def average(rng, dtype):
    return of_one(
        "QLinearAveragePool",
        lambda x: x.reshape(2, 3, 4, 2, 3, 3).mean((3, 5)),
        rng,
        dtype,
        (0.3, 0.11),
        (2, 3, 8, 9),
        **WINDOWS,
    )


@case
def average_of_last(rng, dtype):
    return of_one(
        "QLinearAveragePool",
        lambda x: x.reshape(2, 4, 2, 3, 3, 3).mean((2, 4)),
        rng,
        dtype,
        (0.3, 0.11),
        (2, 8, 9, 3),
        channels_last=1,
        **WINDOWS,
    )


@case
def where(rng, dtype):
    x, y = tensor(rng, dtype, (2, 3, 20), 0.25), tensor(rng, dtype, (3, 1), 0.125)
    chosen, (_, scale, zero) = rng.random((2, 1, 20)) < 0.5, tensor(rng, dtype, (), 0.5)
    wanted = quantized(np.where(chosen, real(*x), real(*y)) / scale, zero)
    return node("QLinearWhere", 9), [chosen, *x, *y, scale, zero], wanted


@case
def concat(rng, dtype):
    parts = [tensor(rng, dtype, (2, size, 4), scale) for size, scale in ((1, 0.25), (5, 2.0))]
    _, scale, zero = tensor(rng, dtype, (), 0.5)
    parts.append([integers(rng, dtype, 2, 2, 4), scale, zero])  # as it is
    wanted = quantized(np.concatenate([real(*part) for part in parts], 1) / scale, zero)
    np.testing.assert_array_equal(wanted[:, 6:], parts[2][0])
    given = [scale, zero, *(each for part in parts for each in part)]
    return node("QLinearConcat", len(given), axis=-2), given, wanted


def columns(rng, dtype, k, n):
    """A matrix with a scale and a zero point for each column.

    Signed ones have 7 bits: there are CPUs on which ONNX Runtime adds two products in 16 bits.
    """
    q = integers(rng, dtype, k, n) // (2 if dtype == "int8" else 1)
    return [q, rng.uniform(0.005, 0.02, n).astype(np.float32), integers(rng, dtype, n)]


def product(rng, dtype, **settings):
    a, b = tensor(rng, dtype, (7, 40), 0.02), columns(rng, dtype, 40, 9)
    c = rng.integers(-5000, 5000, 9).astype(np.int32)
    total = (a[0] - a[2].astype(np.int64)) @ (b[0] - b[2].astype(np.int64)) + c
    return a, b, c, total * (a[1].astype(np.float64) * b[1]) * settings.get("alpha", 1)


@case
def gemm(rng, dtype):
    a, b, c, total = product(rng, dtype)
    _, scale, zero = tensor(rng, dtype, (), 0.2)
    return node("QGemm", 9), [*a, *b, c, scale, zero], quantized(total / scale, zero)


@case
def gemm_of_turned(rng, dtype):
    a, b, c, total = product(rng, dtype, alpha=0.5)
    a[0], b[0] = (np.ascontiguousarray(x[0].T) for x in (a, b))
    _, scale, zero = tensor(rng, dtype, (), 0.1)
    settings = {"transA": 1, "transB": 1, "alpha": 0.5}
    return node("QGemm", 9, **settings), [*a, *b, c, scale, zero], quantized(total / scale, zero)


@case
def gemm_as_floats(rng, dtype):
    a, b, c, total = product(rng, dtype)
    return node("QGemm", 7), [*a, *b, c], total.astype(np.float32)


@case
def matmul_as_floats(rng, dtype):
    x = tensor(rng, dtype, (2, 7, 40), 0.02)
    b, bias = columns(rng, dtype, 40, 9), rng.standard_normal(9).astype(np.float32)
    given = [x[0], b[0], x[1], b[1], x[2], b[2], bias]
    wanted = (real(*x) @ real(*b) + bias).astype(np.float32)
    return node("MatMulIntegerToFloat", 7), given, wanted


@case
def dynamic_matmul(rng, dtype):
    x = rng.integers(-100, 101, (2, 7, 40)).astype(np.float32) / 4
    x[0, 0, :2] = -30, 33.75  # the range is 255 times 1 / 4
    b, bias = columns(rng, dtype, 40, 9), rng.standard_normal(9).astype(np.float32)
    return node("DynamicQuantizeMatMul", 5), [x, *b, bias], (x @ real(*b) + bias).astype(np.float32)


@case
def convolution_of_last(rng, dtype):
    x = tensor(rng, dtype, (2, 4, 5, 6), 0.02)
    w, scales, _ = columns(rng, dtype, 3, 8)
    zeros, (_, scale, zero) = np.zeros(8, dtype), tensor(rng, dtype, (), 0.02)
    w = w.T.reshape(8, 3, 1, 1)
    parts = np.split(real(*x), 2, axis=-1), np.split(w[:, :, 0, 0].T * scales, 2, axis=1)
    total = np.concatenate([a @ b for a, b in zip(*parts, strict=True)], axis=-1)
    settings = {"channels_last": 1, "group": 2}
    given = [*x, w, scales, zeros, scale, zero]
    return node("QLinearConv", 8, **settings), given, quantized(total / scale, zero)
