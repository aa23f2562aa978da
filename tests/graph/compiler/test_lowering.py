"""Every prefix of the pipeline keeps what a graph computes: NumPy evaluates the module itself."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import Dim, DType, Graph, TensorType, Weight, ops
from heddle.graph.attributes import constant_array
from heddle.graph.compiler import assemble, pipeline
from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes import fold_constants
from heddle.graph.compiler.specs import has_kernel
from heddle.graph.dialect import context
from heddle.graph.reference import evaluate
from heddle.graph.types import Shape
from heddle.kernels.mlir import ir
from heddle.runtime.errors import CompileError

NAMES = [each.__name__ for each in pipeline.PASSES]
F32 = DType.float32


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_pass_keeps_the_meaning_of_random_graphs(random_graphs, kind):
    @settings(max_examples=25, deadline=None, database=None)
    @given(st.data())
    def check(data):
        case = data.draw(random_graphs)
        wanted = evaluate(case.graph, case.inputs, case.weights)
        module = m.clone(case.graph.module)
        for each in pipeline.PASSES:
            with module.context, ir.Location.unknown():
                each(module, kind)
                module.operation.verify()
            found = evaluate(module, case.inputs, case.weights)
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5, err_msg=each.__name__)

    check()


def gate_with_a_gate(x, a, b, c):
    """The second product is the gate of the first one, and reads the third one's result itself."""
    first, third, second = x @ a, x @ b, x @ c
    second = second * third
    wide = (ops.cast(first, F32) + 1.0) * ops.cast(second, F32)
    return wide + ops.cast(first * second, F32)


PRODUCTS = {
    "a gate beside another": lambda x, a, b, c: ops.sigmoid(x @ a) * (x @ b) + x @ c,
    "a gate of a gate": lambda x, a, b, c: (x @ a) * (x @ b) + (x @ c) * (x @ a.T),
    "a gate that could have a gate": gate_with_a_gate,
    "a transposed value by itself": lambda x, a, b, c: ops.transpose(a, 0, 1) @ a.T,
    "a transposed value by itself, and another": lambda x, a, b, c: a.T @ a.T + b @ a.T,
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [DType.bfloat16, F32])
@pytest.mark.parametrize("rows", [3, "n", 300])
def test_products_that_share_sides(rows, dtype, name):
    """Each has a kernel, and the module computes what the graph says."""
    square = TensorType(dtype, (64, 64))
    with Graph("products", [TensorType(dtype, (rows, 64)), *[square] * 3]) as graph:
        graph.output(PRODUCTS[name](*(each.tensor for each in graph.inputs)))
    rng = np.random.default_rng(0)
    shapes = [(300 if rows == 300 else 3, 64), *[(64, 64)] * 3]
    kind = ml_dtypes.bfloat16 if dtype is DType.bfloat16 else np.float32
    arrays = [rng.integers(-1, 2, shape).astype(kind) for shape in shapes]
    wanted = evaluate(graph, arrays)
    for kind in ("cpu", "cuda"):
        module = pipeline.lower(graph.module, kind)
        assert all(has_kernel(r.spec, kind) for _, r in assemble.requests(module, kind))
        for found, exact in zip(evaluate(module, arrays), wanted, strict=True):
            np.testing.assert_allclose(*(a.astype(np.float32) for a in (found, exact)), rtol=0.02)


@pytest.mark.parametrize(
    ("dtype", "most", "first"),
    [(F32, 2**24, True), (F32, 2**25, False), (DType.int64, 2**25, True)],
)
def test_the_end_of_a_range_counts_from_there_where_floats_are_exact(dtype, most, first):
    """Beyond 2^24 a float32 that counts from a number is not what one from 0 comes to."""
    n = Dim("n", 4, most)
    with Graph("range", [TensorType(DType.uint8, (n,))]) as graph:
        graph.output(ops.range(n, dtype=dtype)[n - 3 :] + 1)
    module = pipeline.lower(graph.module, "cpu", stop_after="cut")
    (counted,) = (op for op in m.operations(module) if m.name(op) == "iota")
    assert m.tensor(counted.results[0]).shape == Shape([3] if first else [n])


