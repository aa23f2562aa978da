"""The dialect as text: what parses, and what the verifier refuses."""

import threading
import time

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, dialect, ops
from heddle.graph.attributes import constant_array, constant_attr
from heddle.graph.ops.build import build
from heddle.graph.ops.row import ROWS, sample
from heddle.graph.rounding import held
from heddle.kernels import mlir
from heddle.kernels.mlir import ir, passmanager
from heddle.runtime.errors import GraphError

STATIC = 'tensor<2x3xf32, {device = "cpu:0"}>'
DYNAMIC = 'tensor<?x3xf32, {device = "cpu:0", dims = ["n", "3"]}>'


def module(body, *, argument=STATIC, result=STATIC):
    return f"""
module @g {{
  func.func @main(%x: {argument} {{heddle.name = "x"}}) -> {result}
      attributes {{heddle.outputs = ["y"], heddle.symbols = {{n = [1, 9]}}}} {{
    {body}
    return %y : {result}
  }}
}}
"""


def test_threads_load_the_dialect_one_after_the_other(monkeypatch):
    """Its definition is kept where all of them look."""
    inside, most = [], []

    def load():
        inside.append(None)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()

    monkeypatch.setattr(dialect.Heddle, "load", load)
    threads = [threading.Thread(target=dialect.context) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]


def test_a_graph_of_every_op_round_trips():
    types, calls = [], []
    for row in ROWS.values():
        for case in row.samples:
            dtype = next(d for d in (DType.float32, DType.int32) if _takes(row, case, d))
            calls.append((row, case, len(types), len(types) + len(case.operands)))
            types += case.types(dtype)
    with Graph("every", types) as graph:
        results = [
            build(row, list(graph.inputs[first:last]), dict(case.attrs))
            for row, case, first, last in calls
        ]
        graph.output(*results)
    graph.verify()
    text = str(graph)
    for row in ROWS:
        assert f'"heddle.{row}"(' in text
    assert str(Graph.from_text(text)) == text
    again = Graph.from_bytecode(graph.to_bytecode())
    assert str(again) == text
    located = graph.module.operation.get_asm(enable_debug_info=True)
    assert again.module.operation.get_asm(enable_debug_info=True) == located
    assert "test_dialect.py" in located


def _takes(row, case, dtype):
    try:
        row.infer(case.types(dtype), case.attrs)
    except GraphError:
        return False
    return True


VALID = [
    f'%y = "heddle.gelu"(%x) {{approximate = "tanh"}} : ({STATIC}) -> {STATIC}',
    f'%y = "heddle.add"(%x, %x) : ({STATIC}, {STATIC}) -> {STATIC}',
    f'%y = "heddle.weight"() {{name = "w"}} : () -> {STATIC}',
    f'%y = "heddle.constant"() {{value = dense<1.0> : tensor<2x3xf32>}} : () -> {STATIC}',
    f'%y = "heddle.reshape"(%x) {{shape = ["2", "3"]}} : ({STATIC}) -> {STATIC}',
]


@pytest.mark.parametrize("body", VALID)
def test_parses(body):
    graph = Graph.from_text(module(body))
    assert str(Graph.from_text(str(graph))) == str(graph)


