import inspect
import time

import numpy as np
import pytest

import heddle.graph as room
from heddle.graph import (
    BufferType,
    DeviceRef,
    Dim,
    DType,
    Graph,
    Shape,
    TensorType,
    Weight,
    compiler,
    ops,
)
from heddle.kernels.mlir import ir
from heddle.runtime.errors import GraphError

F32 = DType.float32


def build(function, *types):
    with Graph("g", types) as graph:
        results = function(*graph.inputs)
        graph.output(*(results if isinstance(results, (tuple, list)) else (results,)))
    graph.verify()
    return graph


def shape_of(function, *types):
    shapes = []

    def record(*inputs):
        result = function(*inputs)
        shapes.append(result.shape)
        return result

    build(record, *types)
    return str(shapes[0])


def test_a_graph_prints_as_its_module():
    batch = Dim("batch", minimum=1, maximum=128)
    with Graph("mlp", [TensorType(F32, (batch, 3), DeviceRef.CPU())], ["x"]) as graph:
        x = graph.inputs[0].tensor
        w = graph.add_weight(Weight("w", F32, (2, 3), DeviceRef.CPU()))
        graph.output(ops.gelu(x @ w.T), names=["y"])
    lines = [line.strip() for line in str(graph).splitlines()]
    assert lines[0] == "module @mlp {"
    assert '{heddle.name = "x"}' in lines[1]
    assert 'heddle.outputs = ["y"], heddle.symbols = {batch = [1, 128]}' in lines[1]
    assert lines[2:6] == [
        '%0 = "heddle.weight"() {name = "w"} : () -> tensor<2x3xf32, {device = "cpu:0"}>',
        '%1 = "heddle.transpose"(%0) {permutation = array<i64: 1, 0>} : '
        '(tensor<2x3xf32, {device = "cpu:0"}>) -> tensor<3x2xf32, {device = "cpu:0"}>',
        '%2 = "heddle.matmul"(%arg0, %1) {precision = "full"} : (tensor<?x3xf32, '
        '{device = "cpu:0", dims = ["batch", "3"]}>, tensor<3x2xf32, {device = "cpu:0"}>) -> '
        'tensor<?x2xf32, {device = "cpu:0", dims = ["batch", "2"]}>',
        '%3 = "heddle.gelu"(%2) {approximate = "none"} : (tensor<?x2xf32, {device = "cpu:0", '
        'dims = ["batch", "2"]}>) -> tensor<?x2xf32, {device = "cpu:0", dims = ["batch", "2"]}>',
    ]
    assert graph.symbols == {"batch": (1, 128)}
    assert repr(graph) == "<Graph 'mlp' of float32[batch, 3] on cpu:0>"
    assert repr(x) == "TensorValue(float32[batch, 3] on cpu:0)"


def test_ops_carry_the_users_line():
    line = inspect.currentframe().f_lineno + 2
    with Graph("lines", [TensorType(F32, (3,))]) as graph:
        graph.output(graph.inputs[0] + 1)
    op = graph.module.body.operations[0].entry_block.operations[1]
    assert op.operation.name == "heddle.add"
    assert isinstance(op.location, ir.FileLineColLoc)
    assert (op.location.filename, op.location.start_line) == (__file__, line)


def test_operators():
    x, b = TensorType(F32, ("n", 3)), TensorType(DType.bool, ("n", 3))
    graph = build(
        lambda x, b: [
            1 + x, x + 1, 1 - x, x - 1, 2 * x, x * 2, 1 / x, x / 2, -x, abs(x), x @ x.T,
            x == 1, x != x, x < 1, x < 1, x > 1, x >= 1, x <= 1, x <= 1.5, b == b,
            np.ones(3, np.float32) + x, np.ones((2, 3), np.float32) @ x.T,
            x.cast(DType.int8), x.transpose(0, 1), x.permute((1, 0)), x.reshape((-1,)),
            x.broadcast_to((2, "n", 3)), x.T,
        ],
        x,
        b,
    )  # fmt: skip
    names = [
        op.operation.name.removeprefix("heddle.")
        for op in graph.module.body.operations[0].entry_block.operations
    ]
    assert [n for n in names if n not in ("constant", "return", "transpose")] == [
        "add", "add", "sub", "sub", "mul", "mul", "div", "div", "neg", "abs", "matmul",
        "equal", "not_equal", "less", "less", "greater", "greater_equal", "less_equal",
        "less_equal", "equal", "add", "matmul", "cast", "reshape", "broadcast_to", "func.return",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (np.s_[0], "[6, n]"),
        (np.s_[-1], "[6, n]"),
        (np.s_[..., 0], "[4, 6]"),
        (np.s_[:, None], "[4, 1, 6, n]"),
        (np.s_[None, ..., None], "[1, 4, 6, n, 1]"),
        (np.s_[1:3, ::2], "[2, 3, n]"),
        (np.s_[::-1, -2:], "[4, 2, n]"),
        (np.s_[9:], "[0, 6, n]"),
        (np.s_[3:0:-2], "[2, 6, n]"),
        (np.s_[:, :, 1:], "[4, 6, n - 1]"),
        (np.s_[:, :, :-1], "[4, 6, n - 1]"),
        (np.s_[:, :, ::2], "[4, 6, ((n + 1) // (2))]"),
        (np.s_[:, :, 1:2], "[4, 6, 1]"),
        (np.s_[:, : Dim("n") - 1], "[4, n - 1, n]"),
        (np.s_[:, 1 : Dim("n")], "[4, n - 1, n]"),
        (np.s_[..., -1], "[4, 6]"),
        (np.s_[..., -2:], "[4, 6, 2]"),
        (np.s_[..., -2:-1], "[4, 6, 1]"),
        (np.s_[:, Dim("n") - 1], "[4, n]"),
        (np.s_[:, Dim("n") :], "[4, -n + 6, n]"),
        (np.s_[:, "n"::2], "[4, ((-n + 7) // (2)), n]"),
        (np.int64(2), "[6, n]"),
    ],
)
def test_indexing(index, shape):
    n = Dim("n", minimum=2, maximum=6)
    assert shape_of(lambda x: x[index], TensorType(F32, (4, 6, n))) == shape


