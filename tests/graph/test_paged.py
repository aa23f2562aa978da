"""ragged_attention, paged_attention and paged_write in graphs: mistakes, laws, caches in place."""

import re

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.runtime import Buffer, InferenceSession
from heddle.runtime.errors import GraphError, InputError

F32, F16, BF16, F64 = DType.float32, DType.float16, DType.bfloat16, DType.float64
I64, I32 = DType.int64, DType.int32
BLOCKS, BLOCK, HEADS, SIZE = 9, 4, 2, 8

RAGGED = [(F32, ("t", 4, 8)), *[(F32, ("k", 2, 8))] * 2, *[(I64, ("n",))] * 2]
PAGED = [
    (F32, ("t", 4, 8)),
    *[(F32, (9, 4, 2, 8))] * 2,
    (I64, ("rows + 1",)),
    (I64, ("rows",)),
    (I32, ("rows", "m")),
]
WRITE = [PAGED[1], (F32, ("t", 2, 8)), *PAGED[3:]]


def changed(operands, number, kind):
    return [*operands[:number], kind, *operands[number + 1 :]]


@pytest.mark.parametrize(
    ("op", "operands", "options", "message"),
    [
        (
            "ragged_attention",
            changed(RAGGED, 0, (F64, ("t", 4, 8))),
            {},
            "query: wanted float32, bfloat16 or float16, got float64; cast it first",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 1, (F64, ("k", 2, 8))),
            {},
            "key: wanted float32 or bfloat16 or float16 or float8_e4m3fn or float8_e5m2 "
            "for a query of float32, got float64",
        ),
        (
            "paged_attention",
            changed(PAGED, 0, (BF16, ("t", 4, 8))),
            {},
            "key: wanted bfloat16 or float8_e4m3fn or float8_e5m2 for a query of bfloat16, "
            "got float32; cast it first",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 2, (F16, ("k", 2, 8))),
            {},
            "wanted key and value of one dtype, got float32 and float16",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 4, (I32, ("n",))),
            {},
            "key_offsets: wanted int64, got int32; cast it first",
        ),
        (
            "paged_attention",
            changed(PAGED, 5, (I64, ("rows", "m"))),
            {},
            "block_tables: wanted int32, got int64; cast it first",
        ),
        (
            "paged_write",
            changed(WRITE, 3, (I32, ("rows",))),
            {},
            "lengths: wanted int64, got int32; cast it first",
        ),
        (
            "paged_write",
            changed(WRITE, 1, (F16, ("t", 2, 8))),
            {},
            "wanted operands of one dtype, got float32, float16",
        ),
        (
            "paged_attention",
            changed(PAGED, 1, (F32, (9, 2, 8))),
            {},
            "key_cache: wanted rank 4, got [9, 2, 8]",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 2, (F32, ("k", 4, 8))),
            {},
            "wanted key and value of one shape, got [k, 2, 8] and [k, 4, 8]",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 0, (F32, ("t", 4, 6))),
            {},
            "wanted one head size, got query [t, 4, 6] and key [k, 2, 8]",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 0, (F32, ("t", 3, 8))),
            {},
            "wanted key heads that divide the query's 3, got 2",
        ),
        (
            "ragged_attention",
            changed(RAGGED, 4, (I64, ("m",))),
            {},
            "wanted offsets of one shape, got [n] for queries and [m] for keys",
        ),
        ("ragged_attention", RAGGED, {"window": -1}, "window: wanted 0, or 1 and more of causal"),
        (
            "ragged_attention",
            RAGGED,
            {"window": 2, "causal": False},
            "window: wanted 0, or 1 and more of causal attention, got 2",
        ),
        (
            "paged_attention",
            changed(PAGED, 3, (I64, ("rows",))),
            {},
            "row_offsets: wanted [rows + 1], got [rows]",
        ),
        (
            "paged_write",
            changed(WRITE, 4, (I32, (3, "m"))),
            {},
            "block_tables: wanted rows rows as in lengths, got [3, m]",
        ),
        (
            "paged_write",
            changed(WRITE, 1, (F32, ("t", 4, 8))),
            {},
            "wanted one number and size of heads, got cache [9, 4, 2, 8] and new [t, 4, 8]",
        ),
    ],
)
def test_mistakes(op, operands, options, message):
    types = [TensorType(*operand) for operand in operands]
    text = rf"test_paged\.py:\d+: {op}: {re.escape(message)}"
    with pytest.raises(GraphError, match=text), Graph("g", types) as graph:
        getattr(ops, op)(*graph.inputs, **options)


