"""A decoder's step on its cache, compiled: the same as its ops one by one, in place or not."""

import numpy as np
import pytest

from heddle.graph import DeviceRef, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import assemble
from heddle.graph.compiler.passes.plan import awaits_calls
from heddle.graph.compiler.pipeline import lower
from heddle.graph.reference import evaluate
from heddle.kernels.registry import AHEAD
from heddle.runtime import Buffer, InferenceSession
from heddle.runtime.errors import InputError

TYPES = {
    "keys": (DType.float32, ("blocks", 4, 2, 16)),
    "values": (DType.float32, ("blocks", 4, 2, 16)),
    "query": (DType.float32, ("tokens", 6, 16)),
    "key": (DType.float32, ("tokens", 2, 16)),
    "value": (DType.float32, ("tokens", 2, 16)),
    "cos": (DType.float32, ("tokens", 1, 8)),
    "sin": (DType.float32, ("tokens", 1, 8)),
    "offsets": (DType.int64, (3,)),
    "lengths": (DType.int64, (2,)),
    "tables": (DType.int32, (2, 2)),
}


@pytest.fixture(scope="module", params=[8, 3], ids=["whole heads", "parts of heads"])
def kinds(request):
    """The dtypes and shapes of a step whose tables have so many columns."""
    angles = DType.float32, ("tokens", 1, request.param)
    return {**TYPES, "cos": angles, "sin": angles}


@pytest.fixture(scope="module")
def graph(kinds):
    types = [TensorType(dtype, shape, DeviceRef.CPU()) for dtype, shape in kinds.values()]
    with Graph("step", types, input_names=list(TYPES)) as made:
        keys, values, query, key, value, cos, sin, *rows = (x.tensor for x in made.inputs)
        turned = ops.rope(query, cos, sin)
        new = ops.paged_write(keys, ops.rope(key, cos, sin), *rows)
        made.output(ops.paged_write(values, value, *rows), turned, new)
    return made


@pytest.fixture
def arrays(kinds):
    rng = np.random.default_rng(0)
    sizes = {"blocks": 5, "tokens": 4}
    shapes = [[sizes.get(size, size) for size in shape] for _, shape in list(kinds.values())[:7]]
    rows = np.array([0, 1, 4]), np.array([7, 3]), np.array([[4, 1], [0, 3]], np.int32)
    return [*(rng.standard_normal(shape, np.float32) for shape in shapes), *rows]


def test_every_stage_computes_the_same(graph, arrays):
    wanted = evaluate(graph, arrays)
    for kind in ("cpu", "cuda"):
        module = lower(graph.module, kind)
        assert [r.spec.op for _, r in assemble.requests(module, kind)] == ["rotate_and_write"]
        for found, exact in zip(evaluate(module, arrays), wanted, strict=True):
            np.testing.assert_array_equal(found, exact)


APART = {
    "queries of another size": {"query": (DType.float32, ("tokens", 6, 20))},
    "values of other tokens": {"value": (DType.float32, ("others", 2, 16))},
}


@pytest.mark.parametrize("name", APART)
def test_what_no_kernel_takes_together_stays_apart(name):
    """The same tables may turn a part of a query, and values come from elsewhere than keys."""
    kinds = {**TYPES, **APART[name]}
    with Graph("step", [TensorType(dtype, shape) for dtype, shape in kinds.values()]) as made:
        keys, values, query, key, value, cos, sin, *rows = (x.tensor for x in made.inputs)
        new = ops.paged_write(keys, ops.rope(key, cos, sin), *rows)
        made.output(ops.rope(query, cos, sin), new, ops.paged_write(values, value, *rows))
    for kind in ("cpu", "cuda"):
        asked = [r.spec.op for _, r in assemble.requests(lower(made.module, kind), kind)]
        assert sorted(asked) == ["paged_write", "paged_write", "rope", "rope"]


def test_caches_are_copied_or_changed_in_place(graph, arrays):
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"))
    wanted = evaluate(graph, arrays)
    given = [Buffer.from_numpy(array) for array in arrays]
    found = model.execute(*given)
    for result, exact in zip(found, wanted, strict=True):
        np.testing.assert_allclose(result.to_numpy(), exact, rtol=1e-6, atol=1e-6)
    for cache, before in zip(given[:2], arrays, strict=False):
        np.testing.assert_array_equal(cache.to_numpy(), before)
    model.execute(*given, out=[given[1], Buffer("float32", (4, 6, 16)), given[0]])
    for cache, exact in ((given[1], wanted[0]), (given[0], wanted[2])):
        np.testing.assert_allclose(cache.to_numpy(), exact, rtol=1e-6, atol=1e-6)


