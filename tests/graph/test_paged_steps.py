"""Contexts, a batch of their steps, and a layer of attention with a paged cache that is kept."""

import numpy as np
import pytest

from heddle.contexts import SamplingParams, StepBatch, TextContext
from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.runtime import Buffer, InferenceSession

VOCABULARY, HEADS, KEY_HEADS, SIZE = 40, 4, 2, 16
BLOCKS, BLOCK = 24, 4
ROWS, TOKENS, LONGEST = 4, 32, 40
F32, I64, I32 = DType.float32, DType.int64, DType.int32


def layer(samples=False):
    """From a step's inputs to the logits of each row's last token, or a token; and the caches."""
    rows, tokens = Dim("rows", 1, ROWS), Dim("tokens", 1, TOKENS)
    cache = (BLOCKS, BLOCK, KEY_HEADS, SIZE)
    types = {
        "tokens": TensorType(I64, (tokens,)),
        "row_offsets": TensorType(I64, (rows + 1,)),
        "lengths": TensorType(I64, (rows,)),
        "blocks": TensorType(I32, (rows, LONGEST // BLOCK)),
        "keys": TensorType(F32, cache),
        "values": TensorType(F32, cache),
    }
    if samples:
        types["sampling"] = TensorType(F32, (rows, 6))
        types["sampling_integers"] = TensorType(I64, (rows, 2))
    with Graph("layer", list(types.values()), list(types)) as graph:
        words, *row, keys, values = graph.inputs[:6]

        def projected(name, heads):
            weight = graph.add_weight(Weight(name, F32, (VOCABULARY, heads * SIZE)))
            return ops.reshape(ops.gather(weight, words, 0), (tokens, heads, SIZE))

        keys = ops.paged_write(keys, projected("k", KEY_HEADS), *row)
        values = ops.paged_write(values, projected("v", KEY_HEADS), *row)
        attended = ops.paged_attention(projected("q", HEADS), keys, values, *row)
        last = ops.gather(attended, row[0][1:] - 1, 0)
        out = graph.add_weight(Weight("o", F32, (HEADS * SIZE, VOCABULARY)))
        found = ops.reshape(last, (rows, HEADS * SIZE)) @ out
        if samples:
            found = ops.sample_tokens(found, *graph.inputs[6:], row[1])
        graph.output(found, keys, values)
    return graph


def logits(weights, words):
    """Those of the last of `words`, from attention over all of them."""
    q, k, v = (
        weights[name][words].reshape(len(words), -1, SIZE).astype(np.float64) for name in "qkv"
    )
    k, v = (np.repeat(x, HEADS // KEY_HEADS, axis=1) for x in (k, v))
    scores = np.einsum("hd,khd->hk", q[-1], k) / np.sqrt(SIZE)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.einsum("hk,khd->hd", shares, v).reshape(-1) @ weights["o"]


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_join_and_leave(threads):
    """Prompts in chunks beside rows that decode, blocks that another row has had before."""
    graph, rng = layer(), np.random.default_rng(3)
    weights = {
        name: rng.standard_normal(weight.shape).astype(np.float32)
        for name, weight in graph.weights.items()
    }
    model = InferenceSession(threads=threads).load(compile(graph, "cpu:native"), weights)
    caches = [Buffer(np.float32, (BLOCKS, BLOCK, KEY_HEADS, SIZE)) for _ in range(2)]
    for cache in caches:
        cache.to_numpy()[...] = np.nan
    batch = StepBatch(ROWS, TOKENS, LONGEST, blocks=LONGEST // BLOCK)
    free = rng.permutation(BLOCKS).tolist()
    held: dict[int, list[int]] = {}
    waiting = [
        TextContext(max_length=LONGEST, tokens=rng.integers(0, VOCABULARY, length))
        for length in (13, 1, 6, 9, 17, 4)
    ]
    running: list[TextContext] = []
    seen = 0
    for step in range(20):
        if running and step % 4 == 3:
            free += held.pop(id(running.pop(step % len(running))))
        while waiting and len(running) < 3:
            running.insert(0, waiting.pop(0))
            held[id(running[0])] = []
        for context in running:
            if context.tokens.active_length > 5:
                context.tokens.chunk(5)
        if not running:
            break
        new = batch.write(running)
        for row, context in enumerate(running):
            blocks = held[id(context)]
            known = 0 if row in new else len(blocks)
            while len(blocks) * BLOCK < batch.inputs["lengths"][row]:
                blocks.append(free.pop())
            batch.write_blocks(row, blocks[known:], known)
        batch.send()
        inputs = [batch.inputs[name] for name in ("tokens", "row_offsets", "lengths", "blocks")]
        found = np.empty((len(running), VOCABULARY), np.float32)
        model.execute(*inputs, *caches, out=[found, *caches])
        for row, context in enumerate(running):
            words = context.tokens.all[: batch.inputs["lengths"][row]]
            np.testing.assert_allclose(found[row], logits(weights, words), rtol=2e-4, atol=2e-4)
            seen += 1
        assert not batch.commit(running, found.argmax(axis=1))
    assert not waiting
    assert seen > 40


def generated(model, contexts):
    """Runs contexts side by side until each is full; their tokens."""
    caches = [Buffer(np.float32, (BLOCKS, BLOCK, KEY_HEADS, SIZE)) for _ in range(2)]
    batch = StepBatch(ROWS, TOKENS, LONGEST, blocks=LONGEST // BLOCK)
    each = BLOCKS // ROWS
    running = list(contexts)
    held = {id(context): range(i * each, (i + 1) * each) for i, context in enumerate(contexts)}
    while running:
        for row in batch.write(running):
            batch.write_blocks(row, held[id(running[row])])
        batch.send()
        inputs = batch.inputs
        step = [inputs[name] for name in ("tokens", "row_offsets", "lengths", "blocks")]
        tokens = np.empty(len(running), np.int64)
        settings = [inputs["sampling"], inputs["sampling_integers"]]
        model.execute(*step, *caches, *settings, out=[tokens, *caches])
        assert not batch.commit(running, tokens)
        running = [context for context in running if not context.is_done]
    return [context.tokens.all.tolist() for context in contexts]


def test_sampled_tokens_depend_on_their_own_request_alone():
    """From contexts to tokens and back, with the sampling of each: alone, together, again."""
    graph = layer(samples=True)
    weights = {
        name: np.random.default_rng(4).standard_normal(weight.shape).astype(np.float32)
        for name, weight in graph.weights.items()
    }
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), weights)
    params = [
        SamplingParams(top_k=1),
        SamplingParams(top_k=-1, temperature=2.0, seed=5),
        SamplingParams(top_k=-1, temperature=2.0, seed=6),
        SamplingParams(top_k=20, top_p=0.95, min_p=0.01, temperature=2.0, seed=5),
    ]

    def contexts():
        return [
            TextContext(max_length=20, tokens=np.array([1, 2, 3]), sampling_params=p)
            for p in params
        ]

    together = generated(model, contexts())
    assert [len(tokens) for tokens in together] == [20] * 4
    assert len({tuple(tokens) for tokens in together}) == 4
    assert together == generated(model, contexts())
    assert together == [generated(model, [context])[0] for context in contexts()]
    first = np.array([1, 2, 3])
    assert together[0][3] == int(np.argmax(logits(weights, first)))
