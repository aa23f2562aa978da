"""Graphs at the edge of what programs can be, compiled, run and compared with NumPy."""

import re

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

F32 = DType.float32


def check(graph, *shapes, weights=None):
    """One artifact, all the sizes."""
    model = InferenceSession(threads=2).load(compile(graph, "cpu:x86-64-v3"), weights)
    rng = np.random.default_rng(0)
    for sizes in shapes:
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in sizes]
        wanted = evaluate(graph, arrays, weights)
        for result, reference in zip(model.execute(*arrays), wanted, strict=True):
            np.testing.assert_allclose(result.to_numpy(), reference, rtol=1e-5, atol=1e-5)


def test_no_inputs():
    """All of it runs at load; what is returned is copied from the state."""
    with Graph("constants", []) as graph:
        wide = ops.broadcast_to(graph.constant(2.0), (256, 300))
        w = graph.add_weight(Weight("w", F32, (300,)))
        soft = ops.softmax(ops.broadcast_to(w, (4, 300)))
        graph.output(wide, wide + w, ops.exp(wide), soft, ops.reshape(wide, (-1,)))
    check(graph, (), weights={"w": np.linspace(-2, 2, 300, dtype=np.float32)})


def test_sizes_of_zero():
    types = [TensorType(F32, (Dim("n", 0, 9), 4)), TensorType(F32, ("n", 1))]
    with Graph("empty", types) as graph:
        x, y = graph.inputs
        ones = graph.constant(np.ones(4, np.float32))
        graph.output(
            ops.softmax(x),
            ops.softmax(x, axis=0),
            x @ x.T,
            ops.sum(x, axis=1),
            ops.concat([x, x], axis=0),
            ops.exp(x) * ops.broadcast_to(y, ("n", 4)),
            ops.layer_norm(x * 2.0, ones, ones),
        )
    check(graph, *([(n, 4), (n, 1)] for n in (0, 1, 9)))


@pytest.mark.parametrize("shape", [("a", "c", 0), ("a", 0, "c"), (3000, "c", 0)])
def test_sums_down_columns_of_which_there_are_none(shape):
    """Their kernels take a workspace, for which nothing is left to hold."""
    with Graph("empty", [TensorType(F32, shape)]) as graph:
        x = graph.inputs[0]
        graph.output(*(op(x, axis=0) for op in (ops.sum, ops.mean, ops.max, ops.min, ops.cumsum)))
    check(graph, [tuple({"a": 3, "c": 2}.get(size, size) for size in shape)])


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_returned_as_it_came_is_copied_by_all_threads(threads):
    """In parts of 512 KiB, of which the last is a short one."""
    with Graph("copies", [TensorType(DType.uint8, (Dim("n", 0),))]) as graph:
        graph.output(*graph.inputs)
    model = InferenceSession(threads=threads).load(compile(graph, "cpu:native"))
    part = 512 * 1024
    for size in (0, 1, part - 1, part, part + 1, 7 * part + 5):
        x = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        whole = np.zeros(size + 2, np.uint8)
        model.execute(x, out=[whole[1:-1]])
        np.testing.assert_array_equal(whole, np.pad(x, 1))


def test_one_row_by_what_is_known_late():
    """No right side is packed; sizes of zero, and a row for each of a batch."""
    n, k = Dim("n", 0, 400), Dim("k", 0, 400)
    types = [(1, n), (k, n), (n, k), ("heads", 1, n), ("heads", k, n)]
    with Graph("rows", [TensorType(F32, shape) for shape in types]) as graph:
        row, turned, plain, rows, keys = graph.inputs
        whole = [ops.cast(ops.round(x), DType.float16) for x in (row, plain)]  # exact sums
        scores = rows @ ops.transpose(keys, -1, -2)
        graph.output(row @ turned.T, row @ plain + 1.0, scores, ops.cast(whole[0] @ whole[1], F32))
    for n, k, heads in ((1, 1, 1), (37, 70, 3), (0, 5, 2), (300, 0, 2)):
        shapes = [(1, n), (k, n), (n, k), (heads, 1, n), (heads, k, n)]
        check(graph, shapes)