def test_one_row_is_attention():
    """The reference of each op against that of `attention`."""
    rng = np.random.default_rng(0)
    query = rng.standard_normal((5, 4, SIZE)).astype(np.float32)
    key, value = (rng.standard_normal((12, HEADS, SIZE)).astype(np.float32) for _ in range(2))
    options = {"scale": 0.3, "causal": True}
    (wanted,) = ROWS["attention"].reference(
        query[None], key[None], value[None], layout="bshd", **options
    )
    offsets = np.array([0, 5]), np.array([0, 12])
    found = ROWS["ragged_attention"].reference(query, key, value, *offsets, window=0, **options)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    caches = [x.reshape(3, BLOCK, HEADS, SIZE)[[2, 0, 1]] for x in (key, value)]
    table = np.array([[1, 2, 0]], np.int32)
    found = ROWS["paged_attention"].reference(
        query, *caches, offsets[0], np.array([12]), table, window=0, **options
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def step_types():
    rows, tokens = Dim("rows"), Dim("tokens")
    return [
        TensorType(F32, (tokens, 4, SIZE)),
        *[TensorType(F32, (tokens, HEADS, SIZE))] * 2,
        *[TensorType(F32, (BLOCKS, BLOCK, HEADS, SIZE))] * 2,
        TensorType(I64, (rows + 1,)),
        TensorType(I64, (rows,)),
        TensorType(I32, (rows, 4)),
    ]


def step_arrays():
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([dim.evaluate({"rows": 2, "tokens": 5}) for dim in type.shape])
        for type in step_types()[:5]
    ]
    tail = [np.array([0, 1, 5]), np.array([7, 4]), rng.permutation(8).reshape(2, 4)]
    return [array.astype(np.float32) for array in arrays] + [*tail[:2], tail[2].astype(np.int32)]


@pytest.fixture(scope="module")
def step():
    """A graph that writes two caches and attends to them, and its model."""
    with Graph("step", step_types()) as graph:
        query, key, value, keys, values, *rows = graph.inputs
        keys, values = ops.paged_write(keys, key, *rows), ops.paged_write(values, value, *rows)
        graph.output(ops.paged_attention(query, keys, values, *rows) * 2.0, keys, values)
    return graph, InferenceSession(threads=2).load(compile(graph, "cpu:native"))


def test_new_caches(step):
    graph, model = step
    arrays = step_arrays()
    before = [array.copy() for array in arrays]
    found = [buffer.to_numpy() for buffer in model.execute(*arrays)]
    for array, wanted in zip(found, evaluate(graph, before), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)
    for array, wanted in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("hold", [np.asarray, Buffer.from_numpy])
def test_caches_in_place(step, hold):
    graph, model = step
    arrays = step_arrays()
    wanted = evaluate(graph, [array.copy() for array in arrays])
    caches = [hold(array) for array in arrays[3:5]]
    out = np.empty_like(arrays[0])
    model.execute(*arrays[:3], *caches, *arrays[5:], out=[out, *caches])
    for array, result in zip([out, *arrays[3:5]], wanted, strict=True):
        np.testing.assert_allclose(array, result, rtol=1e-5, atol=1e-6)


def test_memory_of_another_input_is_refused(step):
    _, model = step
    arrays = step_arrays()
    out = [np.empty_like(arrays[0]), arrays[4], arrays[3]]
    message = "output 'output1': wanted memory of its own, got memory of input 'input4'"
    with pytest.raises(InputError, match=message):
        model.execute(*arrays, out=out)
    shifted = np.empty(arrays[3].size + 1, np.float32)
    arrays[3] = shifted[:-1].reshape(arrays[3].shape)
    out = [np.empty_like(arrays[0]), shifted[1:].reshape(arrays[3].shape), arrays[4]]
    with pytest.raises(InputError, match="got memory of input 'input3'"):
        model.execute(*arrays, out=out)


