"""What slices leave out is not computed: the same results of fewer elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.graph.compiler.cuts import needed
from heddle.graph.compiler.passes import cut
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

F32 = DType.float32
X = TensorType(F32, ("b", "s", 64))


def written(write, *types, weights=()):
    """The graph of `write(*inputs, *weights)`."""
    with Graph("written", types) as graph:
        given = [graph.add_weight(Weight(f"w{i}", F32, s)) for i, s in enumerate(weights)]
        results = write(*graph.inputs, *given)
        graph.output(*(results if isinstance(results, tuple) else (results,)))
    return graph


def shapes(graph, *names, kind="cpu", **given):
    """The shapes of the results of the ops called so, after the pass, in order."""
    module = pipeline.lower(graph.module, kind, stop_after="cut", **given)
    found = (op for op in m.operations(module) if m.name(op) in names)
    return [str(m.tensor(op.results[0]).shape) for op in found]


def launched(graph):
    """The fused ops that run at each call."""
    module = pipeline.lower(graph.module, "cpu")
    fused = (op for op in m.operations(module) if m.name(op) == "fused")
    return [[m.name(o) for o in m.inner(op)] for op in fused if "stage" not in op.attributes]


def check(graph, *sizes):
    """Compiled and run, it is what the graph says as it is written."""
    rng = np.random.default_rng(0)
    weights = {
        op.attributes["name"].value: rng.normal(size=m.tensor(op.results[0]).shape.static)
        for op in m.operations(graph.module)
        if m.name(op) == "weight"
    }
    weights = {name: (0.1 * array).astype(np.float32) for name, array in weights.items()}
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"), weights)
    for symbols in sizes:
        arrays = [
            rng.normal(size=[dim.evaluate(symbols) for dim in value.shape]).astype(np.float32)
            for value in graph.inputs
        ]
        for result, wanted in zip(
            model.execute(*arrays), evaluate(graph, arrays, weights), strict=True
        ):
            np.testing.assert_allclose(result.to_numpy(), wanted, rtol=1e-4, atol=1e-4)


SIZES = [{"b": 1, "s": 1}, {"b": 2, "s": 7}]


def as_heads(x):
    return ops.reshape(x, (x.shape[0], x.shape[1], 4, 16))


def test_last_row_of_a_decoder():
    """Of its last layer and its head, only what belongs to the last token is computed."""

    def norm(x):
        return x * ops.rsqrt(ops.mean(x * x, axis=-1) + 1e-6)

    def write(x, q, up, down, head):
        mixed = ops.attention(as_heads(x @ q), as_heads(x), as_heads(x), layout="bshd", causal=True)
        x = x + ops.reshape(mixed, x.shape)
        x = x + ops.gelu(norm(x) @ up) @ down
        return (x @ head)[:, -1]

    graph = written(write, X, weights=[(64, 64), (64, 256), (256, 64), (64, 100)])
    assert shapes(graph, "matmul", "attention", "rms_norm") == [
        "[b, 1, 64]",
        "[b, 1, 4, 16]",
        "[b, 1, 64]",
        "[b, 1, 256]",
        "[b, 1, 64]",
        "[b, 1, 100]",
    ]
    check(graph, *SIZES)


def test_attention_to_what_comes_before_is_not_cut_elsewhere():
    """Causal: positions are counted from the end, so queries at the end alone may be cut."""

    def write(x):
        mixed = ops.attention(*[as_heads(x)] * 3, layout="bshd", causal=True)
        return mixed[:, :1], ops.exp(ops.attention(*[as_heads(x)] * 3, layout="bshd"))[:, :1]

    graph = written(write, X)
    assert shapes(graph, "attention") == ["[b, s, 4, 16]", "[b, 1, 4, 16]"]
    check(graph, *SIZES)


def qkv_by_parts(x, w, b):
    """As in GPT-2: three parts of the columns."""
    return tuple(as_heads(each) for each in ops.split(x @ w + b, [64, 64, 64], axis=-1))


def qkv_by_axis(x, w, b):
    """As in vision transformers: an axis of three that is moved to the front."""
    wide = ops.reshape(x @ w + b, (x.shape[0], x.shape[1], 3, 4, 16))
    first = ops.permute(wide, (2, 0, 3, 1, 4))
    return tuple(ops.permute(first[i], (0, 2, 1, 3)) for i in range(3))


@pytest.mark.parametrize("parts", [qkv_by_parts, qkv_by_axis])
def test_one_weight_of_queries_keys_and_values(parts):
    """One kernel computes them as three products, and one attends."""

    def write(x, w, b):
        return ops.attention(*parts(x, w, b), layout="bshd", causal=True)

    graph = written(write, X, weights=[(64, 192), (192,)])
    assert launched(graph) == [["matmul_packed", "add"] * 3, ["attention"]]
    check(graph, *SIZES)


def test_one_weight_of_gate_and_up():
    def write(x, w):
        gate, up = ops.chunk(x @ w.T, 2, axis=-1)
        return ops.silu(gate) * up

    graph = written(write, X, weights=[(256, 64)])
    assert not any("slice" in ops for ops in launched(graph))
    check(graph, *SIZES)


def test_narrow_columns_stay():
    """A kernel computes 32 columns for one: as the start and the end of an answer by one weight."""
    graph = written(lambda x, w: tuple(ops.chunk(x @ w, 2, axis=-1)), X, weights=[(64, 2)])
    assert shapes(graph, "matmul") == ["[b, s, 2]"]
    graph = written(lambda x, w: tuple(ops.split(x @ w, [64, 248], -1)), X, weights=[(64, 312)])
    assert shapes(graph, "matmul") == ["[b, s, 64]", "[b, s, 248]"]


def behind(steps, columns):
    """Both halves of a product's columns, behind many ops."""

    def write(x, w):
        x = x @ w
        for _ in range(steps):
            x = ops.exp(ops.tanh(x))
        return tuple(ops.chunk(x, 2, axis=-1))

    return shapes(written(write, X, weights=[(64, columns)]), "matmul")


