"""Embedded weights lie in the artifact as kernels read them, where nothing else reads them."""

import ml_dtypes  # noqa: F401 (NumPy knows bfloat16 by it)
import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.rounding import stored
from heddle.runtime import Artifact, InferenceSession
from heddle.runtime.errors import ArtifactError, ArtifactReason

F32 = DType.float32
LEVEL = "cpu:x86-64-v3"
ROWS = Dim("rows", 1, 64)
RANDOM = np.random.default_rng(11)


def products(dtype=F32, k=70, n=40):
    """x @ w.T + x @ v."""
    with Graph("products", [TensorType(dtype, (ROWS, k))]) as graph:
        w = graph.add_weight(Weight("w", dtype, (n, k)))
        v = graph.add_weight(Weight("v", dtype, (k, n)))
        (x,) = graph.inputs
        graph.output(x @ w.T + x @ v)
    return graph


def normal(dtype, *shape):
    """Normal numbers, as an array for weights and inputs of a floating dtype."""
    return stored(RANDOM.normal(size=shape), dtype).view(dtype.value)


def init(artifact):
    """The labels of what is left to do at load."""
    return [step["label"] for row in artifact.programs for step in row["init"]["instructions"]]


def bound(artifact):
    return {row["name"]: (row["embedded"], row["settled"]) for row in artifact.weights}


@pytest.mark.parametrize("dtype", [F32, DType.bfloat16, DType.float16, DType.float64], ids=str)
def test_packed_when_compiled_is_packed_at_load_bit_for_bit(dtype):
    graph = products(dtype)
    weights, x = {"w": normal(dtype, 40, 70), "v": normal(dtype, 70, 40)}, normal(dtype, 5, 70)
    beside = compile(graph, LEVEL)
    inside = compile(graph, LEVEL, weights=weights, embed_weights=True)
    assert len(init(beside)) == 2
    assert init(inside) == []
    assert bound(inside) == {"w": (True, True), "v": (True, True)}
    assert inside.programs[0]["state_bytes"] == 0
    session = InferenceSession(threads=1)
    wanted, got = (
        model.execute(x)[0].to_numpy().tobytes()
        for model in (session.load(beside, weights), session.load(inside))
    )
    assert got == wanted


def test_settled_weights_survive_the_file(tmp_path):
    weights = {"w": normal(F32, 40, 70), "v": normal(F32, 70, 40)}
    path = tmp_path / "products.heddle"
    artifact = compile(products(), "cpu", weights=weights, embed_weights=True)
    artifact.save(path)
    described = artifact.describe()
    assert described["sections"]["weight data"] == 0
    assert described["constant_bytes"] == 2 * (64 * 70 * 4)  # 40 columns are two panels of 32
    x = normal(F32, 3, 70)
    (y,) = InferenceSession(threads=1).load(Artifact.load(path)).execute(x)
    np.testing.assert_allclose(y.to_numpy(), x @ weights["w"].T + x @ weights["v"], atol=1e-4)


def test_what_is_read_as_it_is_stays():
    """A table that is looked up and multiplied by, as tied embeddings are, is there once."""
    with Graph("tied", [TensorType(DType.int32, (ROWS,))]) as graph:
        table = graph.add_weight(Weight("table", F32, (50, 64)))
        other = graph.add_weight(Weight("other", F32, (64, 64)))
        x = ops.gather(table, graph.inputs[0], axis=0)
        graph.output(x @ other @ table.T)
    weights = {
        "table": normal(F32, 50, 64),
        "other": normal(F32, 64, 64),
    }
    artifact = compile(graph, LEVEL, weights=weights, embed_weights=True)
    assert bound(artifact) == {"table": (True, False), "other": (True, True)}
    assert len(init(artifact)) == 1
    (y,) = InferenceSession(threads=1).load(artifact).execute(np.array([3, 49], np.int32))
    wanted = weights["table"][[3, 49]] @ weights["other"] @ weights["table"].T
    np.testing.assert_allclose(y.to_numpy(), wanted, rtol=1e-3, atol=1e-2)