def test_few_rows_by_what_is_known_late():
    """They are multiplied by it where it lies, turned or not; more rows by panels."""
    n, k = Dim("n", 0, 400), Dim("k", 0, 400)
    types = [(12, k), (13, k), (k, n), (n, k), ("heads", 4, k), ("heads", k, n), (3, 4, k)]
    with Graph("few", [TensorType(F32, shape) for shape in types]) as graph:
        few, more, plain, turned, queries, keys, rows = graph.inputs
        lying = few @ plain + 1.0, queries @ keys, rows @ plain
        graph.output(*lying, more @ plain, few @ turned.T)
    for n, k, heads in ((1, 1, 1), (37, 70, 3), (0, 5, 2), (300, 0, 2)):
        shapes = [(12, k), (13, k), (k, n), (n, k), (heads, 4, k), (heads, k, n), (3, 4, k)]
        check(graph, shapes)
    module = pipeline.lower(graph.module, "cpu")
    fused = [op for op in m.operations(module) if m.name(op) == "fused"]
    names = [m.name(inner) for op in fused for inner in m.inner(op)]
    assert [names.count(op) for op in ("matmul", "matmul_packed", "pack_b")] == [4, 1, 1]


def test_many_outputs_of_one_kernel():
    """Of different dtypes too, after a matmul and without a root."""
    with Graph("outputs", [TensorType(F32, ("n", 64))]) as graph:
        (x,) = graph.inputs
        a = ops.exp(x * 0.1)
        b = ops.softmax(a + 1.0)
        above = ops.greater(b, a)
        chosen = ops.where(above, a, b)
        h = x @ ops.permute(graph.constant(np.eye(64, dtype=np.float32) / 2), (1, 0))
        kept = ops.relu(h)
        graph.output(a, b, above, chosen, ops.cast(chosen, DType.int32), h, kept, kept + h)
    check(graph, [(1, 64)], [(7, 64)])


@pytest.mark.parametrize("sizes", [(2, 3, 5), (1, 1, 1)], ids=str)
def test_batched_products(sizes):
    """Leading dims that differ, a transposed right side that is no weight, softmax of an axis."""
    kinds = [("b", "h", "s", 16), ("b", "h", "s", 16), ("h", "s", 16)]
    with Graph("batched", [TensorType(F32, kind) for kind in kinds]) as graph:
        q, k, v = graph.inputs
        weights = ops.softmax(q @ k.T * 0.25)
        graph.output(weights @ v, q @ ops.unsqueeze(v, 0).T, ops.softmax(q, axis=1))
    b, h, s = sizes
    check(graph, [(b, h, s, 16), (b, h, s, 16), (h, s, 16)])


def test_softmax_of_nothing_but_infinity():
    """Zeros, whether the compiler knows the row or the model reads it."""
    rows = np.array([[-np.inf] * 3, [1, -np.inf, -np.inf]], np.float32)
    with Graph("masked", [TensorType(F32, (2, 3))]) as graph:
        (x,) = graph.inputs
        graph.output(ops.softmax(x), ops.softmax(graph.constant(rows)))
    model = InferenceSession().load(compile(graph, "cpu:x86-64-v3"))
    for result in (*model.execute(rows), *evaluate(graph, [rows])):
        np.testing.assert_array_equal(np.asarray(result), [[0, 0, 0], [1, 0, 0]])


def test_narrow_groups_of_float16():
    with Graph("groups", [TensorType(F32, (1, 9, 9, 8))]) as graph:
        weight = np.random.default_rng(0).standard_normal((8, 2, 3, 3)).astype(np.float16)
        x = ops.cast(ops.round(graph.inputs[0]), DType.float16)
        graph.output(ops.cast(ops.conv(x, graph.constant(np.round(weight)), groups=4), F32))
    check(graph, [(1, 9, 9, 8)])


