"""Operators that ONNX has no cases of: ONNX Runtime's, and lengths of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from heddle.graph import reference
from heddle.pipelines.onnx import file, importer
from heddle.runtime.errors import GraphError

BATCH, STEPS, HEADS, SIZE = 2, 3, 4, 8
CONTRIB = "com.microsoft"


def computed(
    kind: str,
    inputs: dict[str, Any],
    outputs: int = 1,
    known: tuple[str, ...] = (),
    domain: str = CONTRIB,
    version: int = 21,
    **attributes: Any,
) -> list[np.ndarray]:
    """What a model of one node gives; inputs that are None are left out, `known` are weights."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    results = [f"result_{number}" for number in range(outputs)]
    node = helper.make_node(kind, names, results, domain=domain, **attributes)
    held = {name: value for name, value in inputs.items() if value is not None}
    weights = [numpy_helper.from_array(held.pop(name), name) for name in known]
    types = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in held.items()
    ]
    found = [helper.make_tensor_value_info(name, 1, []) for name in results]
    graph = helper.make_graph([node], "one", types, found, weights)
    versions = [helper.make_opsetid("", version), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    built = importer.build(file.checked(model, "one"), "one", "one.onnx")
    return reference.evaluate(built.graph, list(held.values()), built.weights)


@pytest.fixture
def normal() -> Any:
    rng = np.random.default_rng(0)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def heads(x: np.ndarray, count: int = HEADS) -> np.ndarray:
    """`[batch, sequence, heads * size]` as `[batch, heads, sequence, size]`."""
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: Any = 0.0) -> np.ndarray:
    """Attention of heads, as rows."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    result = shares / shares.sum(-1, keepdims=True) @ v
    return result.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Halves of heads by tables `[sequence, size / 2]`."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def rows(normal: Any, *names: str) -> dict[str, np.ndarray]:
    return {name: normal(BATCH, STEPS, HEADS * SIZE) for name in names}


def masks() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Masks of 3 keys in each form, and whether a key is shown."""
    shown = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
    each = np.stack([shown, 1 - shown, shown], axis=1)
    return {
        "keys": (shown, shown[:, None, None]),
        "queries and keys": (each, each[:, None]),
        "lengths": (np.array([2, 1], np.int32), shown[:, None, None]),
    }


def test_what_a_norm_of_a_sum_adds_to_small_squares(normal: Any) -> None:
    """Less than others where nothing is said, as ONNX Runtime has it."""
    x, gamma = normal(BATCH, STEPS, SIZE) * np.float32(1e-3), np.ones(SIZE, np.float32)
    inputs = {"x": x, "skip": x, "gamma": gamma}
    for given, epsilon in ({}, 1e-12), ({"epsilon": 1e-3}, 1e-3):
        [found] = computed("SkipSimplifiedLayerNormalization", inputs, **given)
        close(found, 2 * x / np.sqrt(np.mean(4 * x**2, -1, keepdims=True) + epsilon))


@pytest.mark.parametrize("form", masks())
@pytest.mark.parametrize("hidden", [None, -1.5])
def test_what_a_mask_hides_has_a_small_share(normal: Any, form: str, hidden: float | None) -> None:
    three = rows(normal, "q", "k", "v")
    mask, shown = masks()[form]
    added, bias = normal(1, HEADS, STEPS, STEPS), normal(3 * HEADS * SIZE)
    given = {} if hidden is None else {"mask_filter_value": hidden}
    inputs = {**three, "bias": bias, "mask": mask, "added": added}
    [found] = computed("MultiHeadAttention", inputs, num_heads=HEADS, **given)
    parts = zip(three.values(), np.split(bias, 3), strict=True)
    q, k, v = (heads(x + part) for x, part in parts)
    close(found, attended(q, k, v, added + np.where(shown, 0, hidden or -10000.0)))


def test_new_keys_stand_behind_the_past(normal: Any) -> None:
    three, past = rows(normal, "q", "k", "v"), normal(2, BATCH, HEADS, 5, SIZE)
    inputs = {**three, "bias": None, "mask": None, "added": None, "pk": past[0], "pv": past[1]}
    found, key, value = computed(
        "MultiHeadAttention", inputs, outputs=3, num_heads=HEADS, unidirectional=1
    )
    q, k, v = map(heads, three.values())
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    np.testing.assert_array_equal(key, k)
    np.testing.assert_array_equal(value, v)
    close(found, attended(q, k, v, np.where(np.tri(STEPS, 5 + STEPS, 5), 0, -np.inf)))