def test_many_ops_behind_a_product():
    """More than Python calls within each other."""
    assert behind(600, 2) == ["[b, s, 2]"]


def test_parts_behind_many_ops_are_looked_at_in_linear_time(monkeypatch):
    """Each op on the way to the product is asked a few times, not by all that are behind it."""
    asked, counts = [], []
    monkeypatch.setattr(cut, "needed", lambda *given: asked.append(1) or needed(*given))
    for steps in (20, 40):
        assert behind(steps, 64) == ["[b, s, 32]"] * 2
        counts.append(len(asked))
    assert counts[1] < 3.5 * counts[0]  # of both: three times as much


def test_a_weight_that_others_read_stays_whole():
    """It would be packed twice: all of it, and the part."""

    def write(x, y, w):
        return (x @ w.T)[..., :64], y @ w.T

    assert shapes(written(write, X, X, weights=[(128, 64)]), "matmul") == ["[b, s, 128]"] * 2

    def tied(i, x, w):
        return ops.gather(w, i, axis=0), (x @ w.T)[..., :64]

    ids = TensorType(DType.int64, ("b",))
    assert shapes(written(tied, ids, X, weights=[(128, 64)]), "matmul") == ["[b, s, 128]"]


@pytest.mark.parametrize("parts", [qkv_by_parts, qkv_by_axis])
def test_weights_on_a_gpu_are_cut_where_the_artifact_has_the_parts(parts):
    """Its kernels read a weight as it is, so parts that are made at load are memory on top."""
    graph = written(lambda x, w, b: parts(x, w, b), X, weights=[(64, 192), (192,)])
    assert shapes(graph, "matmul", kind="cuda") == ["[b, s, 192]"]
    assert shapes(graph, "matmul", kind="cuda", embedded=True) == ["[b, s, 64]"] * 3


def test_what_is_known_at_load_stays_so():
    """A cut that differs from call to call would turn, or pack, a weight in each of them."""
    n = TensorType(F32, (Dim("n", 1, 128),))

    def columns(x, y, w):
        return (x @ w)[..., : y.shape[0]] + y

    graph = written(columns, X, n, weights=[(64, 128)])
    assert launched(graph) == [["matmul_packed"], ["slice"], ["add"]]
    check(graph, {"b": 2, "s": 3, "n": 5}, {"b": 1, "s": 1, "n": 128})

    graph = written(lambda y, w: w.T[: y.shape[0]], n, weights=[(64, 128)])
    assert launched(graph) == [["slice"]]
    check(graph, {"n": 5})
    # Of one column, less is read and computed.
    graph = written(lambda x, y, w: (x @ w)[..., y.shape[0] - 1], X, n, weights=[(64, 128)])
    assert shapes(graph, "matmul") == ["[b, s, 1]"]
    check(graph, {"b": 2, "s": 3, "n": 5})


def test_a_slice_has_the_line_of_the_one_that_it_stands_for():
    def write(x, y):
        both = x + y
        return both[:, -1]

    module = pipeline.lower(written(write, X, X).module, "cpu")
    lines = [m.label(op) for op in m.operations(module) if m.name(op) == "fused"]
    first = write.__code__.co_firstlineno
    assert lines == [f"slice (test_cut.py:{first + 2})"] * 2 + [f"add (test_cut.py:{first + 1})"]


def test_parts_of_what_is_no_product_stay():
    """Nothing would be saved: each element is wanted."""
    graph = written(lambda x: tuple(ops.chunk(ops.exp(x), 2, axis=-1)), X)
    assert shapes(graph, "exp") == ["[b, s, 64]"]
    graph = written(lambda x, y: tuple(ops.chunk(x @ y, 2, axis=-1)), X, TensorType(F32, (64, 8)))
    assert shapes(graph, "matmul") == ["[b, s, 8]"]


