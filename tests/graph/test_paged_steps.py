"""Contexts, a batch of their steps, and a layer of attention with a paged cache that is kept."""

import numpy as np
import pytest

from heddle.contexts import StepBatch, TextContext
from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.runtime import Buffer, InferenceSession

VOCABULARY, HEADS, KEY_HEADS, SIZE = 40, 4, 2, 16
BLOCKS, BLOCK = 24, 4
ROWS, TOKENS, LONGEST = 4, 32, 40
F32, I64, I32 = DType.float32, DType.int64, DType.int32


def layer():
    """From a step's inputs to the logits of each row's last token, and the caches."""
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
    with Graph("layer", list(types.values()), list(types)) as graph:
        words, *row, keys, values = graph.inputs

        def projected(name, heads):
            weight = graph.add_weight(Weight(name, F32, (VOCABULARY, heads * SIZE)))
            return ops.reshape(ops.gather(weight, words, 0), (tokens, heads, SIZE))

        keys = ops.paged_write(keys, projected("k", KEY_HEADS), *row)
        values = ops.paged_write(values, projected("v", KEY_HEADS), *row)
        attended = ops.paged_attention(projected("q", HEADS), keys, values, *row)
        last = ops.gather(attended, row[0][1:] - 1, 0)
        out = graph.add_weight(Weight("o", F32, (HEADS * SIZE, VOCABULARY)))
        graph.output(ops.reshape(last, (rows, HEADS * SIZE)) @ out, keys, values)
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
    model = InferenceSession(threads=threads).load(compile(graph), weights)
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