INVALID = [
    (
        f'%y = "heddle.add"(%x, %x) : ({STATIC}, {STATIC}) -> {STATIC}',
        DYNAMIC,
        "expects different type than prior uses",
    ),
    (
        f'%y = "heddle.exp"(%x) : ({DYNAMIC}) -> {STATIC}',
        DYNAMIC,
        "heddle.exp: wanted a result of float32[n, 3] on cpu:0, got float32[2, 3] on cpu:0",
    ),
    (
        f'%y = "heddle.gelu"(%x) {{approximate = "fast"}} : ({STATIC}) -> {STATIC}',
        STATIC,
        "heddle.gelu: wanted approximate 'none' or 'tanh', got 'fast'",
    ),
    (
        f'%y = "heddle.gelu"(%x) {{approximate = 1}} : ({STATIC}) -> {STATIC}',
        STATIC,
        "heddle.gelu: approximate: wanted str, got 1 : i64",
    ),
    (
        f'%y = "heddle.gelu"(%x) : ({STATIC}) -> {STATIC}',
        STATIC,
        "heddle.gelu: approximate: wanted str, got nothing",
    ),
    (
        f'%y = "heddle.constant"() : () -> {STATIC}',
        STATIC,
        "heddle.constant: value: wanted dense elements, got nothing",
    ),
    (
        f'%y = "heddle.softmax"(%x) {{axis = -1}} : ({STATIC}) -> {STATIC}',
        STATIC,
        "heddle.softmax: wanted an axis from 0 to 1, got -1",
    ),
    (
        f'%y = "heddle.slice"(%x) {{starts = ["0"], steps = array<i64: 1>, sizes = ["2"]}}'
        f" : ({STATIC}) -> {STATIC}",
        STATIC,
        "heddle.slice: wanted starts, steps and sizes for each dim of [2, 3]",
    ),
    (
        '%y = "heddle.slice"(%x) {starts = ["1", "0"], steps = array<i64: 1, 1>, '
        f'sizes = ["2", "3"]}} : ({STATIC}) -> {STATIC}',
        STATIC,
        "heddle.slice: axis 0: wanted elements 0 to 1, got start 1, step 1, size 2",
    ),
    (
        '%y = "heddle.slice"(%x) {starts = ["0", "0"], steps = array<i64: 0, 1>, '
        f'sizes = ["2", "3"]}} : ({STATIC}) -> {STATIC}',
        STATIC,
        "heddle.slice: axis 0: wanted a step other than 0, got 0",
    ),
    (f'%y = "heddle.nothing"(%x) : ({STATIC}) -> {STATIC}', STATIC, "heddle.nothing"),
    (
        '%y = "heddle.abs"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "tensor<2x3xf32>",
        "type: wanted tensor<..., {device = ..., dims = [...]}>, got tensor<2x3xf32>",
    ),
    ('%y = "heddle.abs"(%x) : (f32) -> f32', "f32", "type: wanted tensor<...,"),
    (
        f'%y = "heddle.abs"(%x) : ({DYNAMIC.replace(chr(34) + "3", chr(34) + "4")}) -> {STATIC}',
        DYNAMIC.replace('"3', '"4'),
        "type: wanted dims that say the sizes of the tensor, got",
    ),
    (
        f'%y = "heddle.abs"(%x) : ({STATIC.replace("f32", "i7")}) -> {STATIC}',
        STATIC.replace("f32", "i7"),
        "element type: wanted one of i1, bf16, i8",
    ),
    (
        f'%y = "heddle.weight"() {{name = "w"}} : () -> {DYNAMIC}',
        DYNAMIC,
        "heddle.weight: wanted a static shape, got float32[n, 3] on cpu:0",
    ),
    (
        f'%y = "heddle.weight"() {{name = 1}} : () -> {STATIC}',
        STATIC,
        "heddle.weight: name: wanted str, got 1 : i64",
    ),
    (
        f'%y = "heddle.constant"() {{value = dense<1> : tensor<2x3xi32>}} : () -> {STATIC}',
        STATIC,
        "heddle.constant: wanted a result of tensor<2x3xi32>, got float32[2, 3] on cpu:0",
    ),
    (
        f'%y = "heddle.constant"() {{value = 1.0}} : () -> {STATIC}',
        STATIC,
        "heddle.constant: value: wanted dense elements, got 1.000000e+00 : f64",
    ),
    (
        f'%y = "heddle.constant"() {{value = dense<1> : tensor<2xi7>}} : () -> {STATIC}',
        STATIC,
        "heddle.constant: element type: wanted one of i1",
    ),
    (
        f'%y = "heddle.matmul_packed"(%x, %x) {{columns = "3"}} : ({STATIC}, {STATIC}) -> {STATIC}',
        STATIC,
        "heddle.matmul_packed: b: wanted rank 3 or more, got rank 2",
    ),
]


