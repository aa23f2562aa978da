"""Calls for which accesses of warps are counted: aligned, of several tiles, where they are fast."""

import cuda_cases as cases
import minimum_cases
import numpy as np
import ragged_batches as ragged
import row_groups
import sampling_rows
import scattered
import window_specs
from cuda_cases import plain, tensor
from cuda_traffic_call import Call, call

from heddle.kernels.spec import Spec


def of_rows(spec: Spec, counts: list[int], lengths: list[int]) -> Call:
    """Attention of ragged rows of so many tokens and keys."""
    make = ragged.rotation if spec.op == "rotate_and_write" else ragged.batch
    dims, arrays = make(spec, counts, lengths)
    return Call(spec, dims, lambda: arrays)


def two_groups() -> Call:
    """A product of 70 rows by each of two matrices."""
    kind = "grouped_matmul"
    spec = row_groups.multiplying(kind, "bfloat16", 64, 128, "d0", 2, transposed=True)
    dims = {"d0": 140}
    return Call(spec, dims, lambda: row_groups.arrays(spec, dims, [0, 70, 140]))


def two_scaled(held: str, *offsets: int) -> Call:
    """A product by two matrices of 8 or 4 bits, of so many rows each."""
    spec = row_groups.scaling(
        "quantized_grouped_matmul", "bfloat16", held, 512, 128, "d0", 2, group=64
    )
    dims = {"d0": offsets[-1]}
    return Call(spec, dims, lambda: row_groups.arrays(spec, dims, offsets))


def moves(dtype: str) -> dict[str, Call]:
    x = tensor(dtype, "d0", 64, 128)
    turned = tensor(dtype, "d0", 128, 64)
    return {
        "map": call(cases.elementwise(dtype, "d0", 512), 40),
        "reduce rows": call(
            plain("reduce", [x], tensor(dtype, "d0", 64, 1), axis=2, kind="max"), 4
        ),
        "reduce columns": call(
            plain("reduce", [x], tensor(dtype, "d0", 1, 128), axis=1, kind="max"), 8
        ),
        "transpose": call(plain("transpose", [x], turned, permutation=(0, 2, 1)), 4),
        "transpose of rows": call(
            plain("transpose", [x], tensor(dtype, 64, "d0", 128), permutation=(1, 0, 2)), 8
        ),
        "concat": call(plain("concat", [x, x], tensor(dtype, "d0", 128, 128), axis=1), 4),
        "slice": call(
            plain("slice", [x], tensor(dtype, "d0", 20, 64), starts=(0, 1, 64), steps=(1, 2, 1)), 8
        ),
        "gather": Call(
            plain(
                "gather",
                [tensor(dtype, 100, 128), tensor("int64", "d0")],
                tensor(dtype, "d0", 128),
                axis=0,
            ),
            {"d0": 64},
        ),
    }


def rows(dtype: str) -> dict[str, Call]:
    """What is computed of rows: by a warp each, and by a block each."""
    short, long, any_length = (tensor(dtype, "d0", n) for n in (1024, 4096, "d1"))
    weights = tensor(dtype, 1024), tensor(dtype, 4096)
    heads = tensor(dtype, "d0", "d1", 4, 128)
    angles, fewer = (tensor(dtype, "d1", 1, half) for half in (64, 48))
    best, columns = tensor("int64", "d0", 8), tensor(dtype, 2, "d0", 96)
    return {
        "softmax, a warp": call(plain("softmax", [short], short), 16),
        "softmax, a block": call(plain("softmax", [any_length], any_length), 4, 4096),
        "layer_norm, a block": call(
            plain("layer_norm", [long, weights[1], weights[1]], long, epsilon=1e-5), 4
        ),
        "rms_norm, a warp": call(plain("rms_norm", [short, weights[0]], short, epsilon=1e-6), 16),
        "reduce mean, a block": call(
            plain("reduce", [any_length], tensor(dtype, "d0", 1), axis=1, kind="mean"), 4, 4096
        ),
        "rope, halves": call(
            plain("rope", [heads, angles, angles], heads, interleaved=False), 2, 8
        ),
        "rope, neighbours": call(
            plain("rope", [heads, angles, angles], heads, interleaved=True), 2, 8
        ),
        "rope, a part": call(plain("rope", [heads, fewer, fewer], heads, interleaved=False), 2, 8),
        "cumsum, a warp": call(plain("cumsum", [short], short, axis=1), 16),
        "cumsum, a block": call(plain("cumsum", [any_length], any_length, axis=1), 4, 4096),
        "cumsum, columns": call(plain("cumsum", [columns], columns, axis=1), 128),
        "top_k, a warp": call(plain("top_k", [short], best, smallest=False), 16),
        "top_k, a block": call(plain("top_k", [any_length], best, smallest=False), 2, 4096),
    }