def test_a_block_that_is_not_there_is_named(graph, arrays):
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    arrays[-1][0, 1] = 9
    with pytest.raises(InputError, match=r"rope \+ rope \+ paged_write \+ paged_write \(test_join"):
        model.execute(*arrays)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_rows_that_the_graph_is_given_are_read_ahead(kind, computed):
    """But not lengths that another kernel computes, nor on a CPU, where none waits for others."""
    types = [TensorType(dtype, shape) for dtype, shape in TYPES.values()]
    with Graph("attention", types) as made:
        keys, values, query, *_, offsets, lengths, tables = (x.tensor for x in made.inputs)
        if computed:
            lengths = ops.reshape(lengths + 1, (2,))
        rows = offsets, ops.reshape(lengths, (2,)), tables
        made.output(ops.paged_attention(query, keys, values, *rows, scale=0.1))
    asked = assemble.requests(lower(made.module, kind), kind)
    found = {r.spec.attr(AHEAD) for _, r in asked if r.spec.op == "paged_attention"}
    assert found == {True if kind == "cuda" and not computed else None}


WEIGHTS = {
    # kind, rows, how the right side comes; whether it is read ahead
    "an input": ("cuda", "rows", lambda given, weight: given, True),
    "a weight": ("cuda", 3, lambda given, weight: weight, True),
    "a weight that is turned at load": ("cuda", 3, lambda given, weight: ops.exp(weight), True),
    "what a kernel writes": ("cuda", 3, lambda given, weight: ops.exp(given), None),
    "many rows": ("cuda", 300, lambda given, weight: weight, None),
    "on a CPU": ("cpu", 3, lambda given, weight: given, None),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_few_rows_are_read_ahead(name):
    kind, rows, side, wanted = WEIGHTS[name]
    half = TensorType(DType.bfloat16, (64, 64))
    with Graph("product", [TensorType(DType.bfloat16, (rows, 64)), half]) as made:
        x, given = (each.tensor for each in made.inputs)
        x, right = ops.tanh(x), side(given, made.add_weight(Weight("w", half.dtype, half.shape)))
        made.output(ops.matmul(x, right), ops.matmul(x, right.T))
    module = lower(made.module, kind)
    asked = assemble.requests(module, kind)
    products = [r.spec for _, r in asked if r.spec.op.startswith("matmul")]
    assert {spec.attr(AHEAD) for spec in products} == {wanted}
    brought = name == "an input"  # By a call, which may be behind the kernel that writes it.
    assert awaits_calls(module, kind) == brought


@pytest.mark.parametrize("kinds", [(True, False), (False, True), (True, True, False)])
@pytest.mark.parametrize("rows", [3, "rows"])
def test_weights_with_and_without_minimums_are_read_ahead(rows, kinds):
    """Each product has its own buffers; minimums that a kernel computes are not read ahead."""
    half = DType.bfloat16
    for computed in (False, True):
        with Graph("products", [TensorType(half, (rows, 256)), TensorType(half, (64, 8))]) as made:
            x, given = (each.tensor for each in made.inputs)
            x, results = ops.tanh(x), []
            for number, has_minimums in enumerate(kinds):
                w = made.add_weight(Weight(f"w{number}", DType.uint8, (64, 128)))
                scales = made.add_weight(Weight(f"s{number}", half, (64, 8)))
                minimums = [ops.exp(given) if computed else given] * has_minimums
                results.append(ops.quantized_matmul(x, w, scales, *minimums, bits=4, group=32))
            made.output(*results)
        asked = assemble.requests(lower(made.module, "cuda"), "cuda")
        joined = [r.spec for _, r in asked if r.spec.beside]
        assert [len(spec.beside) for spec in joined] == [len(kinds) - 1]
        assert joined[0].attr(AHEAD) == (None if computed else True)


def test_a_run_overlaps_what_is_in_front_unless_it_reads_ahead_what_a_call_brings():
    half = TensorType(DType.bfloat16, (3, 64))
    for given in (False, True):
        with Graph("product", [half, TensorType(DType.bfloat16, (64, 64))]) as made:
            x, right = (each.tensor for each in made.inputs)
            right = right if given else made.add_weight(Weight("w", DType.bfloat16, (64, 64)))
            made.output(ops.matmul(x, right))
        artifact = compile(made, ["cpu:native", "cuda:sm_90a"])
        found = {program["target"]: program["overlaps"] for program in artifact.programs}
        assert found == {"cpu": False, "cuda": not given}
