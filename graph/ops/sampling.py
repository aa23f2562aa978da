"""Random numbers that are a function of their seeds, and the choice of tokens by them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops import costs
from heddle.graph.ops.declare import row
from heddle.graph.ops.elementwise import cast, exp, log, maximum, minimum, where
from heddle.graph.ops.logic import greater
from heddle.graph.ops.reductions import max as _max
from heddle.graph.ops.reductions import sum as _sum
from heddle.graph.ops.row import Array, Attrs, Cost, Types
from heddle.graph.ops.row import sample as case
from heddle.graph.ops.selection import take_along
from heddle.graph.ops.shaping import broadcast_to, concat, reshape
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
    makes_sizes=True,
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


_LOGITS = (DType.float32, DType.float16, DType.bfloat16)

SAMPLING, SAMPLING_INTEGERS = 6, 2
"""Columns of `StepBatch`'s arrays."""

ONE = 2.0**30
"""The weight of the largest logit of a row."""


def _check(names: Sequence[str], types: Types, wanted: Sequence[tuple[DType, int]]) -> None:
    for name, type, (dtype, rank) in zip(names, types, wanted, strict=False):
        if type.dtype is not dtype or type.rank != rank:
            raise GraphError(f"{name}: wanted {dtype} of rank {rank}, got {type}")


def _check_logits(type: TensorType) -> None:
    if type.dtype not in _LOGITS or type.rank != 2:
        raise GraphError(f"logits: wanted float32, float16 or bfloat16 of rank 2, got {type}")


def _check_sizes(names: Sequence[str], types: Types, wanted: Sequence[Shape]) -> None:
    for name, type, shape in zip(names, types, wanted, strict=False):
        if type.shape != shape:
            raise GraphError(f"{name}: wanted {shape}, got {type.shape}")


def _tokens(types: Types, attrs: Attrs) -> DType:
    """float32, float16 or bfloat16 logits, float32, int64, an int32 mask; the result is int64."""
    _check_logits(types[0])
    names = ("sampling", "sampling_integers", "steps", "bitmask")
    wanted = ((DType.float32, 2), (DType.int64, 2), (DType.int64, 1), (DType.int32, 2))
    _check(names, types[1:], wanted)
    return DType.int64


def _token_of_each_row(types: Types, attrs: Attrs) -> Shape:
    """`[rows, vocabulary]`, `[rows, 6]`, `[rows, 2]`, `[rows]`, `[rows, words]` give `[rows]`."""
    rows = types[0].shape[0]
    sizes = [Shape((rows, SAMPLING)), Shape((rows, SAMPLING_INTEGERS)), Shape((rows,))]
    sizes += [Shape((rows, type.shape[1])) for type in types[4:]]
    _check_sizes(("sampling", "sampling_integers", "steps", "bitmask"), types[1:], sizes)
    return Shape((rows,))


_STEP = ("float32: m 6", "int64: m 2", "int64: m")


