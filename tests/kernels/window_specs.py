"""Specs of convolutions and pooling, for the tests of both targets."""

from math import prod

from heddle.kernels.spec import Body, Expr, Operand, Spec, Step, fold


def _attrs(shape, kernel, strides, padding, dilations, **others):
    rank = len(shape) - 2
    found = {
        "kernel": kernel,
        "strides": strides or (1,) * rank,
        "padding": padding or (0,) * (2 * rank),
        "dilations": dilations or (1,) * rank,
        **others,
    }
    return found, tuple(sorted(found.items()))


def _counts(shape, attrs) -> tuple[Expr, ...]:
    found = []
    for axis, extent in enumerate(shape[1:-1]):
        padded = sum(attrs["padding"][2 * axis : 2 * axis + 2])
        reach = attrs["dilations"][axis] * (attrs["kernel"][axis] - 1) + 1
        room = fold("add", extent, padded - reach)
        found.append(fold("add", fold("floordiv", room, attrs["strides"][axis]), 1))
    return tuple(found)


def _product(op, dtype, shape, n, weights, found, attrs, biased):
    result = Operand(dtype, (shape[0], *_counts(shape, found), n))
    body = None
    if biased:
        steps = (Step("add", (0, 1), dtype), Step("relu", (2,), dtype))
        body = Body((Operand(dtype, (n,)),), steps, (3,))
    operands = (Operand(dtype, shape), Operand(dtype, weights))
    return Spec(op, operands, result, (result,), attrs, None, body)


def packed(
    dtype, shape, n, kernel, groups=1, strides=None, padding=None, dilations=None, biased=False
) -> Spec:
    """`window_matmul_packed`; bfloat16 in pairs."""
    found, attrs = _attrs(shape, kernel, strides, padding, dilations)
    k, each = shape[-1] // groups * prod(kernel), n // groups
    weights = (groups, -(-each // 32), k, 32)
    if dtype == "bfloat16":
        weights = (groups, -(-each // 32), -(-k // 2), 32, 2)
    return _product("window_matmul_packed", dtype, shape, n, weights, found, attrs, biased)


def plain(
    dtype, shape, n, kernel, groups=1, strides=None, padding=None, dilations=None, biased=False
) -> Spec:
    """`window_matmul`."""
    found, attrs = _attrs(shape, kernel, strides, padding, dilations)
    weights = (groups, n // groups, shape[-1] // groups * prod(kernel))
    return _product("window_matmul", dtype, shape, n, weights, found, attrs, biased)


def reducing(
    kind,
    dtype,
    shape,
    kernel,
    strides=None,
    padding=None,
    dilations=None,
    counts_padding=False,
    depth=1,
) -> Spec:
    """`window_reduce`; a product has `depth` channels in each group."""
    others = {"counts_padding": counts_padding} if kind == "mean" else {}
    found, attrs = _attrs(shape, kernel, strides, padding, dilations, kind=kind, **others)
    result = Operand(dtype, (shape[0], *_counts(shape, found), shape[-1]))
    operands = (Operand(dtype, shape),)
    if kind == "product":
        weights = (prod(kernel) * depth, shape[-1])
        if dtype == "bfloat16" and depth > 1:
            weights = (prod(kernel) * depth // 2, shape[-1], 2)
        operands += (Operand(dtype, weights),)
    return Spec("window_reduce", operands, result, (result,), attrs)