def test_what_others_read_stays():
    graph = written(lambda x: (ops.exp(x)[:, -1], ops.exp(x)), X)
    assert shapes(graph, "exp") == ["[b, s, 64]"]
    graph = written(lambda x: ops.softmax(x)[..., :3], X)
    assert shapes(graph, "softmax") == ["[b, s, 64]"]
    graph = written(lambda x: ops.exp(x)[..., ::-1], X)
    assert shapes(graph, "slice") == shapes(graph, "exp") == ["[b, s, 64]"]


def test_small_parts_of_two_operands_alone():
    """Two slices in the place of one pay where little is left."""
    y = TensorType(F32, ("b", "s", 64))
    assert shapes(written(lambda x, y: (x + y)[..., :40], X, y), "add") == ["[b, s, 64]"]
    assert shapes(written(lambda x, y: (x + y)[..., :30], X, y), "add") == ["[b, s, 30]"]
    assert shapes(written(lambda x: (x + 1.0)[..., :40], X), "add") == ["[b, s, 40]"]


N, K = 6, 8


CHAIN = {
    "exp": ops.exp,
    "add": lambda x: x + ops.exp(x),
    "bias": lambda x: x + ops.constant(np.arange(x.shape[-1].static, dtype=np.float32), F32),
    "scaled": lambda x: x * ops.sum(x, axis=-1),
    "softmax": ops.softmax,
    "first axis": lambda x: ops.softmax(x, axis=0),
    "cumsum": lambda x: ops.cumsum(x, axis=1),
    "mean": lambda x: ops.mean(x, axis=1) + x,
    "turned": lambda x: ops.permute(x, (1, 2, 0)),
    "swapped": lambda x: ops.transpose(x, -1, -2),
    "joined": lambda x: ops.reshape(x, (x.shape[0] * x.shape[1], 1, x.shape[2])),
    "split": lambda x: ops.reshape(x, (x.shape[0], 2 * x.shape[1], x.shape[2] // 2)),
    "apart": lambda x: ops.reshape(ops.reshape(x, (*x.shape[:2], 2, x.shape[2] // 2)), x.shape),
    "product": lambda x: x @ ops.transpose(ops.sin(x), -1, -2),
    "by a matrix": lambda x: x @ ops.constant(np.ones((x.shape[2].static, 5), np.float32), F32),
    "concat": lambda x: ops.concat([x, ops.exp(x)], axis=1),
    "gather": lambda x: ops.gather(x, ops.constant(np.array([1, 0, 1, 1]), DType.int64), axis=1),
    "attention": lambda x: ops.attention(*[ops.unsqueeze(x, 0)] * 3)[0],
    "causal": lambda x: ops.attention(*[ops.unsqueeze(x, 0)] * 3, causal=True, window=2)[0],
    "positions": lambda x: x + ops.cast(ops.range(0, x.shape[-1]), F32),
    "rotated": lambda x: ops.rope(x, *(ops.constant(np.array([a]), F32) for a in (0.6, 0.8))),
}


def drawn_slice(draw, x):
    """A slice of two axes, forward or backward, maybe of all."""
    index = [slice(None)] * x.rank
    for axis in draw(st.lists(st.integers(0, x.rank - 1), max_size=2)):
        size = x.shape[axis].static
        begin = draw(st.integers(0, size - 1))
        end = draw(st.integers(begin + 1, size))
        index[axis] = slice(begin, end, draw(st.sampled_from([1, 1, 1, 2])))
    return x[tuple(index)]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_chains_of_ops_and_slices(data):
    """As written and after the pass, a graph is the same to NumPy."""
    with Graph("chain", [TensorType(F32, (4, N, K))]) as graph:
        (x,) = graph.inputs
        outputs = []
        for name in data.draw(st.lists(st.sampled_from(sorted(CHAIN)), min_size=1, max_size=4)):
            if name in ("split", "apart", "rotated") and x.shape[2].static % 2:
                continue
            x = CHAIN[name](x) if all(dim.static > 1 for dim in x.shape) else x
            x = drawn_slice(data.draw, x)
            if data.draw(st.integers(0, 4)) == 0:
                outputs.append(x)
        graph.output(*outputs, x)
    array = np.random.default_rng(0).normal(size=(4, N, K)).astype(np.float32)
    module = pipeline.lower(graph.module, "cpu", stop_after="cut")
    for found, wanted in zip(evaluate(module, [array]), evaluate(graph, [array]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_sizes_of_zero():
    graph = written(lambda x: ops.exp(x)[:, 3:], TensorType(F32, ("b", Dim("s", 3, 9), 4)))
    check(graph, {"b": 2, "s": 3}, {"b": 2, "s": 5})
    graph = written(lambda x: (ops.exp(x) @ ops.transpose(x, -1, -2))[:, :0], X)
    check(graph, *SIZES)