@pytest.mark.parametrize(("body", "type", "text"), INVALID, ids=[text for *_, text in INVALID])
def test_parses_invalid(body, type, text):
    result = STATIC if f"-> {STATIC}" in body else type
    with pytest.raises(GraphError) as caught:
        Graph.from_text(module(body, argument=type, result=result))
    assert text in str(caught.value)


def test_packed_shapes_invalid():
    row = ROWS["matmul_packed"]
    a = "2 3 5"
    for b, text in (
        ("4 1 5 32", "b: wanted leading dims [2] or none, got [4, 1, 5, 32]"),
        ("2 5 32", "b: wanted panels [1, 5, 32] for n = 32, got [2, 5, 32]"),
    ):
        with pytest.raises(GraphError) as caught:
            row.infer(sample(a, b).types(DType.float32), {"columns": Dim(32)})
        assert str(caught.value) == text


def test_bytecode_invalid():
    data = Graph.from_text(module(VALID[0])).to_bytecode()
    for damaged in (data[:50], b"ML\xefR" + data):
        with pytest.raises(GraphError, match="graph: wanted a valid module, got"):
            Graph.from_bytecode(damaged)


def test_verify_says_what_is_wrong_and_where():
    with Graph("broken", [TensorType(DType.float32, (2,))]) as graph:
        x = ops.exp(graph.inputs[0])
        graph.output(x)
    graph.verify()
    with graph.module.context:
        x.mlir.set_type(TensorType(DType.float32, (3,)).to_mlir())
    with pytest.raises(GraphError, match=r"(?s)graph 'broken': .*test_dialect.py.*wanted a result"):
        graph.verify()


def test_too_many_types_invalid():
    types = [TensorType(DType.float32, (n,)) for n in range(1, 34)]
    with Graph("g", types) as graph:
        with pytest.raises(
            GraphError, match=r"heddle.concat: wanted at most 32 runs of equal types"
        ):
            ops.concat(list(graph.inputs))
        graph.output(ops.concat([graph.inputs[0]] * 40))
    graph.verify()


def test_equal_and_unused_ops_go_away():
    with Graph("cse", [TensorType(DType.float32, (3,))]) as graph:
        x = graph.inputs[0]
        ops.exp(x)
        graph.output(ops.tanh(x) + ops.tanh(x))
    with graph.module.context:
        passmanager.PassManager.parse("builtin.module(canonicalize, cse)").run(
            graph.module.operation
        )
    names = [op.operation.name for op in graph.module.body.operations[0].entry_block.operations]
    assert names == ["heddle.tanh", "heddle.add", "func.return"]


@pytest.mark.parametrize("dtype", DType)
def test_constants_round_trip(dtype):
    arrays = [np.array([[0, 1, 1], [1, 0, 1]]), np.ones((2, 2)), np.array(1), np.zeros((0, 2))]
    arrays.append(np.arange(300) % 2)
    if dtype.is_float:
        arrays.append(np.array([np.inf, -np.inf, np.nan, 0.5]))
    for array in arrays:
        values = held(array, dtype)
        with mlir.context():
            again = constant_array(constant_attr(values, dtype))
        assert again.dtype == values.dtype
        np.testing.assert_array_equal(again, values)


def test_a_context_loads_the_dialect_once_each():
    first, second = dialect.context(), dialect.context()
    with first:
        assert ir.Module.parse(module(VALID[1]))
    with second:
        assert ir.Module.parse(module(VALID[1]))


def test_the_definition_is_built_once(monkeypatch):
    """Each graph has a context of its own, and building the dialect takes 20 ms."""

    def again():
        raise AssertionError("the dialect is built again")

    dialect.context()
    monkeypatch.setattr(dialect.Heddle, "_emit_dialect", again)
    dialect.context()
