"""quantized_grouped_matmul: what it means, what it becomes on both targets, and mistakes."""

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

F32, BF16, I64, I8, U8 = DType.float32, DType.bfloat16, DType.int64, DType.int8, DType.uint8
EXPERTS, K, N = 6, 64, 70


def weights_of(dtype, bits, group):
    """Integers of all bits, and scales of about 1/64, as the runtime takes them."""
    rng = np.random.default_rng(bits)
    integers = rng.integers(0, 256, (EXPERTS, N, K * bits // 8)).astype(np.uint8)
    scales = rng.standard_normal((EXPERTS, N, K // group)) / 64
    kind = ml_dtypes.bfloat16 if dtype is BF16 else np.float32
    return {"q": integers.view(np.int8) if bits == 8 else integers, "s": scales.astype(kind)}


def product(dtype, bits, group, **attrs):
    """silu of the rows' products, each plus a bias."""
    types = [TensorType(dtype, (Dim("rows", 0, 300), K)), TensorType(I64, (EXPERTS + 1,))]
    with Graph("experts", types) as graph:
        x, offsets = graph.inputs
        shape = (EXPERTS, N, K * bits // 8)
        q = graph.add_weight(Weight("q", I8 if bits == 8 else U8, shape))
        s = graph.add_weight(Weight("s", dtype, (EXPERTS, N, K // group)))
        bias = ops.constant(np.linspace(-1, 1, N, dtype=np.float32))
        y = ops.quantized_grouped_matmul(x, q, s, offsets, bits=bits, group=group, **attrs)
        graph.output(ops.cast(ops.silu(ops.cast(y, F32) + bias), dtype))
    return graph


def test_each_group_is_multiplied_by_its_own_weights():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, K)).astype(np.float32)
    weights = weights_of(F32, 4, 32)
    attrs = {"bits": 4, "group": 32, "activations": "float"}
    offsets = np.array([1, 1, 3, 3, 3, 8, 8])
    operands = x, weights["q"], weights["s"], offsets
    found = ROWS["quantized_grouped_matmul"].reference(*operands, **attrs)
    one = ROWS["quantized_matmul"].reference
    for rows, expert in ((slice(1, 3), 1), (slice(3, 8), 4)):
        wanted = one(x[rows], weights["q"][expert], weights["s"][expert], **attrs)
        np.testing.assert_array_equal(found[rows], wanted)
    assert not found[0].any()
    assert not found[8].any()


@pytest.mark.parametrize("activations", ["float", "int8"])
@pytest.mark.parametrize(
    ("dtype", "bits", "group", "tolerance"),
    [(F32, 8, 32, 1e-5), (F32, 4, 64, 1e-5), (BF16, 8, 64, 2e-2), (BF16, 4, 32, 2e-2)],
)
def test_compiled_it_equals_its_reference(dtype, bits, group, tolerance, activations):
    graph, weights = (
        product(dtype, bits, group, activations=activations),
        weights_of(dtype, bits, group),
    )
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), weights)
    rng = np.random.default_rng(1)
    for offsets in ([0] * 7, [0, 0, 1, 1, 1, 1, 1], [2, 3, 3, 10, 12, 99, 100]):
        x = rng.standard_normal((offsets[-1] + 1, K)).astype(weights["s"].dtype)
        offsets = np.array(offsets)
        arrays = {name: np.float32(a) if name == "s" else a for name, a in weights.items()}
        (wanted,) = evaluate(graph, [np.float32(x), offsets], arrays)
        (found,) = model.execute(x, offsets)
        error = np.abs(found.to_numpy().astype(np.float32) - wanted).max()
        assert error <= tolerance * np.abs(wanted).max()


def kernels(graph, kind):
    """The kernels of the graph, in order: (op, stage, ops inside)."""
    lowered = lower(graph.module, kind)
    groups = [o for o in m.operations(lowered) if m.name(o) == "fused"]
    return [
        (
            str(o.attributes["kernel"]).strip('"').rpartition("-")[0],
            str(o.attributes["stage"]).strip('"') if "stage" in o.attributes else "",
            [m.name(inner) for inner in m.inner(o)],
        )
        for o in groups
    ]


@pytest.mark.parametrize("bits", [8, 4])
def test_a_call_is_one_kernel_with_all_that_is_behind_it(bits):
    """On a CPU weights are packed at load; on a GPU they are read as they lie."""
    found = kernels(product(BF16, bits, 32), "cpu")
    packing = "pack_int4" if bits == 4 else "pack_b"
    assert [op for op, stage, _ in found if stage == "init"] == [packing, "pack_b"]
    ((op, _, inside),) = [kernel for kernel in found if kernel[1] != "init"]
    assert op == "quantized_grouped_matmul_packed"
    assert {"silu", "add", "cast"} < set(inside)
    ((op, stage, inside),) = kernels(product(BF16, bits, 32), "cuda")
    assert (op, stage) == ("quantized_grouped_matmul", "")
    assert {"silu", "add", "cast"} < set(inside)


def test_rows_in_8_bits_are_rounded_once_for_all_products_of_them():
    types = [TensorType(F32, ("rows", K)), TensorType(I64, (EXPERTS + 1,))]
    with Graph("two", types) as graph:
        x, offsets = graph.inputs
        q, other = (graph.add_weight(Weight(n, I8, (EXPERTS, N, K))) for n in ("q", "other"))
        s = graph.add_weight(Weight("s", F32, (EXPERTS, N, 2)))
        attrs = {"group": 32, "activations": "int8"}
        a, b = (ops.quantized_grouped_matmul(x, w, s, offsets, **attrs) for w in (q, other))
        graph.output(ops.silu(a) * b)
    called = [op for op, stage, _ in kernels(graph, "cpu") if stage != "init"]
    assert called == ["round_rows", *["rounded_grouped_matmul_packed"] * 2]


def test_rows_in_8_bits_keep_their_meaning_on_cuda():
    graph, weights = product(F32, 8, 32, activations="int8"), weights_of(F32, 8, 32)
    x = np.random.default_rng(0).standard_normal((9, K)).astype(np.float32)
    inputs = [x, np.array([0, 1, 1, 4, 9, 9, 9])]
    module = lower(graph.module, "cuda", stop_after="legalize")
    assert "round" in {m.name(op) for op in m.operations(module)}
    (wanted,), (found,) = evaluate(graph, inputs, weights), evaluate(module, inputs, weights)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_transposed_weight_of_floats_costs_nothing_in_a_call(kind):
    """As checkpoints have it, [groups, n, k]: turned while it is packed at load, or read so."""
    types = [TensorType(BF16, ("rows", K)), TensorType(I64, (EXPERTS + 1,))]
    with Graph("turned", types) as graph:
        x, offsets = graph.inputs
        weight = graph.add_weight(Weight("w", BF16, (EXPERTS, N, K)))
        graph.output(ops.grouped_matmul(x, ops.transpose(weight, 1, 2), offsets))
    found = kernels(graph, kind)
    assert [op for op, stage, _ in found if stage == "init"] == ["pack_b"] * (kind == "cpu")
    called = [op for op, stage, _ in found if stage != "init"]
    assert called == ["grouped_matmul_packed" if kind == "cpu" else "grouped_matmul"]


def test_embedded_weights_lie_packed_in_the_artifact():
    weights = weights_of(F32, 4, 32)
    graph = product(F32, 4, 32)
    offsets, x = np.array([0, 1, 1, 4, 9, 9, 9]), np.ones((9, K), np.float32)
    session = InferenceSession(threads=1)
    inside = session.load(compile(graph, "cpu:native", weights=weights, embed_weights=True))
    (found,) = inside.execute(x, offsets)
    (wanted,) = session.load(compile(graph, "cpu:native"), weights).execute(x, offsets)
    assert found.to_numpy().tobytes() == wanted.to_numpy().tobytes()
    module = lower(graph.module, "cpu", embedded=True)
    text = [o for o in m.operations(module) if m.name(o) == "fused"]
    stages = [str(o.attributes["stage"]).strip('"') for o in text if "stage" in o.attributes]
    assert stages == ["compile", "compile"]


def types_of(x=("m", 64), weights=(3, 5, 64), scales=(3, 5, 2), offsets=(4,), dtypes=()):
    shapes = x, weights, scales, offsets
    return [TensorType(d, s) for d, s in zip(dtypes or (F32, I8, F32, I64), shapes, strict=True)]


MISTAKES = [
    (types_of(x=("m", 2, 64)), {}, "x: wanted rank 2, got [m, 2, 64]"),
    (types_of(weights=(5, 64)), {}, "weights: wanted rank 3, got rank 2 (int8[5, 64] on cpu:0)"),
    (types_of(scales=(5, 2)), {}, "scales: wanted rank 3, got rank 2 (float32[5, 2] on cpu:0)"),
    (types_of(weights=(3, 5, 32)), {},
     "weights: wanted [3, 5, 64] for scales [3, 5, 2], got [3, 5, 32]"),
    (types_of(scales=(2, 5, 2)), {},
     "weights: wanted [2, 5, 64] for scales [2, 5, 2], got [3, 5, 64]"),
    (types_of(), {"bits": 4}, "weights: wanted uint8 for 4 bits, got int8"),
    (types_of(offsets=(3,)), {}, "offsets: wanted [4], got [3]"),
    (types_of(dtypes=(F32, I8, F32, F32)), {},
     "offsets: wanted int32 or int64, got float32; cast it first"),
    (types_of(dtypes=(F32, I8, BF16, I64)), {},
     "scales: wanted float32, as x, or float16, got bfloat16"),
    (types_of(x=("m", 96)), {}, "x: wanted k = 64, 2 groups of 32, got [m, 96]"),
]  # fmt: skip


@pytest.mark.parametrize(("types", "attrs", "message"), MISTAKES)
def test_mistakes(types, attrs, message):
    place = r"test_quantized_groups\.py:\d+: quantized_grouped_matmul: "
    with pytest.raises(GraphError, match=place + re.escape(message)), Graph("g", types) as graph:
        ops.quantized_grouped_matmul(*graph.inputs, group=32, **attrs)


@pytest.mark.parametrize("kind", ["quantized", "rounded"])
def test_what_the_verifier_refuses(kind):
    """Of the packed products, which `ops` has no function for."""
    infer = ROWS[f"{kind}_grouped_matmul_packed"].infer
    left = TensorType(F32, ("m", 64)) if kind == "quantized" else TensorType(U8, ("m", 80))
    packed = TensorType(I8, (3, 2, 16, 32, 4)), TensorType(F32, (3, 2, 2, 32))
    offsets, attrs = TensorType(I64, (4,)), {"columns": Dim(40), "group": 32, "dtype": F32}
    assert infer([left, *packed, offsets], attrs) == TensorType(F32, ("m", 40))
    with pytest.raises(GraphError, match=re.escape("weights: wanted rank 1 or more")):
        infer([left, TensorType(I8, ()), packed[1], offsets], attrs)
    with pytest.raises(GraphError, match=r"scales: wanted 3 groups, got \[2, 2, 2, 32\]"):
        infer([left, packed[0], TensorType(F32, (2, 2, 2, 32)), offsets], attrs)
    with pytest.raises(GraphError, match=r"weight: wanted panels \[2, 16, 32, 4\] for n = 40"):
        infer([left, TensorType(I8, (3, 1, 16, 32, 4)), packed[1], offsets], attrs)


def test_offsets_that_are_wrong_are_errors_of_the_run():
    model = InferenceSession().load(
        compile(product(F32, 8, 32), "cpu:native"), weights_of(F32, 8, 32)
    )
    with pytest.raises(InputError, match=r"quantized_grouped_matmul.*9"):
        model.execute(np.ones((4, K), np.float32), np.array([0, 1, 1, 4, 9, 9, 9]))