def test_packed_heads_and_heads_of_a_cache_are_the_same(normal: Any) -> None:
    three = rows(normal, "q", "k", "v")
    [wanted] = computed("MultiHeadAttention", three, num_heads=HEADS)
    split = [x.reshape(BATCH, STEPS, HEADS, SIZE) for x in three.values()]
    forms = (
        {"q": np.stack(split, axis=3)},
        {"q": three["q"], "k": np.stack(split[1:], axis=3)},
        {"q": three["q"], "k": heads(three["k"]), "v": heads(three["v"])},
    )
    for form in forms:
        close(computed("MultiHeadAttention", form, num_heads=HEADS)[0], wanted)


def test_attention_projects_its_rows(normal: Any) -> None:
    x, past = normal(BATCH, STEPS, 10), normal(2, BATCH, HEADS, 5, SIZE)
    weights, bias = normal(10, 3 * HEADS * SIZE), normal(3 * HEADS * SIZE)
    inputs = {"x": x, "w": weights, "b": bias, "mask": None, "past": past}
    found, present = computed("Attention", inputs, 2, ("w", "b"), num_heads=HEADS)
    q, k, v = map(heads, np.split(x @ weights + bias, 3, axis=-1))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    close(present, np.stack([k, v]))
    close(found, attended(q, k, v))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_of_a_batch_have_tokens_of_their_own(
    normal: Any, is_packed: bool, window: int | None
) -> None:
    shared, past, lengths = 2, 7, [8, 5]
    q, k, v = (normal(BATCH, 1, count * SIZE) for count in (HEADS, shared, shared))
    three = {"q": np.concatenate([q, k, v], -1)} if is_packed else {"q": q, "k": k, "v": v}
    cache, (cos, sin) = normal(2, BATCH, shared, past, SIZE), normal(2, 16, SIZE // 2)
    inputs = {"k": None, "v": None} | three
    inputs = {"q": inputs.pop("q"), **inputs, "pk": cache[0], "pv": cache[1]}
    inputs |= {"last": np.array(lengths, np.int32) - 1, "total": np.array([past + 1], np.int32)}
    given = {} if window is None else {"local_window_size": window}
    found, key, value = computed(
        "GroupQueryAttention",
        {**inputs, "cos": cos, "sin": sin},
        outputs=3,
        known=("total", "cos", "sin"),
        num_heads=HEADS,
        kv_num_heads=shared,
        do_rotary=1,
        **given,
    )
    for row, length in enumerate(lengths):
        tables = cos[length - 1], sin[length - 1]
        mine = slice(row, row + 1)
        all_k = [cache[0][mine, :, : length - 1], turned(heads(k[mine], shared), *tables)]
        all_v = [cache[1][mine, :, : length - 1], heads(v[mine], shared)]
        all_k, all_v = np.concatenate(all_k, 2), np.concatenate(all_v, 2)
        close(key[mine, :, :length], all_k)
        close(value[mine, :, :length], all_v)
        seen = slice(0 if window is None else length - window, length)
        each = HEADS // shared
        k_row, v_row = (np.repeat(x[:, :, seen], each, 1) for x in (all_k, all_v))
        close(found[mine], attended(turned(heads(q[mine]), *tables), k_row, v_row))


def test_rotary_positions_count_from_the_first(normal: Any) -> None:
    x, (cos, sin) = normal(BATCH, STEPS, HEADS * SIZE), normal(2, 16, 2)
    inputs = {"x": x, "first": np.array([5]), "cos": cos, "sin": sin}
    attributes = {"num_heads": HEADS, "rotary_embedding_dim": 4}
    [found] = computed("RotaryEmbedding", inputs, **attributes)
    wanted = heads(x).copy()
    wanted[..., :4] = turned(wanted[..., :4], cos[5 : 5 + STEPS], sin[5 : 5 + STEPS])
    close(heads(found), wanted)


@pytest.mark.parametrize("zero", ["none", "packed", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_in_blocks(normal: Any, bits: int, zero: str) -> None:
    n, k, block = 8, 96, 32
    blocks = k // block
    rng = np.random.default_rng(0)
    q = rng.integers(0, 2**bits, (n, k)).astype(np.uint8)
    points = rng.integers(0, 2**bits, (n, blocks)).astype(np.uint8)

    def packed(x: np.ndarray) -> np.ndarray:
        if bits == 8:
            return x
        x = np.pad(x, ((0, 0), (0, x.shape[1] % 2)))
        return x[:, ::2] | x[:, 1::2] << 4

    x, scales, bias = normal(BATCH, STEPS, k), normal(n, blocks) / 2**bits, normal(n)
    given = {"none": None, "packed": packed(points), "floats": points.astype(np.float32)}[zero]
    inputs = {"x": x, "q": packed(q).reshape(n, blocks, -1), "scales": scales, "zero": given}
    known = ("q", "scales", "bias") + (() if given is None else ("zero",))
    [found] = computed(
        "MatMulNBits",
        {**inputs, "groups": None, "bias": bias},
        known=known,
        N=n,
        K=k,
        bits=bits,
        block_size=block,
    )
    shift = 2 ** (bits - 1) if given is None else np.repeat(points.astype(np.int32), block, 1)
    close(found, x @ ((q.astype(np.int32) - shift) * np.repeat(scales, block, 1)).T + bias)


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_shorter_row_is_the_row_alone(normal: Any, kind: str, gates: int) -> None:
    steps, hidden, lengths = 5, 6, [5, 2]
    x, w, r = (normal(steps, BATCH, 4), normal(2, gates * hidden, 4), normal(2, gates * hidden, 6))
    inputs = {"x": x, "w": w, "r": r, "b": normal(2, 2 * gates * hidden)}
    more = {"domain": "", "direction": "bidirectional", "hidden_size": hidden}
    both = computed(kind, {**inputs, "l": np.array(lengths, np.int32)}, 2, ("w", "r", "b"), **more)
    for row, length in enumerate(lengths):
        inputs["x"] = x[:length, row : row + 1]
        every, last = computed(kind, inputs, 2, ("w", "r", "b"), **more)
        close(both[0][:length, :, row : row + 1], every)
        close(both[1][:, row : row + 1], last)
        assert not both[0][length:, :, row].any()


def test_activations_of_a_recurrent_layer(normal: Any) -> None:
    x, w, r = normal(1, BATCH, 4), normal(1, 6, 4), normal(1, 6, 6)
    inputs, known = {"x": x, "w": w, "r": r}, ("w", "r")
    given = {"activations": ["HardSigmoid"], "activation_alpha": [0.3], "activation_beta": [0.4]}
    [found] = computed("RNN", inputs, known=known, domain="", clip=0.5, hidden_size=6, **given)
    close(found[0, 0], np.clip(0.3 * np.clip(x[0] @ w[0].T, -0.5, 0.5) + 0.4, 0, 1))


@pytest.mark.parametrize(
    ("kind", "more", "attributes", "text"),
    [
        ("MultiHeadAttention", {}, {"num_heads": 5}, "wanted [batch, sequence, 5 heads times"),
        (
            "MultiHeadAttention",
            {"b": None, "m": np.ones(8, np.int32)},
            {"num_heads": 4},
            "wanted a mask [2], [2, 3] or [2, queries, 3], got [8]",
        ),
        (
            "GroupQueryAttention",
            {"pk": None, "pv": None, "l": np.zeros(2, np.int32), "t": np.array([9], np.int32)},
            {"num_heads": 4, "kv_num_heads": 4},
            "wanted a cache that grows, with total_sequence_length of 3, got",
        ),
        (
            "GroupQueryAttention",
            {**dict.fromkeys("abcdefgh"), "sink": np.ones(3, np.float32)},
            {"num_heads": 4, "kv_num_heads": 4},
            "wanted head_sink of [4], got [3]",
        ),
        (
            "GroupQueryAttention",
            {**dict.fromkeys("abcdefghi"), "scale": np.ones(1, np.float32)},
            {"num_heads": 4, "kv_num_heads": 4},
            "wanted no input k_scale, got [1]",
        ),
        ("Attention", {}, {"num_heads": 4, "do_rotary": 1}, "wanted do_rotary of 0, got 1"),
        ("RotaryEmbedding", {"s": None}, {"scale": 2.0}, "wanted scale of 1, got 2.0"),
        ("MatMulNBits", {}, {"N": 4, "K": 32, "block_size": 16}, "a block_size that 32 divides"),
    ],
)
def test_what_is_not_built_is_named(
    normal: Any, kind: str, more: dict[str, Any], attributes: dict[str, Any], text: str
) -> None:
    with pytest.raises(GraphError) as error:
        computed(kind, {**rows(normal, "q", "k", "v"), **more}, **attributes)
    assert text in str(error.value)


def test_layers_of_many_steps_are_refused(normal: Any) -> None:
    inputs = {"x": normal(513, 1, 4), "w": normal(1, 6, 4), "r": normal(1, 6, 6)}
    with pytest.raises(GraphError, match="wanted a sequence of a known length from 1 to 512"):
        computed("RNN", inputs, domain="", hidden_size=6)
    inputs["x"] = normal(2, 1, 4)
    with pytest.raises(GraphError, match=r"wanted activations of Sigmoid, .* got Affine"):
        computed("RNN", inputs, domain="", hidden_size=6, activations=["Affine"])


def test_sums_of_integers_are_exact_beyond_what_float32_holds() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(200, 256, (1, 300, 3, 3)), rng.integers(-128, -100, (2, 300, 3, 3))
    inputs = {"x": x.astype(np.uint8), "w": w.astype(np.int8), "zero": np.array(7, np.uint8)}
    [found] = computed("ConvInteger", inputs, known=("w", "zero"), domain="")
    wanted = np.sum((x - 7) * w, axis=(1, 2, 3))
    assert abs(wanted).max() > 2**24
    np.testing.assert_array_equal(found.ravel(), wanted)