def test_a_range_that_wraps_may_be_less_than_zero():
    with Graph("range", [TensorType(F32, (3,))]) as graph:
        graph.output(ops.range(0, 3 * 2**62, 2**62) < 0, ops.range(0, 2**62, 2**61) < 0)
    module = pipeline.lower(graph.module, "cpu")
    for found, wanted in zip(
        evaluate(module, [np.zeros(3, np.float32)]), (True, False), strict=True
    ):
        assert found.any() == wanted


def test_constants_are_read_where_they_are_folded(monkeypatch):
    """Large ones, which many ops may have as an operand, are not: that copies them."""
    read = []

    def counted(dense):
        read.append(dense)
        return constant_array(dense)

    monkeypatch.setattr(fold_constants, "constant_array", counted)
    with Graph("constants", [TensorType(F32, ("n", 300))]) as graph:
        (x,) = graph.inputs
        large = ops.constant(np.ones((300, 300), np.float32))
        scaled = [x @ large + i for i in range(3)]
        graph.output(*scaled, ops.exp(large), x * ops.exp(graph.constant(2.0)))
    pipeline.lower(graph.module, "cpu", stop_after="fold_constants")
    assert len(read) == 1


def linear():
    with Graph("linear", [TensorType(F32, (Dim("batch", 1, 8), 4))]) as graph:
        w = graph.add_weight(Weight("w", F32, (3, 4)))
        graph.output(ops.relu(graph.inputs[0] @ w.T))
    return graph


def test_the_graph_stays_as_it_is():
    graph = linear()
    before = str(graph)
    pipeline.lower(graph.module, "cpu")
    assert str(graph) == before


def test_unknown_pass_is_refused():
    with pytest.raises(CompileError, match=r"stop_after: wanted one of canonicalize, .*got 'x'"):
        pipeline.lower(linear().module, "cpu", stop_after="x")


def test_dump_holds_the_module_after_each_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDDLE_DUMP", str(tmp_path))
    pipeline.lower(linear().module, "cpu", stop_after="pack")
    files = sorted(path.name for path in (tmp_path / "cpu").iterdir())
    passes = ["input", *NAMES[: NAMES.index("pack") + 1]]
    assert files == [f"{number:02}_{name}.mlir" for number, name in enumerate(passes)]
    for name in files:
        with context():
            assert ir.Module.parse((tmp_path / "cpu" / name).read_text()).operation.verify()


def test_a_dump_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HEDDLE_DUMP", str(tmp_path / "file"))
    with pytest.raises(CompileError, match=r"^HEDDLE_DUMP: .*00_input.mlir: Not a directory$"):
        pipeline.lower(linear().module, "cpu")


def test_a_refusal_names_pass_op_and_line(monkeypatch):
    monkeypatch.setattr("heddle.kernels.registry.find", lambda op, target: None)
    line = linear.__code__.co_firstlineno + 3
    text = (
        rf"^select: matmul \+ relu \(test_lowering.py:{line}\): no cuda kernel computes 'matmul'$"
    )
    with pytest.raises(CompileError, match=text.replace(r"matmul \+ relu", "matmul")):
        pipeline.lower(linear().module, "cuda")


def test_an_invalid_result_names_the_pass_and_line(monkeypatch):
    def broken(module, kind):
        relu = m.operations(module)[-1]
        relu.results[0].set_type(m.tensor(relu.operands[0]).to_mlir())
        relu.operands[0] = m.block(module).arguments[0]

    monkeypatch.setattr(pipeline, "PASSES", (broken,))
    with pytest.raises(CompileError, match=r"^broken: invalid result: test_lowering.py:\d+: "):
        pipeline.lower(linear().module, "cpu")