@pytest.mark.parametrize(
    ("number", "place", "value", "message"),
    [
        (5, 1, 6, "wanted offsets from 0 to 5 that do not fall, got 5 after 6"),
        (6, 0, 17, "wanted an index inside a size of 17, got 17"),
        (6, 1, 0, "wanted an index inside a size of 0, got -[1-4]"),
        (7, (0, 1), BLOCKS, "wanted an index inside a size of 9, got 9"),
    ],
)
def test_wrong_rows(step, number, place, value, message):
    arrays = step_arrays()
    arrays[number][place] = value
    with pytest.raises(InputError, match=rf"^paged_write \(test_paged\.py:\d+\): {message}$"):
        step[1].execute(*arrays)


def test_a_cache_that_is_read_afterwards_is_not_changed():
    """What attends to the old cache forbids to change it in place, wherever it stands."""
    with Graph("old", step_types()) as graph:
        query, key, _, keys, values, *rows = graph.inputs
        new = ops.paged_write(keys, key, *rows)
        later = ops.sum(ops.reshape(new, (1, 1, BLOCKS * BLOCK * HEADS * SIZE))) * 0.0
        attended = ops.paged_attention(query + later, keys, values, *rows)
        graph.output(attended, new)
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    arrays = step_arrays()
    wanted = evaluate(graph, [array.copy() for array in arrays])
    with pytest.raises(InputError, match="output 'output1': wanted memory of its own"):
        model.execute(*arrays, out=[np.empty_like(arrays[0]), arrays[3]])
    for buffer, result in zip(model.execute(*arrays), wanted, strict=True):
        np.testing.assert_allclose(buffer.to_numpy(), result, rtol=1e-5, atol=1e-5)


def test_one_cache_for_all_layers():
    """Each layer writes into what the one before has left; nothing is copied on the way."""
    with Graph("layers", step_types()) as graph:
        query, key, value, cache, _, *rows = graph.inputs
        for layer in (key, value, key):
            cache = ops.paged_write(cache, layer, *rows)
            query = ops.paged_attention(query, cache, cache, *rows)
        graph.output(query, cache)
    artifact = compile(graph)
    (program,) = artifact.describe()["programs"]
    copied = ["copied_bytes" in row for row in program["main"]["instructions"]]
    assert copied == [True, *[False] * 6]
    model = InferenceSession(threads=2).load(artifact)
    arrays = step_arrays()
    wanted = evaluate(graph, [array.copy() for array in arrays])
    out = [np.empty_like(arrays[0]), arrays[3]]
    model.execute(*arrays, out=out)
    for array, result in zip(out, wanted, strict=True):
        np.testing.assert_allclose(array, result, rtol=1e-5, atol=1e-6)


def test_a_scaled_cache_of_8_bits():
    """As docs/ops.md says: keys by a scale for each head, values by one for all."""
    rng = np.random.default_rng(3)
    scales = [np.exp2(rng.uniform(-3, 3, shape), dtype=np.float32) for shape in ((HEADS, 1), ())]
    types = step_types()
    types[3:5] = [TensorType(DType.float8_e4m3fn, type.shape) for type in types[3:5]]
    with Graph("scaled", types) as graph:
        query, key, value, keys, values, *rows = graph.inputs
        key_scale, value_scale = (ops.constant(scale) for scale in scales)
        keys, values = (
            ops.paged_write(cache, ops.saturating_cast(new / by, cache.dtype), *rows)
            for cache, new, by in ((keys, key, key_scale), (values, value, value_scale))
        )
        repeated = ops.reshape(ops.broadcast_to(key_scale, (HEADS, 2)), (4, 1))
        attended = ops.paged_attention(query * repeated, keys, values, *rows)
        graph.output(attended * value_scale, keys, values)
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"))
    arrays = step_arrays()
    arrays[1][0] *= 1e6  # beyond the largest number
    caches = [Buffer(DType.float8_e4m3fn, array.shape) for array in arrays[3:5]]
    for cache, array in zip(caches, arrays[3:5], strict=True):
        cache.to_numpy()[...] = array.astype("float8_e4m3fn")
    wanted = evaluate(graph, [*arrays[:3], *(cache.to_numpy() for cache in caches), *arrays[5:]])
    found = model.execute(*arrays[:3], *caches, *arrays[5:])
    for array, result in zip(found, wanted, strict=True):
        array = array.to_numpy().astype(np.float32)
        np.testing.assert_allclose(array, result, rtol=1e-5, atol=1e-5)
    assert np.abs(wanted[1]).max() == 448