def test_products_of_float64_that_are_narrowed():
    with Graph("double", [TensorType(F32, (3, 4)), TensorType(F32, (4, 5))]) as graph:
        x, y = (ops.cast(value, DType.float64) for value in graph.inputs)
        graph.output(ops.cast(x @ y, F32))
    check(graph, [(3, 4), (4, 5)])


def test_an_update_of_a_weight_that_is_read_at_load():
    lines = [TensorType(DType.int64, (2,)), TensorType(DType.int64, (1,))]
    table, new = TensorType(DType.int32, (1, 2)), TensorType(F32, (3, 2, 8))
    with Graph("cache", [*lines, table, new]) as graph:
        offsets, lengths, blocks, rows = graph.inputs
        cache = graph.add_weight(Weight("cache", F32, (4, 4, 2, 8)))
        written = ops.paged_write(cache, rows, offsets, lengths, blocks)
        graph.output(written, ops.minimum(cache, 0.5))
    weights = {"cache": np.random.default_rng(0).standard_normal((4, 4, 2, 8)).astype(np.float32)}
    arrays = [
        *(np.array([0, 3]), np.array([3]), np.array([[2, 1]], np.int32)),
        np.ones((3, 2, 8), np.float32),
    ]
    model = InferenceSession().load(compile(graph, "cpu:x86-64-v3"), weights)
    for result, wanted in zip(
        model.execute(*arrays), evaluate(graph, arrays, weights), strict=True
    ):
        np.testing.assert_array_equal(result.to_numpy(), wanted)


def test_concat_of_more_than_a_kernel_has_buffers():
    with Graph("many", [TensorType(F32, (1, 4))] * 300) as graph:
        parts = [graph.inputs[number % 300] for number in range(301)]
        graph.output(ops.concat(parts) * 2.0, ops.concat([part + 1.0 for part in parts], axis=1))
    check(graph, [(1, 4)] * 300)


def test_nothing_in_constants_and_weights():
    """Folded, packed into the artifact, or at load."""
    types = [TensorType(F32, (5, 0)), TensorType(F32, (5, 32))]
    with Graph("nothing", types) as graph:
        none, x = graph.inputs
        weights = {"deep": np.zeros((32, 0), np.float32), "wide": np.zeros((0, 32), np.float32)}
        values = {
            name: graph.add_weight(Weight(name, F32, value.shape))
            for name, value in weights.items()
        }
        zero = graph.constant(np.zeros((0, 4, 3), np.float32))
        four = graph.constant(np.zeros((0, 32), np.uint8))
        scales = graph.constant(np.zeros((0, 2), np.float32))
        ones = graph.constant(np.ones((2, 64), np.float32))
        flat = [graph.constant(np.zeros((4, 0), kind)) for kind in (np.uint8, np.float32)]
        picture = graph.constant(np.ones((1, 5, 4), np.float32))
        graph.output(
            *(none @ values["deep"].T, x @ values["wide"].T, ops.conv(picture, zero)),
            *(
                ops.quantized_matmul(ones, four, scales, bits=4, group=32, activations=kind)
                for kind in ("float", "int8")
            ),
            ops.quantized_matmul(none, *flat, flat[1], bits=4, group=32),
        )
    arrays = [np.ones((5, 0), np.float32), np.ones((5, 32), np.float32)]
    wanted = evaluate(graph, arrays, weights)
    for embed in (False, True):
        made = compile(graph, "cpu:x86-64-v3", weights=weights, embed_weights=embed)
        model = InferenceSession(threads=1).load(made, None if embed else weights)
        for found, reference in zip(model.execute(*arrays), wanted, strict=True):
            np.testing.assert_array_equal(found.to_numpy(), reference)


def test_kernels_differ_in_the_sign_of_a_zero():
    """Which Python's numbers do not: 0.0 == -0.0."""
    with Graph("zeros", [TensorType(F32, ("n",)), TensorType(F32, ("m",))]) as graph:
        x, y = graph.inputs
        graph.output(x * 0.0, y * -0.0)
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
    signs = [
        np.signbit(z.to_numpy()).tolist() for z in model.execute(*[np.ones(3, np.float32)] * 2)
    ]
    assert signs == [[False] * 3, [True] * 3]


