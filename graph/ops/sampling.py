"""Random numbers that are a function of their seeds, and the choice of tokens by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops import costs
from heddle.graph.ops.declare import row
from heddle.graph.ops.elementwise import cast, log, where
from heddle.graph.ops.logic import equal, greater_equal, less
from heddle.graph.ops.reductions import softmax
from heddle.graph.ops.row import Array, Attrs, Cost, Types
from heddle.graph.ops.row import sample as case
from heddle.graph.ops.selection import argmax, take_along
from heddle.graph.ops.selection import top_k as _top_k
from heddle.graph.ops.sequences import cumsum, iota
from heddle.graph.types import Shape, TensorType
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError

MULTIPLIERS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_WORD = np.uint64(0xFFFFFFFF)


def philox(counter: Sequence[Array], key: Sequence[Array]) -> list[Array]:
    """Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

    Four words of the counter and two of the key give four random ones, all below 2^32 in uint64.
    """
    (a, b, c, d), (first, second) = counter, key
    for _ in range(10):
        left, right = (np.uint64(m) * x for m, x in zip(MULTIPLIERS, (a, c), strict=True))
        a, b = (right >> np.uint64(32)) ^ b ^ first, right & _WORD
        c, d = (left >> np.uint64(32)) ^ d ^ second, left & _WORD
        first, second = (
            (k + np.uint64(w)) & _WORD for k, w in zip((first, second), WEYL, strict=True)
        )
    return [a, b, c, d]


def _seeded(types: Types, attrs: Attrs) -> DType:
    """int64 or uint64 seeds; the result is float32."""
    if types[0].dtype not in (DType.int64, DType.uint64):
        raise GraphError(f"seeds: wanted int64 or uint64, got {types[0].dtype}; cast it first")
    return DType.float32


def _drawn(types: Types, attrs: Attrs) -> Shape:
    """Seeds `[..., 2]` give `[..., size]`."""
    shape = types[0].shape
    if not shape or shape[-1] != 2:
        raise GraphError(f"seeds: wanted shape [..., 2], got {shape}")
    return Shape((*shape[:-1], attrs["size"]))


def _rounds(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    return costs.computed(types, result, result.shape.elements * 24)


@row(
    dtype=_seeded,
    shape=_drawn,
    samples=(
        case("int64: m 2", size=Dim(70)),
        case("uint64: 2", size=Dim(5)),
    ),
    promotion="none",
    cost=_rounds,
)
def random_uniform(seeds: Array, *, size: Dim) -> Array:
    """`size` numbers between 0 and 1 for each pair of a seed and a step, by Philox4x32-10.

    Element i is word i % 4 for the counter (i // 4, step) and the key seed: the same wherever the
    pair stands. A word w gives (floor(w / 512) + 1/2) / 2^23, so neither 0 nor 1.
    """
    seed, step = (seeds[..., i, None].astype(np.uint64) for i in (0, 1))
    number = np.arange(int(size), dtype=np.uint64)
    blocks = np.broadcast_to(number // np.uint64(4), (*seeds.shape[:-1], int(size)))
    high = np.uint64(32)
    counter = [blocks & _WORD, blocks >> high, step & _WORD, step >> high]
    words = philox(counter, [seed & _WORD, seed >> high])
    chosen = np.choose((number % np.uint64(4)).astype(np.int64), words)
    return ((chosen >> np.uint64(9)) + 0.5).astype(np.float32) * np.float32(2.0**-23)


def sample(
    logits: TensorValue,
    seeds: TensorValue,
    temperature: TensorValue | float = 1.0,
    *,
    k: int,
    top_k: TensorValue | None = None,
    top_p: TensorValue | float | None = None,
    min_p: TensorValue | float | None = None,
) -> TensorValue:
    """A token for each row of logits `[..., n]`, as int64 `[..., 1]`: a function of its inputs.

    The `k` largest logits over `temperature` are the candidates; at temperature 0 the first is the
    answer. Else those stay that are among the first `top_k`, whose better ones have less than
    `top_p` of the candidates' probability together (Holtzman et al., arXiv:1904.09751), and that
    have `min_p` of the best one's probability (Nguyen et al., arXiv:2407.01082). One of them is
    drawn by its probability: the largest sum of logit and Gumbel noise from `random_uniform`.

    Args:
        logits: Floats.
        seeds: int64 `[..., 2]`: a seed, and a step that is another one for each token.
        temperature: Not negative; as `top_k`, `top_p` and `min_p` a number, or `[..., 1]`.
        k: How many candidates there are at most.
        top_k: int64.
        top_p: Above 0.
        min_p: From 0 to 1.
    """
    for name, value in (("logits", logits), ("seeds", seeds)):
        if not isinstance(value, TensorValue):
            raise graph_error(f"sample: {name}: wanted a tensor value, got {type(value).__name__}")
    graph = logits.graph
    if not isinstance(temperature, TensorValue):
        temperature = graph.constant(temperature, DType.float32, logits.device)
    values, indices = _top_k(cast(logits, DType.float32), k)
    greedy = equal(temperature, 0.0)
    scores = values / where(greedy, 1.0, temperature)
    shares = softmax(scores)
    kept = []
    if top_k is not None:
        start, step = (graph.constant(number, DType.int64, logits.device) for number in (0, 1))
        kept.append(less(iota(start, step, size=Dim(k)), top_k))
    if top_p is not None:
        kept.append(less(cumsum(shares) - shares, top_p))
    if min_p is not None:
        kept.append(greater_equal(shares, shares[..., 0:1] * min_p))
    noise = -log(-log(random_uniform(seeds, size=Dim(k))))
    drawn = scores + noise
    for flags in kept:
        drawn = where(flags, drawn, float("-inf"))
    return take_along(indices, where(greedy, 0, argmax(drawn)))
