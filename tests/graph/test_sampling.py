"""random_uniform against published numbers; sample against the distributions that it draws from."""

import re

import ml_dtypes
import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.graph.ops.sampling import philox
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held as rounded
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

F32, I64 = DType.float32, DType.int64
DRAWS = 4000


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_philox_gives_the_known_answers(counter, key, words):
    """The test vectors of the authors' Random123."""
    start, seeds = ([np.uint64(int(word, 16)) for word in text.split()] for text in (counter, key))
    assert " ".join(f"{int(word):08x}" for word in philox(start, seeds)) == words


def sampler(rows, size, k, names=()):
    """A model of logits, seeds, temperature and the tensors `names`, and its graph."""
    types = [TensorType(F32, (rows, size)), TensorType(I64, (rows, 2)), TensorType(F32, (rows, 1))]
    types += [TensorType(I64 if name == "top_k" else F32, (rows, 1)) for name in names]
    with Graph("sampler", types) as graph:
        logits, seeds, temperature, *others = graph.inputs
        options = dict(zip(names, others, strict=True))
        graph.output(ops.sample(logits, seeds, temperature, k=k, **options))
    return InferenceSession(threads=2).load(compile(graph, "cpu:native")), graph


def seeds_of(count, seed=7):
    return np.stack([np.full(count, seed), np.arange(count)], axis=1)


def column(number, count=DRAWS, dtype=np.float32):
    return np.full((count, 1), number, dtype)