@pytest.mark.parametrize("middle", [DType.float32, DType.float64, DType.int64], ids=str)
def test_integers_by_way_of_wider_numbers(middle):
    """Floats end at the limits of an integer, integers wrap."""
    with Graph("casts", [TensorType(DType.int8, ("n",))]) as graph:
        wide = ops.cast(graph.inputs[0], middle)
        graph.output(ops.cast(wide, DType.uint8), ops.cast(wide, DType.int16))
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
    x = np.array([-128, -1, 0, 127], np.int8)
    wrapped = [128, 255, 0, 127] if middle is DType.int64 else [0, 0, 0, 127]
    found = [result.to_numpy().tolist() for result in model.execute(x)]
    assert found == [wrapped, x.tolist()] == [y.tolist() for y in evaluate(graph, [x])]


def test_channels_stay_last_between_convolutions():
    """What is around them too: scales of channels, residuals, concatenations, other readers."""
    n, c = Dim("n", 1, 4), 6
    with Graph("net", [TensorType(F32, (n, c, "h", 7)), TensorType(F32, ("n", c, 1, 1))]) as graph:
        x, gate = graph.inputs
        weights = {
            f"w{i}": np.random.default_rng(i).standard_normal((c, wide, k, k)).astype(np.float32)
            for i, (wide, k) in enumerate([(c, 3), (c, 1), (2 * c, 3)])
        }
        w = [graph.add_weight(Weight(name, F32, w.shape)) for name, w in weights.items()]
        around = {"padding": (1, 1, 1, 1), "layout": "channels_first"}
        scale = graph.constant(np.linspace(1, 2, c, dtype=np.float32).reshape(c, 1, 1))
        a = ops.relu(ops.conv(x, w[0], **around) * scale + x)
        b = ops.conv(a, w[1], layout="channels_first") * gate
        joined = ops.concat([ops.where(b > 0.0, b, 0.5), a], axis=1)
        last = ops.conv(joined, w[2], strides=(2, 2), **around)
        graph.output(last, ops.cast(b, DType.float16), ops.mean(joined, axis=3), ops.max(b, axis=1))
    text = compile(graph, "cpu", stop_after="sink")
    assert len(re.findall(r"heddle.transpose.*dims = ", text)) == 5  # of x, and of each output
    model = InferenceSession(threads=2).load(compile(graph, "cpu:x86-64-v3"), weights)
    for sizes in ((1, 1), (3, 6)):
        rng = np.random.default_rng(1)
        shapes = (sizes[0], c, sizes[1], 7), (sizes[0], c, 1, 1)
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        pairs = zip(model.execute(*arrays), evaluate(graph, arrays, weights), strict=True)
        for number, (found, wanted) in enumerate(pairs):
            tolerance = 2e-3 if number == 1 else 1e-4
            np.testing.assert_allclose(found.to_numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (0, 2, 1, 3), (0, 2, 3, 1), (3, 1, 2, 0)])
def test_what_turns_a_convolution_turns_what_it_gives(order):
    """Also where sizes are alike, so that no shape shows which transpose came first."""
    with Graph("turned", [TensorType(F32, (4, 4, 4, 4)), TensorType(F32, (4, 4, 1, 1))]) as graph:
        pixels = ops.conv(*graph.inputs, layout="channels_first")
        graph.output(ops.permute(pixels, order), ops.permute(ops.relu(pixels), order))
    check(graph, [(4, 4, 4, 4), (4, 4, 1, 1)])


def test_halves_of_what_is_known_late():
    with Graph("halves", [TensorType(F32, ("n", 3))]) as graph:
        (x,) = graph.inputs
        n = x.shape[0]
        graph.output(x[n // 2 :] * 2.0, x[: n // 2], ops.concat([-x[(n + 1) // 2 :], x], axis=0))
    check(graph, *([(n, 3)] for n in (1, 2, 7)))