def other_moves() -> dict[str, Call]:
    x = (1, 9, 17, 64)
    return {
        "take_along": call(
            plain(
                "take_along",
                [tensor("float32", "d0", 100), tensor("int64", "d0", 64)],
                tensor("float32", "d0", 64),
            ),
            16,
        ),
        "scatter": Call(
            scattered.scattering("float32", (), 64, "d0", (128,)),
            {"d0": 64},
            lambda: scattered.operands(scattered.scattering("float32", (), 64, 64, (128,))),
        ),
        "random_uniform": call(
            plain("random_uniform", [tensor("int64", "d0", 2)], tensor("float32", "d0", 512)), 8
        ),
        "group_rows": Call(
            row_groups.sorting("order", 8),
            {"d0": 512},
            lambda: [np.random.default_rng(0).integers(0, 8, 512)],
        ),
        "window_reduce": call(window_specs.reducing("max", "bfloat16", x, (3, 3), (2, 2))),
        "paged_write": of_rows(ragged.writing("bfloat16", 8, 128, 16), [1, 30, 17], [40, 30, 64]),
        "rotate_and_write": of_rows(
            ragged.rotating("bfloat16", heads=8, key_heads=2, size=128, block=16), [1, 30], [9, 40]
        ),
        "rotate_and_write of a part": of_rows(
            ragged.rotating("bfloat16", heads=8, key_heads=2, size=128, block=16, part=96),
            [1, 30],
            [9, 40],
        ),
        "penalize": Call(
            sampling_rows.penalizing(),
            sampling_rows.penalties()[0],
            lambda: sampling_rows.penalties()[1],
        ),
        "sample_tokens": drawing(),
    }


def drawing() -> Call:
    logits = sampling_rows.logits(2, 8192)
    dims, arrays = sampling_rows.step(logits, 0.7, 0.9, 0.01, 40)
    return Call(sampling_rows.drawing(), dims, lambda: arrays)


def product(dtype: str, m, n, k, transposed: bool, **attrs) -> Spec:
    right = tensor(dtype, *((n, k) if transposed else (k, n)))
    result = tensor(dtype, m, n)
    return plain("matmul", [tensor(dtype, m, k), right], result, transposed=transposed, **attrs)


def bytes_of(m, n, k, transposed: bool) -> Spec:
    right = tensor("int8", *((n, k) if transposed else (k, n)))
    operands = [tensor("int8", m, k), right]
    return plain("integer_matmul", operands, tensor("int32", m, n), transposed=transposed)


