"""What a `Spec` means, in NumPy: bodies by the references of the op rows, roots in float64.

Long because every root has its meaning here.
"""

from dataclasses import replace

import ml_dtypes  # noqa: F401  (gives NumPy its dtypes)
import numpy as np

from heddle.graph import ops  # noqa: F401  (declares the rows)
from heddle.graph.dtype import DType
from heddle.graph.ops import windows
from heddle.graph.ops.row import ROWS
from heddle.kernels.emit import NARROW
from heddle.kernels.spec import Expr, Spec, fold


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(name)


def size(expr: Expr, dims: dict[str, int]) -> int:
    if isinstance(expr, int):
        return expr
    return (
        dims[expr] if isinstance(expr, str) else fold(expr[0], *(size(e, dims) for e in expr[1:]))
    )


def shape(expressions, dims: dict[str, int]) -> tuple[int, ...]:
    return tuple(size(expr, dims) for expr in expressions)


def evaluate(spec: Spec, dims: dict[str, int], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs for the arrays of `Spec.inputs`; 16-bit floats are float32 until stored."""
    if spec.gate:
        own = len(arrays) - len(spec.gate.inputs) + 1
        gates = evaluate(spec.gate, dims, [arrays[0], *arrays[own:]])
        return evaluate(replace(spec, gate=None), dims, [*arrays[:own], *gates])
    if spec.beside or spec.source:
        place = len(spec.source.inputs) if spec.source else 1
        (left,) = evaluate(spec.source, dims, arrays[:place]) if spec.source else arrays[:1]
        results = []
        for one in spec.each:
            following = place + len(one.inputs) - 1
            results += evaluate(one, dims, [left, *arrays[place:following]])
            place = following
        return results
    wide = [_wide(array) for array in arrays]
    before = len(spec.prologue.inputs) if spec.prologue else 0
    after = len(spec.epilogue.inputs) if spec.epilogue else 0
    operands = wide[before : len(wide) - after]
    if spec.prologue:
        results = _body(spec.prologue, wide[:before], shape(spec.operands[0].shape, dims))
        if spec.op == "map":
            return _stored(spec, results, dims)
        operands = [results[0], *operands]
    with np.errstate(all="ignore"):
        result = np.asarray(_ROOTS[spec.op](spec, dims, *operands))
    result = _wide(result.astype(numpy_dtype(spec.result.dtype)))
    if spec.epilogue is None:
        return _stored(spec, [result], dims)
    inputs = [result, *wide[len(wide) - after :]]
    return _stored(spec, _body(spec.epilogue, inputs, result.shape), dims)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.name in NARROW else array


def _stored(spec: Spec, results, dims) -> list[np.ndarray]:
    return [
        np.broadcast_to(result, shape(operand.shape, dims)).astype(numpy_dtype(operand.dtype))
        for result, operand in zip(results, spec.outputs, strict=True)
    ]


def _body(body, inputs, points) -> list[np.ndarray]:
    values = list(inputs)
    for step in body.steps:
        attrs = dict(step.attrs)
        if step.op == "constant":
            value = _wide(np.array(attrs["value"]).astype(numpy_dtype(step.dtype)))
        elif step.op == "cast":
            value = _cast(values[step.args[0]], step.dtype)
        else:
            with np.errstate(all="ignore"):
                value = ROWS[step.op].compute(*(values[number] for number in step.args), **attrs)
        values.append(np.asarray(value))
    return [np.broadcast_to(values[number], points) for number in body.results]


def _cast(value: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return ROWS["cast"].compute(value, dtype=DType[dtype])


def _precise(array: np.ndarray) -> np.ndarray:
    """Floats in float64, integers in int64 (wrapping when stored)."""
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def _reduce(spec, dims, x):
    kind, axis = spec.attr("kind"), spec.attr("axis")
    if kind in ("max", "min"):
        return getattr(np, kind)(x, axis=axis, keepdims=True)
    return getattr(np, kind)(_precise(x), axis=axis, keepdims=True)


def _softmax(spec, dims, x):
    x = _precise(x)
    top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(x - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _layer_norm(spec, dims, x, gamma, beta):
    x = _precise(x)
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + spec.attr("epsilon")) * gamma + beta


def _rms_norm(spec, dims, x, gamma):
    x = _precise(x)
    mean = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(mean + spec.attr("epsilon")) * gamma


def _attention(spec, dims, q, k, v, mask=None):
    q, k, v = (_precise(array) for array in (q, k, v))
    if spec.attr("layout") == "bshd":
        q, k, v = (array.swapaxes(1, 2) for array in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(array, group, axis=1) for array in (k, v))
    scores, cap = q @ k.swapaxes(-1, -2) * spec.attr("scale"), spec.attr("softcap")
    scores = np.tanh(scores / cap) * cap if cap else scores
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if spec.attr("causal"):
        queries, keys = scores.shape[-2:]
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        if spec.attr("window"):
            seen &= ~np.tri(queries, keys, keys - queries - spec.attr("window"), dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    result = _softmax(spec, dims, scores) @ v
    return result.swapaxes(1, 2) if spec.attr("layout") == "bshd" else result


def _pack_b(spec, dims, b):
    b = b.swapaxes(-1, -2) if spec.attr("transposed") else b
    group = spec.attr("group", 1)
    *leading, k, n = b.shape
    panels, steps = -(-n // 32), -(-k // group)
    padded = np.zeros((*leading, steps * group, panels * 32), b.dtype)
    padded[..., :k, :n] = b
    padded = padded.reshape(*leading, steps, group, panels, 32)
    packed = np.moveaxis(padded, (-2, -4, -1, -3), (-4, -3, -2, -1))
    return packed if group > 1 else packed[..., 0]


def _matmul_packed(spec, dims, a, packed):
    packed = packed[..., None] if packed.shape[-1] == 32 else packed
    *leading, panels, steps, width, group = packed.shape
    b = np.moveaxis(packed, (-3, -1, -4, -2), (-4, -3, -2, -1))
    b = b.reshape(*leading, steps * group, panels * width)[..., : a.shape[-1], :]
    return (_precise(a) @ _precise(b))[..., : size(spec.result.shape[-1], dims)]


def _matmul(spec, dims, a, b):
    a = a.swapaxes(-1, -2) if spec.attr("turned") else a
    b = b.swapaxes(-1, -2) if spec.attr("transposed") else b
    return _precise(a) @ _precise(b)


def _grouped_matmul(spec, dims, x, weights, offsets):
    if spec.op == "grouped_matmul_packed":
        products = [_matmul_packed(spec, dims, x, packed) for packed in weights]
    else:
        products = [_matmul(spec, dims, x, b) for b in weights]
    return _by_group(spec, dims, products, offsets)


def _by_group(spec, dims, products, offsets):
    """Of the products of all rows by each matrix, those of the rows of its group."""
    result = np.zeros((len(products[0]), size(spec.result.shape[-1], dims)))
    for product, start, stop in zip(products, offsets, offsets[1:], strict=False):
        result[start:stop] = product[start:stop]
    return result


def _scaled_groups(spec, dims, x, weights, scales, offsets, *minimums):
    one = _ROOTS[spec.op.replace("_grouped", "")]
    sides = zip(weights, scales, *minimums, strict=True)
    products = [one(spec, dims, x, *each) for each in sides]
    return _by_group(spec, dims, products, offsets)


def _windows(spec, x, fill):
    return windows.taps(_precise(x), spec.attr("kernel"), dict(spec.attrs), fill)


def _window_matmul(spec, dims, x, weights):
    if spec.op == "window_matmul_packed":
        packed = weights[..., None] if weights.shape[-1] == 32 else weights
        groups, panels, steps, width, group = packed.shape
        n = size(spec.result.shape[-1], dims) // groups
        weights = np.moveaxis(packed, (1, 3, 2, 4), (1, 2, 3, 4))
        weights = weights.reshape(groups, panels * width, steps * group)[:, :n]
    groups, n, _ = weights.shape
    taps = _windows(spec, x, 0)
    depth = x.shape[-1] // groups
    left = np.stack([tap.reshape(*tap.shape[:-1], groups, depth) for tap in taps], axis=-2)
    left = left.reshape(*left.shape[:-2], len(taps) * depth)
    product = np.einsum("...gk,gnk->...gn", left, _precise(weights)[..., : left.shape[-1]])
    return product.reshape(*taps[0].shape[:-1], groups * n)


def _window_reduce(spec, dims, x, weights=None):
    if spec.attr("kind") == "max":
        return np.max(_windows(spec, x, -np.inf), axis=0)
    if weights is not None:
        attrs = {name: value for name, value in spec.attrs if name != "kind"}
        return ROWS["depthwise_conv"].reference(_precise(x), _precise(weights), **attrs)
    taps = _windows(spec, x, 0)
    counts = np.sum(_windows(spec, np.ones_like(x), spec.attr("counts_padding")), axis=0)
    with np.errstate(all="ignore"):
        return np.sum(taps, axis=0) / counts


def _group_rows(spec, dims, groups_of):
    kind, groups = spec.attr("kind"), spec.attr("groups")
    if kind == "offsets":
        return np.searchsorted(np.sort(groups_of), np.arange(groups + 1))
    order = np.argsort(groups_of, kind="stable")
    return np.argsort(order) if kind == "places" else order


def _pack_int4(spec, dims, weight):
    weight = _in_order(weight.view("<u4"), (0, 2, 4, 6, 1, 3, 5, 7)).view(np.uint8)
    return _pack_b(Spec("", (), spec.result, (), (("transposed", True),)), dims, weight.view("<u4"))


def _in_order(words, order):
    """Each word with the nibbles that `order` numbers, from the lowest on."""
    nibbles = words[..., None] >> (4 * np.array(order, np.uint32)) & 15
    moved = nibbles << np.arange(0, 32, 4, dtype=np.uint32)
    return np.ascontiguousarray(moved.sum(-1, dtype=np.uint32))


def _nibbles(packed):
    """The integers of 4-bit weights, from bytes."""
    pairs = np.stack([packed & 15, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1).astype(np.int64) - 8


def _quantized_matmul_packed(spec, dims, a, weight, scales):
    parts = [x.reshape(*x.shape[:3], -1).swapaxes(1, 2) for x in (weight, scales)]
    weight, scales = (x.reshape(-1, x.shape[2] * x.shape[3]) for x in parts)
    if weight.dtype == np.uint32:
        weight = _nibbles(_in_order(weight, (0, 4, 1, 5, 2, 6, 3, 7)).view(np.uint8))
    product = _dequantized_product(a, weight, scales, spec.attr("group"))
    return product[..., : size(spec.result.shape[-1], dims)]


def _rounded_matmul_packed(spec, dims, a, weight, scales):
    group = spec.attr("group")
    count = a.shape[-1] // (group + 8)
    groups = np.ascontiguousarray(a).reshape(*a.shape[:-1], count, group + 8)
    steps, integers = groups[..., :4].view("<f4"), groups[..., 8:].view(np.int8)
    if weight.dtype == np.uint32:
        eights = integers.reshape(*integers.shape[:-1], group // 8, 8)
        integers = eights[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(integers.shape)
    left = (_precise(integers) * _precise(steps)).reshape(*a.shape[:-1], count * group)
    return _quantized_matmul_packed(spec, dims, left, weight, scales)


def _quantized_matmul(spec, dims, x, weight, scales, minimums=None):
    weight, group = _nibbles(weight) if spec.attr("bits") == 4 else weight, spec.attr("group")
    if minimums is None:
        return _dequantized_product(x, weight, scales, group)
    integers = weight + 8 if spec.attr("bits") == 4 else weight
    wide = integers * np.repeat(_precise(scales), group, axis=1)
    return _precise(x) @ (wide + np.repeat(_precise(minimums), group, axis=1)).T


def _dequantized_product(x, integers, scales, group):
    return _precise(x) @ (integers * np.repeat(_precise(scales), group, axis=1)).T


def _slice(spec, dims, x):
    counts = shape(spec.result.shape, dims)
    starts = shape(spec.starts, dims)
    for axis, (start, step) in enumerate(zip(starts, spec.attr("steps"), strict=True)):
        x = np.take(x, start + step * np.arange(counts[axis]), axis=axis)
    return x


def _gather(spec, dims, table, indices):
    limit = table.shape[spec.attr("axis")]
    return np.take(table, np.clip(indices, 0, limit - 1), axis=spec.attr("axis"))


def _top_k(spec, dims, x):
    """By a stable sort of the ranks of the values, NaN best, and of their places."""
    ranks = np.unique(
        np.where(np.isnan(x), 0, x) if x.dtype.kind == "f" else x, return_inverse=True
    )
    order = ranks[1].reshape(x.shape).astype(np.int64)
    order = order if spec.attr("smallest") else -order
    if x.dtype.kind == "f":
        order = np.where(np.isnan(x), order.min(initial=0) - 1, order)
    return np.argsort(order, axis=-1, kind="stable")[..., : size(spec.result.shape[-1], dims)]


def _iota(spec, dims, start, step):
    count = size(spec.result.shape[0], dims)
    (first,) = shape(spec.starts, dims)
    return (
        start + np.asarray(first).astype(start.dtype) + np.arange(count).astype(start.dtype) * step
    )


def _take_along(spec, dims, x, indices):
    places = np.clip(indices, 0, x.shape[-1] - 1).astype(np.int64)
    return np.take_along_axis(x, places, axis=-1)


def _rope(spec, dims, x, cos, sin):
    rope = ROWS["rope"].compute
    return rope(*map(_precise, (x, cos, sin)), interleaved=spec.attr("interleaved"))


def _ragged(spec, dims, *operands):
    values = size(spec.result.shape[-1], dims)
    attrs = {name: value for name, value in spec.attrs if name != "latent"}
    return ROWS[spec.op].compute(*operands, **attrs, value_size=values)


def _paged(spec, dims, *operands):
    return ROWS[spec.op].compute(*operands, **dict(spec.attrs))


_ROOTS = {
    "rope": _rope,
    **dict.fromkeys(("ragged_attention", "paged_attention"), _ragged),
    **dict.fromkeys(("paged_write", "penalize", "sample_tokens", "scatter"), _paged),
    "random_uniform": lambda spec, dims, seeds: ROWS["random_uniform"].compute(
        seeds, size=size(spec.result.shape[-1], dims)
    ),
    "top_k": _top_k,
    "cumsum": lambda spec, dims, x: np.cumsum(_precise(x), axis=spec.attr("axis")),
    "iota": _iota,
    "take_along": _take_along,
    "reduce": _reduce,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "pack_b": _pack_b,
    "matmul_packed": _matmul_packed,
    "pack_int4": _pack_int4,
    "quantized_matmul_packed": _quantized_matmul_packed,
    "rounded_matmul_packed": _rounded_matmul_packed,
    "round_rows": _paged,
    "quantized_matmul": _quantized_matmul,
    "matmul": _matmul,
    **dict.fromkeys(("grouped_matmul", "grouped_matmul_packed"), _grouped_matmul),
    "quantized_grouped_matmul": _scaled_groups,
    "quantized_grouped_matmul_packed": _scaled_groups,
    "rounded_grouped_matmul_packed": _scaled_groups,
    "group_rows": _group_rows,
    **dict.fromkeys(("window_matmul", "window_matmul_packed"), _window_matmul),
    "window_reduce": _window_reduce,
    "integer_matmul": _matmul,
    "float8_matmul": _matmul,
    "integer_matmul_packed": _matmul_packed,
    "transpose": lambda spec, dims, x: np.transpose(x, spec.attr("permutation")),
    "concat": lambda spec, dims, *xs: np.concatenate(xs, axis=spec.attr("axis")),
    "slice": _slice,
    "gather": _gather,
}
