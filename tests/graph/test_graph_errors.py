"""Every mistake with graphs, types, weights and constants: what was wanted, what was found."""

import re

import numpy as np
import pytest

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, Weight, ops
from heddle.runtime.errors import GraphError, HeddleError

F32, I32 = DType.float32, DType.int32
N = Dim("n", minimum=2, maximum=6)


def tensor(*shape, dtype=F32, device=None):
    return TensorType(dtype, shape, device)


def finished():
    with Graph("old") as graph:
        graph.output(ops.constant(1))
    return graph


def outputs(*values, **options):
    with Graph("g", [tensor(2)]) as graph:
        graph.output(*(v if v is not None else graph.inputs[0] for v in values), **options)


def weights(*weights):
    with Graph("g") as graph:
        for weight in weights:
            graph.add_weight(weight)


def other_graph():
    with Graph("first", [tensor(2)]) as first, Graph("second", [tensor(2)]) as second:
        first.output()
        second.output(first.inputs[0] + second.inputs[0])


def foreign_output():
    with Graph("first", [tensor(2)]) as first, Graph("second", [tensor(2)]) as second:
        first.output()
        second.output(first.inputs[0])


def product(dtype=F32, precision="full"):
    with Graph("g", [tensor(2, 2, dtype=dtype)]) as graph:
        ops.matmul(graph.inputs[0], graph.inputs[0], precision=precision)


def sliced(index):
    with Graph("g", [tensor(N)]) as graph:
        graph.output(graph.inputs[0][index])


def reshaped(shape):
    with Graph("g", [tensor(N)]) as graph:
        graph.output(graph.inputs[0].reshape(shape))


def constant(*args):
    with Graph("g"):
        ops.constant(*args)


