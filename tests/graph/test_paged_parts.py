"""Rows that decode, whose keys are shared out among threads."""

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, compile, ops
from heddle.runtime import Buffer, InferenceSession

HEADS, KEY_HEADS, SIZE, BLOCK = 8, 2, 32, 16
LENGTHS = (2100, 5, 0, 900)


@pytest.fixture(scope="module")
def case():
    """The artifact of a decoding step, and its inputs."""
    rng = np.random.default_rng(0)
    width = -(-max(LENGTHS) // BLOCK)
    blocks = len(LENGTHS) * width
    cache = (blocks, BLOCK, KEY_HEADS, SIZE)
    shapes = [(len(LENGTHS), HEADS, SIZE), cache, cache]
    arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
    table = rng.permutation(blocks).reshape(len(LENGTHS), width).astype(np.int32)
    arrays += [np.arange(len(LENGTHS) + 1), np.array(LENGTHS), table]
    types = [TensorType(DType[str(array.dtype)], array.shape) for array in arrays]
    with Graph("decode", types) as graph:
        graph.output(ops.paged_attention(*(value.tensor for value in graph.inputs)))
    return compile(graph, "cpu:x86-64-v3"), [Buffer.from_numpy(array) for array in arrays]


def test_any_number_of_threads_gives_the_same_bits(case):
    """Call after call: the counters are zero again when a call has ended."""
    artifact, inputs = case
    answers = set()
    for threads in (1, 2, 5):
        model = InferenceSession(threads=threads).load(artifact)
        answers |= {model.execute(*inputs)[0].to_numpy().tobytes() for _ in range(20)}
    assert len(answers) == 1


def test_a_call_that_is_refused_leaves_no_count(case):
    artifact, inputs = case
    model = InferenceSession(threads=2).load(artifact)
    wanted = model.execute(*inputs)[0].to_numpy().tobytes()
    table = inputs[-1].to_numpy().copy()
    table[0, 100] = -1
    with pytest.raises(ValueError, match="-1"):
        model.execute(*inputs[:-1], Buffer.from_numpy(table))
    assert model.execute(*inputs)[0].to_numpy().tobytes() == wanted
