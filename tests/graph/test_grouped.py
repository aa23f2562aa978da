"""grouped_matmul and what sorts rows by group: a whole mixture of experts, and mistakes."""

import re

import ml_dtypes
import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler.pipeline import lower
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError, InputError

F32, BF16, I64 = DType.float32, DType.bfloat16, DType.int64
EXPERTS, TOP, SIZE, INNER = 8, 2, 48, 70


def mixture(dtype):
    """The layer of Mixtral: two of eight experts for each token, weighted by their softmax."""
    with Graph("mixture", [TensorType(dtype, (Dim("t", 1, 200), SIZE))]) as graph:
        (x,) = graph.inputs
        router = graph.add_weight(Weight("router", dtype, (EXPERTS, SIZE)))
        gate, up = (
            graph.add_weight(Weight(name, dtype, (EXPERTS, INNER, SIZE))) for name in ("gate", "up")
        )
        down = graph.add_weight(Weight("down", dtype, (EXPERTS, SIZE, INNER)))
        scores, chosen = ops.top_k(ops.cast(x @ router.T, F32), TOP)
        weights = ops.softmax(scores)
        groups = ops.reshape(chosen, (-1,))
        offsets = ops.group_offsets(groups, groups=EXPERTS)
        order = ops.group_order(groups, groups=EXPERTS)
        places = ops.group_order(groups, groups=EXPERTS, places=True)
        rows = ops.gather(x, order // TOP, axis=0)
        inner = ops.silu(ops.grouped_matmul(rows, ops.transpose(gate), offsets))
        inner = inner * ops.grouped_matmul(rows, ops.transpose(up), offsets)
        result = ops.grouped_matmul(inner, ops.transpose(down), offsets)
        back = ops.gather(result, ops.reshape(places, chosen.shape), axis=0)
        total = ops.sum(ops.cast(back, F32) * ops.unsqueeze(weights, 2), axis=1)
        graph.output(ops.cast(ops.reshape(total, x.shape), dtype))
    return graph


def plain(x, router, gate, up, down):
    """Token by token, expert by expert, in float64."""
    result = np.zeros_like(x)
    for token, row in enumerate(x):
        scores = router @ row
        best = np.argsort(-scores, kind="stable")[:TOP]
        shares = np.exp(scores[best] - scores[best].max())
        for share, expert in zip(shares / shares.sum(), best, strict=True):
            a, b = gate[expert] @ row, up[expert] @ row
            result[token] += share * (down[expert] @ (a / (1 + np.exp(-a)) * b))
    return result


@pytest.mark.parametrize(("dtype", "tolerance"), [(F32, 1e-5), (BF16, 3e-2)])
def test_a_mixture_of_experts_is_one_graph(dtype, tolerance):
    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype is BF16 else np.float32
    shapes = {
        "router": (EXPERTS, SIZE),
        "gate": (EXPERTS, INNER, SIZE),
        "up": (EXPERTS, INNER, SIZE),
        "down": (EXPERTS, SIZE, INNER),
    }
    weights = {n: (rng.standard_normal(s) / 7).astype(kind) for n, s in shapes.items()}
    model = InferenceSession(threads=2).load(compile(mixture(dtype), "cpu:native"), weights)
    for tokens in (1, 5, 130):
        x = rng.standard_normal((tokens, SIZE)).astype(kind)
        (found,) = model.execute(x)
        wide = [array.astype(np.float64) for array in (x, *weights.values())]
        wanted = plain(*wide)
        error = np.abs(found.to_numpy().astype(np.float64) - wanted).max()
        assert error < tolerance * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("kind", "op"), [("cpu", "grouped_matmul_packed"), ("cuda", "grouped_matmul")]
)
def test_kernels_of_the_layer(kind, op):
    """Weights are packed or read transposed, and silu and mul join the products."""
    lowered = lower(mixture(F32).module, kind)
    groups = [o for o in m.operations(lowered) if m.name(o) == "fused"]
    found = [str(o.attributes["kernel"]).strip('"').rpartition("-")[0] for o in groups]
    assert found.count(op) == 3
    assert "transpose" not in found
    with_epilogue = [[m.name(inner) for inner in m.inner(o)] for o in groups]
    assert (
        sum({"silu", op} <= set(names) or {"mul", op} <= set(names) for names in with_epilogue) == 2
    )