def test_what_would_grow_is_left_to_init():
    """A weight that is widened, and one of few columns, of which a panel has 32."""
    with Graph("wide", [TensorType(F32, (ROWS, 512))]) as graph:
        w = graph.add_weight(Weight("w", DType.bfloat16, (512, 512)))
        head = graph.add_weight(Weight("head", F32, (1, 8192)))
        x = graph.inputs[0] @ ops.cast(w, F32).T
        graph.output(ops.concat([x] * 16, axis=-1) @ head.T)
    weights = {"w": normal(DType.bfloat16, 512, 512), "head": normal(F32, 1, 8192)}
    artifact = compile(graph, LEVEL, weights=weights, embed_weights=True)
    assert bound(artifact) == {"w": (True, False), "head": (True, False)}


def test_a_weight_that_is_returned_stays():
    with Graph("returned", [TensorType(F32, (ROWS, 8))]) as graph:
        w = graph.add_weight(Weight("w", F32, (8, 8)))
        graph.output(graph.inputs[0] @ w, w)
    w = normal(F32, 8, 8)
    artifact = compile(graph, LEVEL, weights={"w": w}, embed_weights=True)
    assert bound(artifact) == {"w": (True, False)}
    outputs = InferenceSession(threads=1).load(artifact).execute(np.eye(8, dtype=np.float32))
    np.testing.assert_array_equal(outputs[1].to_numpy(), w)


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.float16], ids=str)
def test_a_cast_is_settled_with_the_bits_that_init_gives(dtype):
    with Graph("cast", [TensorType(dtype, (ROWS, 64))]) as graph:
        w = graph.add_weight(Weight("w", F32, (32, 64)))
        graph.output(graph.inputs[0] @ ops.cast(w, dtype).T)
    weights, x = {"w": normal(F32, 32, 64)}, normal(dtype, 5, 64)
    inside = compile(graph, "cpu", weights=weights, embed_weights=True)
    assert init(inside) == []
    assert inside.describe()["constant_bytes"] == 32 * 64 * 2
    session = InferenceSession(threads=1)
    models = session.load(compile(graph, "cpu"), weights), session.load(inside)
    wanted, got = (model.execute(x)[0].to_numpy().tobytes() for model in models)
    assert got == wanted


def test_quantized_weights_are_settled():
    """int8 with its column sums, four bits with their scales, floats of 8 bits."""
    x = TensorType(F32, (ROWS, 64))
    with Graph("quantized", [x, TensorType(DType.int8, (ROWS, 64))]) as graph:
        w4 = graph.add_weight(Weight("w4", DType.uint8, (40, 32)))
        s4 = graph.add_weight(Weight("s4", F32, (40, 2)))
        w8 = graph.add_weight(Weight("w8", DType.int8, (40, 64)))
        f8 = graph.add_weight(Weight("f8", DType.float8_e4m3fn, (40, 64)))
        a, q = graph.inputs
        graph.output(
            ops.quantized_matmul(a, w4, s4, bits=4, group=32),
            ops.integer_matmul(q, w8.T),
            ops.float8_matmul(ops.cast(a, DType.float8_e5m2), f8.T),
        )
    weights = {
        "w4": RANDOM.integers(0, 256, (40, 32), np.uint8),
        "s4": normal(F32, 40, 2),
        "w8": RANDOM.integers(-128, 128, (40, 64), np.int8),
        "f8": normal(DType.float8_e4m3fn, 40, 64),
    }
    given = normal(F32, 5, 64), RANDOM.integers(-128, 128, (5, 64), np.int8)
    inside = compile(graph, "cpu", weights=weights, embed_weights=True)
    assert bound(inside) == dict.fromkeys(weights, (True, True))
    session = InferenceSession(threads=1)
    models = session.load(compile(graph, "cpu"), weights), session.load(inside)
    for wanted, got in zip(*(model.execute(*given) for model in models), strict=True):
        assert got.to_numpy().tobytes() == wanted.to_numpy().tobytes()


