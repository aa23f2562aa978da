"""Specs of attention over ragged rows, and random batches for them."""

import numpy as np
from reference import numpy_dtype

from heddle.graph.ops import ROWS
from heddle.kernels import row_spans
from heddle.kernels.spec import Operand, Spec


def attention(
    op,
    dtype="float32",
    cache=None,
    heads=4,
    key_heads=2,
    size=32,
    block=4,
    causal=True,
    window=0,
    softcap=0.0,
    sinks=False,
    values=None,
    latent=False,
):
    """`"ragged_attention"` or `"paged_attention"`, with `values` of a head as its value, or all.

    `latent`: keys and values are the same array.
    """
    q, made = (Operand(dtype, ("d0", heads, each)) for each in (size, values or size))
    attrs = (("causal", causal), ("scale", 0.2), ("softcap", softcap), ("window", window))
    attrs = tuple(sorted((*attrs, *((("latent", True),) if latent else ()))))
    sink = (Operand("float32", (heads,)),) * sinks
    if op == "ragged_attention":
        k = Operand(cache or dtype, ("d1", key_heads, size))
        offsets = Operand("int64", ("d2",))
        return Spec(op, (q, k, k, offsets, offsets, *sink), made, (made,), attrs)
    k = Operand(cache or dtype, ("d1", block, key_heads, size))
    return Spec(op, (q, k, k, *tables(), *sink), made, (made,), attrs)


def writing(dtype="float32", heads=2, size=32, block=4):
    cache, new = Operand(dtype, ("d1", block, heads, size)), Operand(dtype, ("d0", heads, size))
    return Spec("paged_write", (cache, new, *tables()), cache, (cache,))


def tables():
    return (
        Operand("int64", ("d2",)),
        Operand("int64", ("d3",)),
        Operand("int32", ("d3", "d4")),
    )


def batch(spec, counts, lengths, seed=0):
    """Dims and arrays for rows of `counts` tokens that end `lengths` keys.

    What is behind a row's length must not be looked at: tables go on with blocks that do not exist,
    and a block that no row has is full of NaN, as are the places after a row's last key. Sinks are
    like scores, but those of the first two heads, which take all of a softmax, and nothing.
    """
    rng = np.random.default_rng(seed)

    def random(*shape, kind=spec.operands[1].dtype):
        return rng.standard_normal(shape, np.float32).astype(numpy_dtype(kind))

    query = random(sum(counts), *spec.operands[0].shape[1:], kind=spec.operands[0].dtype)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    dims = {"d0": sum(counts), "d2": len(counts) + 1}
    if spec.op == "ragged_attention":
        keys = [random(sum(lengths), *spec.operands[1].shape[1:]) for _ in range(2)]
        keys[1] = keys[0] if spec.attr("latent") else keys[1]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return dims | {"d1": sum(lengths)}, [query, *keys, offsets, ends, *sinks(spec, rng)]
    size = spec.operands[0 if spec.op == "paged_write" else 1].shape[1]
    needed = [-(-length // size) for length in lengths]
    order = iter(rng.permutation(sum(needed) + 1).tolist())
    table = np.full((len(counts), max(needed) + 2), 2**30, np.int32)
    inner = spec.operands[1].shape[-2:]
    kind = numpy_dtype(spec.operands[1].dtype)
    nothing = 0 if kind.kind == "i" else np.nan
    caches = [np.full((sum(needed) + 1, size, *inner), nothing, kind) for _ in range(2)]
    for row, length in enumerate(lengths):
        for number in range(needed[row]):
            table[row, number] = block = next(order)
            held = min(size, length - number * size)
            for cache in caches:
                cache[block, :held] = random(held, *inner)
    dims |= {"d1": sum(needed) + 1, "d3": len(counts), "d4": table.shape[1]}
    tail = [offsets, np.array(lengths, np.int64), table]
    if spec.op == "paged_write":
        return dims, [caches[0], random(sum(counts), *inner), *tail]
    caches[1] = caches[0] if spec.attr("latent") else caches[1]
    return dims, [query, *caches, *tail, *sinks(spec, rng)]


def sinks(spec, rng):
    """The array of sinks, where there are some."""
    number = row_spans.sinks_of(spec)
    if number is None:
        return []
    scores = rng.normal(0, 2, spec.operands[number].shape).astype(np.float32)
    scores[:2] = (1e4, -1e4)[: len(scores)]
    return [scores]


def rotating(
    dtype="float32",
    cache=None,
    heads=6,
    key_heads=2,
    size=32,
    block=4,
    interleaved=False,
    part=None,
):
    """`rotate_and_write`: queries and keys of `dtype`, which are rounded to that of the cache.

    Of their heads `part` elements turn, or all.
    """
    held = cache or dtype
    kept = Operand(held, ("d1", 4, key_heads, size))
    key, query = (Operand(dtype, ("d0", count, size)) for count in (key_heads, heads))
    value, turned = Operand(held, key.shape), Operand(held, query.shape)
    angles = Operand("float32", ("d0", 1, (part or size) // 2))
    return Spec(
        "rotate_and_write",
        (kept, kept, key, value, query, angles, angles, *tables()),
        kept,
        (kept, kept, turned),
        (("interleaved", interleaved),),
    )


def rotation(spec, counts, lengths, seed=0):
    """Dims and arrays for such a step, as `batch` has them for others."""
    write = writing(spec.result.dtype, *spec.result.shape[2:], spec.result.shape[1])
    dims, (keys, _, *tail) = batch(write, counts, lengths, seed)
    _, (values, new, *_) = batch(write, counts, lengths, seed + 1)
    rng = np.random.default_rng(seed)

    def random(operand):
        shape = (dims["d0"], *operand.shape[1:])
        return rng.standard_normal(shape, np.float32).astype(numpy_dtype(operand.dtype))

    key, query, cos, sin = (random(spec.operands[i]) for i in (2, 4, 5, 6))
    return dims, [keys, values, key, new, query, cos, sin, *tail]


def rotated(spec, arrays):
    """The keys in their cache, the values in theirs, and the queries, by the rows of the ops."""
    keys, values, key, value, query, cos, sin, *tail = arrays
    turn, write = ROWS["rope"].compute, ROWS["paged_write"].compute
    key, query = (
        turn(*(a.astype(np.float32) for a in (x, cos, sin)), **dict(spec.attrs)).astype(keys.dtype)
        for x in (key, query)
    )
    return write(keys, key, *tail), write(values, value, *tail), query