def scaled(m, n: int, k: int, bits: int) -> Spec:
    weight = tensor("int8", n, k) if bits == 8 else tensor("uint8", n, k // 2)
    operands = [tensor("bfloat16", m, k), weight, tensor("bfloat16", n, k // 64)]
    return plain("quantized_matmul", operands, tensor("bfloat16", m, n), bits=bits, group=64)


def least(*sizes: int) -> Spec:
    return minimum_cases.with_minimums(scaled(*sizes))


def body(spec: Spec) -> Spec:
    return cases.fused(spec, prologue=False)


def windows(dtype: str, *shape: int) -> Call:
    return call(window_specs.plain(dtype, shape, 64, (3, 3), padding=(1, 1, 1, 1), biased=True))


def products() -> dict[str, Call]:
    """By fused multiply-adds and by mma.sync."""
    half = "bfloat16"
    return {
        "matmul, float32": call(product("float32", 128, 128, 48, False)),
        "matmul transposed, float32": call(product("float32", 128, 128, 48, True)),
        "matmul, float64": call(product("float64", 128, 128, 32, False)),
        "window_matmul, float32": windows("float32", 1, 8, 16, 16),
        "matmul, tiles": call(product(half, 128, 256, 128, False)),
        "matmul transposed, tiles": call(body(product(half, 128, 128, 128, True))),
        "matmul transposed, TF32": call(product("float32", 80, 128, 64, True, precision="tf32")),
        "matmul, TF32": call(product("float32", 80, 128, 64, False, precision="tf32")),
        "integer_matmul, tiles": call(bytes_of(80, 128, 128, False)),
        "window_matmul, tiles": windows(half, 1, 5, 16, 16),
        "grouped_matmul, tiles": two_groups(),
        "matmul, 16 rows": call(product(half, 16, 64, 512, False)),
        "matmul transposed, 16 rows": call(product(half, 16, 64, 512, True)),
        "matmul transposed, 64 rows": call(body(product(half, 64, 128, 256, True))),
        "matmul gated, 16 rows": call(cases.gated(product(half, 16, 128, 512, True))),
        "integer_matmul, 16 rows": call(bytes_of(16, 64, 512, True)),
        "quantized_matmul, 8 bits, 16 rows": call(scaled(16, 64, 512, 8)),
        "quantized_matmul, 4 bits, 16 rows": call(scaled(16, 64, 512, 4)),
        "quantized_matmul, 8 bits, 64 rows": call(scaled(64, 64, 512, 8)),
        "quantized_matmul, 4 bits, 64 rows": call(body(scaled(64, 64, 512, 4))),
        "quantized_matmul with minimums, 8 bits, 8 rows": call(least(8, 64, 512, 8)),
        "quantized_matmul with minimums, 4 bits, 16 rows": call(least(16, 64, 512, 4)),
        "quantized_grouped_matmul, 8 bits, 8 rows": two_scaled("int8", 0, 8, 8),
        "quantized_grouped_matmul, 4 bits, 16 rows": two_scaled("uint8", 0, 16, 32),
    }


def attention(heads: tuple[int, int], head: int, queries: int, keys: int, **attrs) -> Call:
    q, k = (tensor("bfloat16", 1, *side, head) for side in ((queries, heads[0]), (keys, heads[1])))
    options = {"causal": True, "layout": "bshd", "masked": False, "scale": 0.1, **attrs}
    return call(plain("attention", [q, k, k], q, **options))


def attentions() -> dict[str, Call]:
    paged, ragged_ = "paged_attention", "ragged_attention"
    of, half = ragged.attention, "bfloat16"
    return {
        "attention, float32": Call(cases.attention("float32"), {"d0": 16, "d1": 64}),
        "ragged_attention, float32": of_rows(of(ragged_), [5, 9], [40, 33]),
        "attention of 128": attention((2, 1), 128, 48, 128),
        "attention of 64": attention((2, 1), 64, 48, 128),
        "attention of 128, one query": attention((8, 1), 128, 1, 256),
        "ragged_attention of 64": of_rows(
            of(ragged_, half, heads=2, key_heads=1, size=64), [40, 20], [40, 100]
        ),
        "paged_attention of 128, one query": of_rows(
            of(paged, half, heads=8, key_heads=1, size=128, block=16), [1, 1], [130, 70]
        ),
        "attention of 256": attention((2, 1), 256, 48, 64),
        "paged_attention of 256, one query": of_rows(
            of(paged, half, heads=4, key_heads=1, size=256, block=16), [1, 1], [130, 70]
        ),
        "paged_attention of 8 bits, one query": of_rows(
            of(paged, half, "float8_e4m3fn", heads=8, key_heads=1, size=128, block=16),
            [1, 1],
            [130, 70],
        ),
        "paged_attention with sinks, one query": of_rows(
            of(paged, half, heads=8, key_heads=1, size=64, block=16, window=128, sinks=True),
            [1, 1],
            [190, 70],
        ),
        "paged_attention of latents, one query": latents(8),
        "paged_attention of latents, one query of 64 heads": latents(64),
    }


def latents(heads: int) -> Call:
    """One token of each of two rows, whose keys are as wide as they are in DeepSeek's models."""
    shape = {"heads": heads, "key_heads": 1, "size": 576, "values": 512, "block": 16}
    spec = ragged.attention("paged_attention", "bfloat16", latent=True, **shape)
    return of_rows(spec, [1, 1], [130, 70])


def by_warpgroups() -> dict[str, Call]:
    half = "bfloat16"
    of, rows_of = ragged.attention, ([70, 1], [140, 90])
    return {
        "matmul": call(product(half, 256, 128, 128, False)),
        "matmul transposed, a body": call(body(product(half, 256, 128, 128, True))),
        "integer_matmul": call(bytes_of(256, 128, 256, True)),
        "window_matmul": windows(half, 1, 10, 16, 64),
        "grouped_matmul": two_groups(),
        "quantized_matmul, 8 bits": call(scaled(130, 128, 128, 8)),
        "quantized_matmul, 4 bits": call(body(scaled(130, 128, 256, 4))),
        "quantized_matmul with minimums, 8 bits": call(least(130, 128, 128, 8)),
        "quantized_matmul with minimums, 4 bits": call(least(130, 128, 256, 4)),
        "quantized_grouped_matmul, 8 bits": two_scaled("int8", 0, 70, 140),
        "attention of 128": attention((2, 1), 128, 64, 256),
        "attention of 256": attention((2, 1), 256, 64, 128),
        "ragged_attention of 64": of_rows(
            of("ragged_attention", half, heads=1, key_heads=1, size=64), *rows_of
        ),
        "paged_attention of 64": of_rows(
            of("paged_attention", half, heads=1, key_heads=1, size=64, block=16), *rows_of
        ),
        "ragged_attention with sinks": of_rows(
            of("ragged_attention", half, heads=2, key_heads=1, size=64, sinks=True), *rows_of
        ),
    }


def _all() -> dict[str, tuple[str, Call]]:
    found = {}
    for dtype in ("bfloat16", "float32"):
        found |= {f"{name}, {dtype}": one for name, one in moves(dtype).items()}
    found |= {f"transpose, {dtype}": moves(dtype)["transpose"] for dtype in ("int8", "float64")}
    found |= rows("bfloat16") | other_moves() | products() | attentions()
    named = {name: ("sm_80", one) for name, one in found.items()}
    return named | {f"{name}, by wgmma": ("sm_90a", one) for name, one in by_warpgroups().items()}


CALLS: dict[str, tuple[str, Call]] = _all()
"""Each with the architecture that it is run for."""