def test_a_gpus_turned_weights_are_settled():
    """A device then holds them once."""
    with Graph("turned", [TensorType(DType.int8, (ROWS, 64))]) as graph:
        w = graph.add_weight(Weight("w", DType.int8, (64, 128)))
        graph.output(ops.integer_matmul(graph.inputs[0], w))
    weights = {"w": RANDOM.integers(-128, 128, (64, 128), np.int8)}
    artifact = compile(graph, "cuda:sm_90a", weights=weights, embed_weights=True)
    assert bound(artifact) == {"w": (True, True)}
    assert init(artifact) == []
    assert weights["w"].T.tobytes() in artifact.to_bytes()


def test_arithmetic_of_floats_is_left_to_init():
    """What a machine computes may depend on it; the artifact does not."""
    with Graph("scaled", [TensorType(F32, (ROWS, 8))]) as graph:
        w = graph.add_weight(Weight("w", F32, (8, 8)))
        graph.output(graph.inputs[0] @ (w * 3.0))
    artifact = compile(graph, LEVEL, weights={"w": np.ones((8, 8), np.float32)}, embed_weights=True)
    assert bound(artifact) == {"w": (True, False)}
    assert len(init(artifact)) == 2


def test_programs_of_two_kinds_share_the_weights_as_they_are():
    weights = {"w": np.ones((40, 70), np.float32), "v": np.ones((70, 40), np.float32)}
    artifact = compile(products(), (LEVEL, "cuda:sm_80"), weights=weights, embed_weights=True)
    assert bound(artifact) == {"w": (True, False), "v": (True, False)}


def test_settled_weights_are_not_given_again():
    weights = {"w": np.ones((40, 70), np.float32), "v": np.ones((70, 40), np.float32)}
    artifact = compile(products(), LEVEL, weights=weights, embed_weights=True)
    message = (
        "weights: given, but the artifact holds them as its kernels read them: 'w', 'v'"
        r" \(give none, or do not embed them when compiling\)$"
    )
    with pytest.raises(ArtifactError, match=message) as refused:
        InferenceSession(threads=1).load(artifact, weights)
    assert refused.value.reason is ArtifactReason.WEIGHTS


def test_equal_weights_that_are_packed_alike_are_there_once():
    with Graph("equal", [TensorType(F32, (ROWS, 64))]) as graph:
        names = ("first", "second", "other")
        products = [graph.inputs[0] @ graph.add_weight(Weight(n, F32, (32, 64))).T for n in names]
        products.append(graph.inputs[0] @ graph.add_weight(Weight("turned", F32, (64, 32))))
        graph.output(*products)
    weights = {name: normal(F32, 32, 64) for name in names}
    weights["second"] = weights["first"].copy()
    weights["turned"] = weights["first"].reshape(64, 32)
    artifact = compile(graph, LEVEL, weights=weights, embed_weights=True)
    assert artifact.describe()["constant_bytes"] == 3 * (32 * 64 * 4)
    x = normal(F32, 3, 64)
    results = [y.to_numpy() for y in InferenceSession(threads=1).load(artifact).execute(x)]
    for name, y in zip(names, results[:3], strict=True):
        np.testing.assert_allclose(y, x @ weights[name].T, atol=1e-4)
    np.testing.assert_allclose(results[3], x @ weights["turned"], atol=1e-4)


def test_the_same_bytes_twice():
    weights = {"w": np.ones((40, 70), np.float32), "v": np.full((70, 40), 2, np.float32)}
    first, second = (
        compile(products(), "cpu", weights=weights, embed_weights=True).to_bytes() for _ in range(2)
    )
    assert first == second