OPTIONS = {
    "all": ((), (), [0.5, 0.2, 0.15, 0.1, 0.05]),
    "top_k": (("top_k",), (column(2, dtype=np.int64),), [5 / 7, 2 / 7, 0, 0, 0]),
    "top_p": (("top_p",), (column(0.7001),), [0.5, 0.2, 0.15, 0, 0]),
    "min_p": (("min_p",), (column(0.25),), [0.5, 0.2, 0.15, 0, 0]),
    "least top_p": (("top_p",), (column(1e-6),), [1, 0, 0, 0, 0]),
    "both": (("top_k", "min_p"), (column(3, dtype=np.int64), column(0.35)), [0.5, 0.2, 0, 0, 0]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_tokens_come_as_often_as_they_are_probable(name):
    names, options, wanted = OPTIONS[name]
    model, graph = sampler("rows", 5, 5, names)
    order = np.array([3, 0, 4, 1, 2])
    row = np.empty(5, np.float32)
    row[order] = np.log([0.5, 0.2, 0.15, 0.1, 0.05])
    arrays = [np.tile(row, (DRAWS, 1)), seeds_of(DRAWS), column(1), *options]
    (found,) = model.execute(*arrays)
    tokens = found.to_numpy()
    # The last bit of a logarithm decides between candidates once in many thousand draws.
    assert (tokens != evaluate(graph, arrays)[0]).sum() <= 2
    shares = np.bincount(tokens[:, 0], minlength=5)[order] / DRAWS
    wanted = np.array(wanted) / np.sum(wanted)
    # Five standard deviations; what is cut off never comes.
    assert (np.abs(shares - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / DRAWS)).all()


def test_temperature_sharpens_and_zero_is_greedy():
    model, _ = sampler("rows", 5, 5)
    logits = np.tile(np.log(np.float32([0.1, 0.2, 0.4, 0.2, 0.1])), (DRAWS, 1))
    share = []
    for temperature in (0, 0.25, 1, 4):
        (found,) = model.execute(logits, seeds_of(DRAWS), column(temperature))
        share.append((found.to_numpy() == 2).mean())
    assert share[0] == 1
    assert share[0] > share[1] > share[2] > share[3] > 0.2
    assert abs(share[1] - 0.4**4 / (0.4**4 + 2 * 0.2**4 + 2 * 0.1**4)) < 0.03


def test_options_that_are_numbers():
    types = [TensorType(F32, ("rows", 5)), TensorType(I64, ("rows", 2))]
    with Graph("numbers", types) as graph:
        logits, seeds = graph.inputs
        greedy = ops.sample(logits, seeds, 0, k=1, min_p=1.0)
        graph.output(greedy, ops.sample(logits, seeds, k=3, top_k=2, top_p=0.9))
    arrays = [np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32), seeds_of(50)]
    found, drawn = InferenceSession(threads=1).load(compile(graph, "cpu:native")).execute(*arrays)
    np.testing.assert_array_equal(found.to_numpy(), arrays[0].argmax(-1, keepdims=True))
    order = np.argsort(-arrays[0], axis=-1)
    assert (order[:, :2] == drawn.to_numpy()).any(-1).all()
    assert (order[:, :1] != drawn.to_numpy()).any()


def test_a_token_depends_on_its_own_row_alone():
    model, _ = sampler("rows", 300, 40)
    logits = np.random.default_rng(0).standard_normal((20, 300)).astype(np.float32)
    arrays = [logits, seeds_of(20), column(0.8, 20)]
    together = model.execute(*arrays)[0].to_numpy()
    alone = [model.execute(*(a[i : i + 1] for a in arrays))[0].to_numpy() for i in range(20)]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    again = model.execute(logits, seeds_of(20, seed=8), column(0.8, 20))[0].to_numpy()
    assert (together != again).any()


def test_a_step_with_everything():
    """Penalties, a mask, two dtypes of logits, and log-probabilities, compiled."""
    rows, entries = 12, 60
    for dtype in (F32, DType.bfloat16):
        types = [
            TensorType(dtype, ("rows", 100)),
            TensorType(F32, ("rows", 6)),
            TensorType(I64, ("rows", 2)),
            TensorType(I64, ("rows",)),
            TensorType(DType.int32, ("rows", 4)),
            TensorType(I64, ("entries", 2)),
            TensorType(I64, (Dim("rows") + 1,)),
        ]
        with Graph("step", types) as graph:
            logits, sampling, integers, steps, mask, seen, offsets = graph.inputs
            logits = ops.penalize(logits * 2.0, sampling, seen, offsets)
            tokens = ops.sample_tokens(logits, sampling, integers, steps, mask)
            graph.output(tokens, ops.log_probability(logits, tokens), logits)
        rng = np.random.default_rng(5)
        sampling = rng.uniform(0.5, 1.0, (rows, 6)).astype(np.float32)
        integers = np.stack([rng.integers(1, 30, rows), rng.integers(0, 99, rows)], axis=1)
        mask = rng.integers(-(2**31), 2**31, (rows, 4)).astype(np.int32)
        seen = np.stack([rng.permutation(100)[:entries], rng.integers(0, 3, entries)], axis=1)
        offsets = np.sort(rng.integers(0, entries, rows + 1))
        values = rng.standard_normal((rows, 100)).astype(np.float32)
        values = rounded(values, dtype)
        arrays = [values, sampling, integers, np.arange(rows), mask, seen, offsets]
        model = InferenceSession(threads=2).load(compile(graph, "cpu:native"))
        held = values.astype(ml_dtypes.bfloat16) if dtype is not F32 else values
        tokens, shares, penalized = (x.to_numpy() for x in model.execute(held, *arrays[1:]))
        wanted = evaluate(graph, arrays)
        np.testing.assert_array_equal(tokens, wanted[0])
        np.testing.assert_allclose(shares, wanted[1], rtol=1e-4)
        np.testing.assert_allclose(penalized.astype(np.float32), wanted[2], rtol=1e-2)


def test_rows_that_cannot_be_drawn():
    """They give -1, and the others what they give without them."""
    with Graph("broken", [TensorType(F32, ("rows", 3)), TensorType(I64, ("rows", 2))]) as graph:
        tokens = ops.sample(graph.inputs[0], graph.inputs[1], 0.5)
        graph.output(tokens, ops.log_probability(graph.inputs[0], ops.squeeze(tokens, 1)))
    logits = np.float32([[1, 2, 3], [1, np.nan, 3], [-np.inf] * 3, [0, -np.inf, 1]])
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    tokens, _ = model.execute(logits, seeds_of(4))
    assert tokens.to_numpy()[1:3, 0].tolist() == [-1, -1]
    np.testing.assert_array_equal(tokens.to_numpy(), evaluate(graph, [logits, seeds_of(4)])[0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, s: ops.sample(1, s, k=2), "sample: logits: wanted a tensor value, got int"),
        (lambda x, s: ops.sample(x, 1, k=2), "sample: seeds: wanted a tensor value, got int"),
        (lambda x, s: ops.random_uniform(ops.cast(s, F32), size=x.shape[1]),
         "random_uniform: seeds: wanted int64 or uint64, got float32; cast it first"),
        (lambda x, s: ops.log_probability(1, s),
         "log_probability: logits: wanted a tensor value, got int"),
        (lambda x, s: ops.sample_tokens(s, s, s, s),
         "sample_tokens: logits: wanted float32, float16 or bfloat16 of rank 2, got int64[2, 2]"),
        (lambda x, s: ops.sample_tokens(x, x, x, s),
         "sample_tokens: sampling_integers: wanted int64 of rank 2, got float32[2, 5]"),
        (lambda x, s: ops.sample_tokens(x, x, s, s[0]),
         "sample_tokens: sampling: wanted [2, 6], got [2, 5]"),
        (lambda x, s: ops.penalize(x, x, s, s), "penalize: seen_offsets: wanted int64 of rank 1"),
        (lambda x, s: ops.penalize(x, ops.concat(x, x[:, 0:1], axis=1), s, s[0]),
         "penalize: seen_offsets: wanted [3], got [2]"),
        (lambda x, s: ops.random_uniform(s, 3.5),
         "random_uniform: size: wanted Dim, got 3.5"),
    ],
)  # fmt: skip
def test_mistakes(build, message):
    types = [TensorType(F32, (2, 5)), TensorType(I64, (2, 2))]
    place = r"test_sampling\.py:\d+: "
    with pytest.raises(GraphError, match=place + re.escape(message)), Graph("g", types) as graph:
        build(*graph.inputs)


@pytest.mark.parametrize("size", [3, "3", Dim(3)])
def test_a_size_is_written_as_in_shapes(size):
    with Graph("g", [TensorType(I64, (2, 2))]) as graph:
        drawn = ops.random_uniform(graph.inputs[0], size=size)
        graph.output(drawn)
    assert drawn.shape == (2, 3)
    seeds = np.array([[1, 2], [3, 4]])
    assert evaluate(graph, [seeds])[0].shape == (2, 3)


def test_seeds_are_pairs():
    with Graph("g", [TensorType(I64, (2, 3))]) as graph:
        seeds = graph.inputs[0]
        with pytest.raises(GraphError, match=re.escape("seeds: wanted shape [..., 2], got [2, 3]")):
            ops.random_uniform(seeds, size=seeds.shape[1])
        graph.output(seeds)