@row(
    dtype=_tokens,
    shape=_token_of_each_row,
    samples=(case("m n", *_STEP), case("m n", *_STEP, "int32: m b")),
    promotion="none",
    cost=costs.each_operand(costs.EXP),
)
def sample_tokens(
    logits: Array,
    sampling: Array,
    sampling_integers: Array,
    steps: Array,
    bitmask: Array | None = None,
) -> Array:
    """The next token of each row of logits: a function of this row of the operands alone.

    A row of `sampling` is temperature, top_p, min_p (and three penalties, which `penalize` takes),
    one of `sampling_integers` top_k and seed. Where there is a bitmask, only tokens t whose bit
    t % 32 of word t // 32 is set are looked at. Of temperature 0 (or below), and of top_k 1, the
    answer is the first of the largest logits. Else, in this order:

    1. A token's weight is `e^((x - largest) / temperature)` in units of 2^-30, rounded: below a
       2^31st part of the best one's none is drawn. Temperatures end at 2^-128 and at 2^126.
    2. The `top_k` largest logits stay, of equal ones the first; 0 or less: all.
    3. Of these stay the best ones until they have `top_p` of the weight together, at least one
       (Holtzman et al., arXiv:1904.09751).
    4. Of these stay those of at least `min_p` of the best one's weight (arXiv:2407.01082).
    5. The token is where the running sum of the weights, in the order of tokens, passes u times
       their sum: u of 46 bits from `random_uniform` for the seed and the row's step.

    A row whose largest logit is not a finite number (NaN, or nothing is allowed) gives -1. A NaN
    stands for temperature 0, top_p 1 or min_p 0.
    """
    seeds = np.stack([sampling_integers[:, 1], steps], axis=1)
    first, second = random_uniform.row.compute(seeds, size=Dim(2)).astype(np.float64).T
    uniform = (first - 2.0**-24) + second * 2.0**-23
    allowed = np.ones(logits.shape, bool)
    if bitmask is not None:
        token = np.arange(min(logits.shape[1], 32 * bitmask.shape[1]))
        allowed[:, len(token) :] = False
        allowed[:, : len(token)] = bitmask[:, token // 32] >> (token % 32) & 1
    scores = np.where(allowed, logits, -np.inf)
    return np.array(
        [
            _draw(scores[i], sampling[i, :3], sampling_integers[i, 0], uniform[i])
            for i in range(len(logits))
        ],
        np.int64,
    )


def _draw(x: Array, sampling: Array, top_k: int, uniform: float) -> int:
    temperature, top_p, min_p = map(float, np.where(np.isnan(sampling), (0, 1, 0), sampling))
    top = np.max(x, initial=-np.inf)
    if not np.isfinite(top):
        return -1
    if temperature <= 0 or top_k == 1:
        return int(np.argmax(x))
    below = (x - top).astype(np.float64) / np.clip(temperature, 2.0**-128, 2.0**126)
    weights = np.floor(np.exp(below) * ONE + 0.5)
    kept = np.argsort(-x, kind="stable")[: top_k if top_k > 0 else len(x)]
    budget = max(1.0, np.ceil(weights[kept].sum() * min(top_p, 1.0)))
    kept = kept[np.cumsum(weights[kept]) - weights[kept] < budget]
    kept = np.sort(kept[weights[kept] >= min(min_p, 1.0) * ONE])
    sums = np.cumsum(weights[kept])
    return int(kept[np.searchsorted(sums, np.floor(sums[-1] * uniform), side="right")])


def _penalized(types: Types, attrs: Attrs) -> DType:
    """float32, float16 or bfloat16 logits, float32, int64 and int64; that of the logits."""
    _check_logits(types[0])
    wanted = ((DType.float32, 2), (DType.int64, 2), (DType.int64, 1))
    _check(("sampling", "seen", "seen_offsets"), types[1:], wanted)
    return types[0].dtype


def _as_logits(types: Types, attrs: Attrs) -> Shape:
    """`[rows, vocabulary]`, that of the logits; `[rows, 6]`, `[entries, 2]`, `[rows + 1]`."""
    rows, entries = types[0].shape[0], types[2].shape[0]
    sizes = [Shape((rows, SAMPLING)), Shape((entries, 2)), Shape((rows + 1,))]
    _check_sizes(("sampling", "seen", "seen_offsets"), types[1:], sizes)
    return types[0].shape


@row(
    dtype=_penalized,
    shape=_as_logits,
    samples=(case("0 n", "float32: 0 6", "int64: s 2", "int64: 1"),),  # offsets may not fall
    promotion="none",
    follows_first=True,
)
def penalize(logits: Array, sampling: Array, seen: Array, seen_offsets: Array) -> Array:
    """The logits with the penalties of their rows for tokens that were there before.

    Entry i of `seen` is a token and how often it was generated, 0 for one of the prompt alone. Row
    r has the entries from `seen_offsets[r]` to `seen_offsets[r + 1]`, no token twice. Columns 3 to
    5 of `sampling` are the penalties. The logit of a token in `seen` is divided by the repetition
    penalty where it is positive, else multiplied by it (Keskar et al., arXiv:1909.05858); then the
    frequency penalty times the count, and the presence penalty where there is one, are taken off.

    A token that is not in the vocabulary, or offsets that fall, are an InputError of the call.
    """
    result = logits.copy()
    for i, (start, stop) in enumerate(pairwise(seen_offsets)):
        frequency, presence, repetition = sampling[i, 3:]
        for token, count in seen[start:stop]:
            x = result[i, token]
            x = x / repetition if x > 0 else x * repetition
            result[i, token] = x - frequency * np.float32(count) - (presence if count > 0 else 0)
    return result


def log_probability(logits: TensorValue, tokens: TensorValue) -> TensorValue:
    """The logarithm of each token's probability by `softmax`, as float32 `[rows]`.

    What it says of a token -1 means nothing.

    Args:
        logits: Floats `[rows, vocabulary]`, before or after penalties.
        tokens: int64 `[rows]`.
    """
    for name, value in (("logits", logits), ("tokens", tokens)):
        _check_value("log_probability", name, value)
    rows = tokens.shape
    x = cast(logits, DType.float32)
    top = _max(x)
    chosen = take_along(x, reshape(maximum(tokens, 0), (*rows, Dim(1))))
    return reshape(chosen - top - log(_sum(exp(x - top))), rows)


def _check_value(function: str, name: str, value: object) -> None:
    if not isinstance(value, TensorValue):
        raise graph_error(f"{function}: {name}: wanted a tensor value, got {type(value).__name__}")


def sample(
    logits: TensorValue,
    seeds: TensorValue,
    temperature: TensorValue | float = 1.0,
    *,
    k: int | None = None,
    top_k: TensorValue | None = None,
    top_p: TensorValue | float | None = None,
    min_p: TensorValue | float | None = None,
) -> TensorValue:
    """A token for each row of logits `[..., n]`, as int64 `[..., 1]`: `sample_tokens`, in words.

    Args:
        logits: float32, float16 or bfloat16.
        seeds: int64 `[..., 2]`: a seed, and a step that is another one for each token.
        temperature: Not negative; as `top_k`, `top_p` and `min_p` a number, or `[..., 1]`.
        k: How many candidates there are at most, whatever `top_k` says; None: all.
        top_k: int64.
        top_p: Above 0.
        min_p: From 0 to 1.
    """
    for name, value in (("logits", logits), ("seeds", seeds)):
        _check_value("sample", name, value)
    rows = Shape(logits.shape[:-1]).elements

    def tensor(value: TensorValue | float | None, default: float, dtype: DType) -> TensorValue:
        if isinstance(value, TensorValue):
            return value
        value = default if value is None else value
        return logits.graph.constant(value, dtype, logits.device)

    def column(value: TensorValue | float | None, default: float, dtype: DType) -> TensorValue:
        shape = Shape((*logits.shape[:-1], Dim(1)))
        wide = broadcast_to(tensor(value, default, dtype), shape=shape)
        return reshape(wide, (rows, Dim(1)))

    if k is not None:
        most = tensor(top_k, k, DType.int64)
        top_k = where(greater(most, 0), minimum(most, k), k)
    given = ((temperature, 1.0), (top_p, 1.0), (min_p, 0.0), (0.0, 0.0), (0.0, 0.0), (1.0, 1.0))
    columns = [column(*value, DType.float32) for value in given]
    pairs = reshape(seeds, (rows, Dim(2)))
    integers = concat(column(top_k, 0, DType.int64), pairs[:, 0:1], axis=1)
    flat = reshape(logits, (rows, logits.shape[-1]))
    tokens = sample_tokens(flat, concat(*columns, axis=1), integers, pairs[:, 1])
    return reshape(tokens, (*logits.shape[:-1], Dim(1)))