def test_numpy_computes_with_no_tensor_value():
    with Graph("main", [TensorType(F32, (2,))]) as graph:
        x = graph.inputs[0]
        for value in (x, x.tensor, [x.tensor, x.tensor]):
            with pytest.raises(TypeError, match=r"use heddle\.graph\.ops, not NumPy$"):
                np.asarray(value)
        graph.output(x)


def test_an_index_that_selects_everything_adds_no_op():
    graph = build(lambda x: x[:, ...], TensorType(F32, ("n", 3)))
    assert len(graph.module.body.operations[0].entry_block.operations) == 1


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.reshape((3, -1)), "[3, 2*n]"),
        (lambda x: x.reshape(("n", 2, 3)), "[n, 2, 3]"),
        (lambda x: x.reshape((Dim("n") * 6,)), "[6*n]"),
        (lambda x: ops.flatten(x), "[6*n]"),
        (lambda x: ops.flatten(x, 1), "[n, 6]"),
        (lambda x: ops.unsqueeze(x, -1), "[n, 6, 1]"),
        (lambda x: ops.squeeze(ops.unsqueeze(x, 0), 0), "[n, 6]"),
        (lambda x: ops.split(x, [2, 4], axis=1)[1], "[n, 4]"),
        (lambda x: ops.concat([x, x, x]), "[3*n, 6]"),
        (lambda x: ops.concat((x, x), -1), "[n, 12]"),
        (lambda x: ops.concat(x, x), "[2*n, 6]"),
        (lambda x: ops.sum(x), "[n, 1]"),
        (lambda x: ops.max(x, axis=0), "[1, 6]"),
        (lambda x: ops.min(x, ops.max(x, x)), "[n, 6]"),
        (lambda x: ops.transpose(x), "[6, n]"),
        (lambda x: ops.layer_norm(x, x[0], beta=x[0], epsilon=0.1), "[n, 6]"),
    ],
)
def test_shapes(function, shape):
    assert shape_of(function, TensorType(F32, ("n", 6))) == shape


def test_inputs_outputs_and_buffers():
    kinds = [BufferType(F32, (2,)), TensorType(F32, (2,))]
    with Graph("io", kinds) as graph:
        graph.output(graph.inputs[0], graph.inputs[0] + graph.inputs[1])
    graph.verify()
    assert 'heddle.outputs = ["output0", "output1"]' in str(graph)
    assert '{heddle.name = "input1"}' in str(graph)


def test_constants():
    with Graph("constants") as graph:
        values = [
            ops.constant(1),
            ops.constant(0.5),
            ops.constant(True),
            ops.constant([[1, 2], [3, 4]], DType.bfloat16),
            ops.constant(np.zeros((0, 3), np.float64)),
            ops.constant(np.float16(2)),
            ops.constant(7, DType.uint32, DeviceRef.GPU()),
            ops.constant(float("inf"), DType.float16),
        ]
        graph.output(*values)
    graph.verify()
    assert [str(value.type) for value in values] == [
        "int64[] on cpu:0",
        "float32[] on cpu:0",
        "bool[] on cpu:0",
        "bfloat16[2, 2] on cpu:0",
        "float64[0, 3] on cpu:0",
        "float16[] on cpu:0",
        "uint32[] on gpu:0",
        "float16[] on cpu:0",
    ]


def test_a_weight_and_a_shape():
    weight = Weight("w", F32, (2, 3))
    assert weight.type == TensorType(F32, (2, 3), DeviceRef.CPU())
    assert Shape((2, "n")).static is None
    assert Shape((2, 3)).static == (2, 3)
    assert Shape((2, "n")).elements == Dim("n") * 2
    assert str(DeviceRef.parse("gpu:1")) == "gpu:1"


def test_five_thousand_ops_build_in_well_under_a_second():
    with Graph("large", [TensorType(F32, ("batch", 384))]) as graph:
        x = y = graph.inputs[0]
        start = time.process_time()
        for _ in range(2500):
            y = ops.gelu(y + x)
        assert time.process_time() - start < 1
        graph.output(y)


def test_a_finished_graph_is_read_back():
    with Graph("model", [TensorType(F32, (Dim("n", maximum=7),))], ["x"]) as graph:
        w = graph.add_weight(Weight("w", F32, (1,)))
        graph.output(graph.inputs[0] * w)
    again = Graph.from_bytecode(graph.to_bytecode())
    assert (again.name, again.symbols, again.weights) == ("model", {"n": (1, 7)}, graph.weights)
    assert again.inputs[0].type == graph.inputs[0].type
    with pytest.raises(GraphError, match="graph 'model': wanted no op after output, got one"):
        again.inputs[0] + 1


def test_the_compiler_is_imported_when_it_is_asked_for(monkeypatch):
    assert room.compile is compiler.compile
    assert room.Target is compiler.Target
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = room.nothing
    with Graph("g") as graph:
        graph.output(ops.constant(1))
    monkeypatch.setattr(compiler, "compile", lambda given: ("compiled", given))
    assert graph.__heddle_artifact__() == ("compiled", graph)