def types_of(*shapes, dtypes=(F32, F32, I64)):
    return [TensorType(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]


SHAPES = ("m", 6), (3, 6, 5), (4,)
MISTAKES = [
    (types_of(("m", 2, 6), *SHAPES[1:]), "x: wanted rank 2, got [m, 2, 6]"),
    (types_of(SHAPES[0], (6, 5), SHAPES[2]), "weights: wanted rank 3, got [6, 5]"),
    (types_of(("m", 5), *SHAPES[1:]),
     "wanted [rows, k] and [groups, k, n], got [m, 5] and [3, 6, 5]"),
    (types_of(*SHAPES[:2], (3,)), "offsets: wanted [4], got [3]"),
    (types_of(*SHAPES, dtypes=(F32, F32, F32)),
     "offsets: wanted int32 or int64, got float32; cast it first"),
    (types_of(*SHAPES, dtypes=(F32, BF16, I64)),
     "wanted operands of one dtype, got float32, bfloat16"),
    (types_of(*SHAPES, dtypes=(I64, I64, I64)),
     "wanted a floating-point dtype, got int64; cast it first"),
]  # fmt: skip


@pytest.mark.parametrize(("types", "message"), MISTAKES)
def test_mistakes(types, message):
    place = r"test_grouped\.py:\d+: grouped_matmul: "
    with pytest.raises(GraphError, match=place + re.escape(message)), Graph("g", types) as graph:
        ops.grouped_matmul(*graph.inputs)


@pytest.mark.parametrize(
    ("type", "groups", "message"),
    [
        (TensorType(F32, ("m",)), 3, "groups_of: wanted an integer dtype, got float32"),
        (TensorType(I64, ("m", 2)), 3, "groups_of: wanted rank 1, got [m, 2]"),
        (TensorType(I64, ("m",)), 0, "groups: wanted 1 to 4096, got 0"),
        (TensorType(I64, ("m",)), 4097, "groups: wanted 1 to 4096, got 4097"),
    ],
)
@pytest.mark.parametrize("op", [ops.group_offsets, ops.group_order])
def test_mistakes_of_sorting(op, type, groups, message):
    with pytest.raises(GraphError, match=re.escape(message)), Graph("g", [type]) as graph:
        op(graph.inputs[0], groups=groups)


def test_what_the_verifier_refuses():
    """Of the packed product, which `ops` has no function for."""
    types = types_of(("m", 6), (3, 1, 6, 32), (4,))
    infer, attrs = ROWS["grouped_matmul_packed"].infer, {"columns": Dim(5)}
    assert infer(types, attrs) == TensorType(F32, ("m", 5))
    with pytest.raises(GraphError, match=re.escape("b: wanted rank 1 or more")):
        infer([types[0], TensorType(F32, ()), types[2]], attrs)
    with pytest.raises(GraphError, match=r"b: wanted panels \[1, 6, 32\] for n = 5"):
        infer([types[0], TensorType(F32, (3, 2, 6, 32)), types[2]], attrs)


def test_values_that_are_wrong_are_errors_of_the_run():
    with Graph("g", [*types_of(*SHAPES), TensorType(I64, ("r",))]) as graph:
        *operands, groups = graph.inputs
        graph.output(ops.grouped_matmul(*operands), ops.group_order(groups, groups=3))
    model = InferenceSession().load(compile(graph, "cpu:native"))
    x, weights = np.ones((2, 6), np.float32), np.ones((3, 6, 5), np.float32)
    with pytest.raises(InputError, match=r"grouped_matmul.*3"):
        model.execute(x, weights, np.array([0, 1, 1, 3]), np.array([1]))
    with pytest.raises(InputError, match=r"group_order.*3, got 3"):
        model.execute(x, weights, np.array([0, 1, 1, 2]), np.array([3]))
    with pytest.raises(IndexError, match="wanted groups from 0 to 2"):
        evaluate(graph, [x, weights, np.array([0, 1, 1, 2]), np.array([-1])])


def test_an_index_of_64_bits_is_told_without_a_sign():
    with Graph("g", [TensorType(F32, (5, 2)), TensorType(DType.uint64, (2,))]) as graph:
        x, indices = graph.inputs
        graph.output(ops.gather(x, indices, axis=0), ops.group_order(indices, groups=5))
    model = InferenceSession().load(compile(graph, "cpu:native"))
    with pytest.raises(InputError, match=f"inside a size of 5, got {2**64 - 1}$"):
        model.execute(np.ones((5, 2), np.float32), np.array([2**64 - 1, 0], np.uint64))