GRAPHS = [
    (lambda: Graph(3, []), "graph: wanted a name, got 3"),
    (lambda: Graph("g", tensor(2)),
     "graph 'g': wanted a list of TensorTypes, got TensorType"),
    (lambda: Graph("g", [F32]), "graph 'g': wanted a list of TensorTypes, got DType"),
    (lambda: Graph("g", "ab"), "graph 'g': wanted a list of TensorTypes, got str"),
    (lambda: Graph("g", [tensor(2)], "x"), "input names: wanted a list of names, got 'x'"),
    (lambda: Graph("g", [tensor(2)], [2]), "input names: wanted a list of names, got [2]"),
    (lambda: TensorType(F32, 4), "shape: wanted a list of ints, names and Dims, got 4"),
    (lambda: TensorType(F32, "abc"), "shape: wanted a list of ints, names and Dims, got 'abc'"),
    (lambda: TensorType(F32, (2,), "gpu"), "tensor type: wanted a DeviceRef, got 'gpu'"),
    (lambda: Weight(3, F32, (2,)), "weight: wanted a name, got 3"),
    (lambda: Weight("w", F32, 3), "shape: wanted a list of ints, names and Dims, got 3"),
    (lambda: Weight("w", 3, (3,)), "tensor type: wanted a DType, got 3"),
    (lambda: Graph("g", [tensor(2)], ["a", "b"]), "input names: wanted 1, got 2"),
    (lambda: Graph("g", [tensor(2**63)]),
     f"wanted dims of less than 2^40, got float32[{2**63}] on cpu:0"),
    (lambda: Graph("g", [tensor("-1", 4)]),
     "wanted dims of at least 0, got float32[-1, 4] on cpu:0"),
    (lambda: weights(Weight("w", F32, (Dim(2) - 5,))),
     "wanted dims of at least 0, got float32[-3] on cpu:0"),
    (lambda: Graph("g", [tensor(2)] * 2, ["a", "a"]),
     "input names: wanted each once, got 'a' twice"),
    (lambda: Graph("g", [tensor(N), tensor(Dim("n", maximum=9))]),
     "dim n: wanted one range, got (2, 6) and (1, 9)"),
    (lambda: Graph("g", [tensor(Dim("n") * 2)]),
     "dim 2*n: wanted an input with the dim n by itself, got none"),
    (lambda: weights(Weight("w", F32, (2,)), Weight("w", F32, (2,))),
     "weight: wanted a new name, got 'w' twice"),
    (lambda: weights(Weight("w", F32, ("n",))), "weight 'w': wanted a static shape, got [n]"),
    (lambda: weights("w"), "add_weight: wanted a Weight, got str"),
    (lambda: weights(Weight("\ud800", F32, (2,))), "weight: wanted a name, got '\\ud800'"),
    (lambda: Graph("\ud800"), "graph: wanted a name, got '\\ud800'"),
    (lambda: Graph("g", [tensor(2)], ["\udcff"]),
     "input names: wanted a list of names, got ['\\udcff']"),
    (lambda: Graph("g", [tensor(2)], 5), "input names: wanted a list of names, got 5"),
    (lambda: Dim("n", 1.0, 8), "dim n: wanted ints as minimum and maximum, got 1.0"),
    (lambda: Dim("n", 1, "8"), "dim n: wanted ints as minimum and maximum, got '8'"),
    (lambda: Dim("n", True), "dim n: wanted ints as minimum and maximum, got True"),
    (lambda: Dim("+".join("n" * 9999)),
     f"dim: wanted a name or a formula with + - * // %, got '{'n+' * 40}...'"),
    (lambda: sliced("m"), "slice_tensor: axis 0: wanted dims of the graph's inputs (n), got m"),
    (lambda: reshaped(4), "reshape: shape: wanted Shape, got 4"),
    (lambda: weights(), "graph 'g': wanted a call of output, got none"),
    (lambda: finished().output(), "graph 'old': wanted no op after output, got one"),
    (lambda: finished().add_weight(Weight("w", F32, (2,))),
     "graph 'old': wanted no op after output, got one"),
    (lambda: outputs(1), "output 0: wanted a tensor value, got int"),
    (lambda: outputs(None, names=["a", "b"]), "output names: wanted 1, got 2"),
    (lambda: outputs(None, None, names=["a", "a"]),
     "output names: wanted each once, got 'a' twice"),
    (lambda: other_graph(), "add: wanted values of one graph, got values of 'first' and 'second'"),
    (lambda: foreign_output(), "output 0: wanted a value of 'second', got one of 'first'"),
    (lambda: ops.constant(1), "wanted a graph, got none: call this in 'with Graph(...)'"),
    (lambda: product(precision="half"),
     "matmul: precision: wanted 'full' or 'tf32', got 'half'"),
    (lambda: product(DType.float16, precision="tf32"),
     "matmul: precision: wanted float32 for 'tf32', got float16"),
    (lambda: constant(300, DType.int8),
     "constant: wanted a number from -128 to 127 (int8), got 300"),
    (lambda: constant([1, -1], DType.uint8),
     "constant: wanted a number from 0 to 255 (uint8), got -1"),
    (lambda: constant(0.5, I32), "constant: wanted a number of dtype int32, got the float 0.5; "
     "cast first"),
    (lambda: constant([float("inf")], I32),
     "constant: wanted a number of dtype int32, got the float inf; cast first"),
    (lambda: constant(np.float32("nan"), DType.bool),
     "constant: wanted a number of dtype bool, got nan; cast first"),
    (lambda: constant(np.array([300], ">i8"), DType.int8),
     "constant: wanted a number from -128 to 127 (int8), got 300"),
    (lambda: constant(1, "int8"), "constant: wanted a DType, got 'int8'"),
    (lambda: constant("text"), "constant: wanted numbers, got str128"),
    (lambda: constant(np.ma.masked_array([1.0, 2.0], [0, 1])),
     "constant: wanted an array without a mask, got a MaskedArray (fill it: filled(0))"),
    (lambda: constant([1j], F32), "constant: wanted numbers, got complex128"),
    (lambda: constant(np.zeros(2, np.longdouble)), "constant: dtype: wanted one of bool, int8, "
     "int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, "
     "float8_e4m3fn, float8_e5m2, "
     f"got {np.dtype(np.longdouble).name}"),
    (lambda: constant([[1], [1, 2]]),
     "constant: wanted lists of one length at each level, got [[1], [1, 2]]"),
    (lambda: constant([1e6, float("nan")], DType.float16),
     "constant: wanted a number from -65504.0 to 65504.0 (float16), got 1000000.0"),
    (lambda: TensorType("float32", (2,)), "tensor type: wanted a DType, got 'float32'"),
    (lambda: tensor("a b"), "dim: wanted a name or a formula with + - * // %, got 'a b'"),
    (lambda: DeviceRef.parse("tpu:0"), "device: wanted 'cpu:N' or 'gpu:N', got 'tpu:0'"),
    (lambda: Graph.from_text("module {}"),
     "graph: wanted one func.func @main with heddle.symbols"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "text"), GRAPHS, ids=[text for _, text in GRAPHS])
def test_graph_invalid(function, text):
    with pytest.raises(GraphError, match=re.escape(text) + "$") as caught:
        function()
    assert str(caught.value).startswith(f"{__file__}:")
    assert isinstance(caught.value, HeddleError)
    assert isinstance(caught.value, ValueError)


def test_an_error_inside_the_block_is_not_hidden():
    with pytest.raises(KeyError), Graph("g"):
        raise KeyError


def test_a_refused_weight_is_none_of_the_graph():
    graph = finished()
    for weight in (Weight("late", F32, (2,)), Weight("huge", F32, (2**39, 2**39))):
        with pytest.raises(GraphError):
            graph.add_weight(weight)
    assert not graph.weights
