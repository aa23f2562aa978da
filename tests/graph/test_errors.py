"""Every mistake while building: where, what was wanted, what was found."""

import inspect
import re

import numpy as np
import pytest

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, Weight, ops
from heddle.runtime.errors import GraphError, HeddleError

F32, I32 = DType.float32, DType.int32
N = Dim("n", minimum=2, maximum=6)


def tensor(*shape, dtype=F32, device=None):
    return TensorType(dtype, shape, device)


BUILDING = [
    # shapes
    (lambda x, y: x + y, [tensor(2, 3), tensor(4)],
     "add: wanted shapes that broadcast, got [2, 3] and [4]: 3 and 4 differ"),
    (lambda x, y: x + y, [tensor("n"), tensor("m")],
     "add: wanted shapes that broadcast, got [n] and [m]: n and m differ"),
    (lambda x, y: x @ y, [tensor(2, 3), tensor(2, 3)],
     "matmul: wanted [..., m, k] and [..., k, n], got [2, 3] and [2, 3]: k is 3 and 2"),
    (lambda x, y: x @ y, [tensor(3), tensor(3, 2)],
     "matmul: x: wanted rank 2 or more, got rank 1 (float32[3] on cpu:0)"),
    (lambda x: x.reshape((4, 2)), [tensor(2, 3)],
     "reshape: shape: wanted 6 elements as in [2, 3], got 8 in [4, 2]"),
    (lambda x: x.reshape((N, 3)), [tensor("n", "n")],
     "reshape: shape: wanted n*n elements as in [n, n], got 3*n in [n, 3]"),
    (lambda x: x.reshape((-1, -1)), [tensor(2, 3)],
     "reshape: shape: wanted at most one -1, got [-1, -1]"),
    (lambda x: x.reshape((4, -1)), [tensor(2, 3)],
     "reshape: shape: wanted 4 to divide 6 elements, got [4, -1]"),
    (lambda x: x.reshape((-2, 3)), [tensor(2, 3)],
     "reshape: dim: wanted a size of at least 0, got -2"),
    (lambda x: x.reshape(("k", 3)), [tensor("n", 3)],
     "reshape: shape: wanted 3*n elements as in [n, 3], got 3*k in [k, 3]"),
    (lambda x: x.broadcast_to(("k",)), [tensor(1)],
     "broadcast_to: wanted dims of the graph's inputs (none), got k"),
    (lambda x: x.broadcast_to((3, 2)), [tensor(2, 3)],
     "broadcast_to: wanted shapes that broadcast, got [2, 3] and [3, 2]: 2 and 3 differ"),
    (lambda x: x.broadcast_to((3,)), [tensor(2, 3)],
     "broadcast_to: shape: wanted one that [2, 3] broadcasts to, got [3]"),
    (lambda x, y: ops.concat([x, y]), [tensor(2, 3), tensor(2, 4)],
     "concat: operand 1: wanted [2, 3] except along axis 0, got [2, 4]"),
    (lambda x: ops.squeeze(x, 0), [tensor(2, 3)],
     "squeeze: wanted size 1 at axis 0, got [2, 3]"),
    (lambda x: ops.split(x, [1, 2]), [tensor(2, 3)],
     "split: wanted sizes that add up to 2, got [1, 2]"),
    (lambda x: ops.split(x, 2), [tensor(2, 3)],
     "split: sizes: wanted a list of ints of 0 or more, got 2"),
    (lambda x: ops.split(x, [-1, 3]), [tensor(2, 3)],
     "split: sizes: wanted a list of ints of 0 or more, got [-1, 3]"),
    (lambda x: ops.layer_norm(x, x[0], x[0, :2]), [tensor(2, 3)],
     "layer_norm: beta: wanted shape [3], got [2]"),
    (lambda x: ops.rms_norm(x, x), [tensor(2, 3)], "rms_norm: gamma: wanted shape [3], got [2, 3]"),
    (lambda x: ops.max(x), [tensor(2, 0)],
     "max: wanted at least one element along axis 1, got float32[2, 0] on cpu:0"),
    # axes
    (lambda x: ops.sum(x, axis=2), [tensor(2, 3)], "sum: wanted an axis from -2 to 1, got 2"),
    (lambda x: ops.softmax(x, axis=-3), [tensor(2, 3)],
     "softmax: wanted an axis from -2 to 1, got -3"),
    (lambda x: x.transpose(0, 2), [tensor(2, 3)],
     "transpose: wanted an axis from -2 to 1, got 2"),
    (lambda x: x.permute((0, 0)), [tensor(2, 3)],
     "transpose: permutation: wanted each axis of [2, 3] once, got (0, 0)"),
    (lambda x: ops.flatten(x, 1, 0), [tensor(2, 3)],
     "flatten: wanted start_dim <= end_dim, got 1 and 0"),
    (lambda x, i: ops.gather(x, i, axis=3), [tensor(2, 3), tensor(2, dtype=I32)],
     "gather: wanted an axis from -2 to 1, got 3"),
    # dtypes
    (lambda x: x / 2, [tensor(3, dtype=I32)],
     "div: wanted a floating-point dtype, got int32; cast it first"),
    (lambda x: ops.exp(x), [tensor(3, dtype=I32)],
     "exp: wanted a floating-point dtype, got int32; cast it first"),
    (lambda x: x + x, [tensor(3, dtype=DType.bool)],
     "add: wanted a numeric dtype, got bool; cast it first"),
    (lambda x: -x, [tensor(3, dtype=DType.uint8)],
     "neg: wanted a dtype with negative values, got uint8; cast it first"),
    (lambda x: ops.where(x, x, x), [tensor(3)], "where: condition: wanted bool, got float32"),
    (lambda x: ops.where(ops.isnan(x), True, 2), [tensor(3)],
     "where: wanted a number of dtype int64, got True"),
    (lambda x: ops.max_pool(x, (4,), (1,)), [tensor(1, N, 4)],
     "max_pool: wanted dims of 0 or more, got n - 3, which may be -1 (n from 2); give the Dim a "
     "minimum or a maximum"),
    (lambda x, y: ops.broadcast_to(x, (N - 3, 4)), [tensor(4), tensor(N)],
     "broadcast_to: wanted dims of 0 or more, got n - 3, which may be -1 (n from 2); give the Dim "
     "a minimum or a maximum"),
    (lambda x, i: ops.gather(x, i, axis=0), [tensor(2), tensor(2)],
     "gather: indices: wanted an integer dtype, got float32"),
    (lambda x: ops.gelu(x, approximate="fast"), [tensor(2)],
     "gelu: wanted approximate 'none' or 'tanh', got 'fast'"),
    # devices and graphs
    (lambda x, y: x + y, [tensor(2), tensor(2, device=DeviceRef.GPU(1))],
     "add: wanted operands on one device, got cpu:0 and gpu:1"),
    # arguments
    (lambda x: ops.add(x), [tensor(2)], "add: wanted 2 operands (x, y), got 1"),
    (lambda x: ops.add(x, x, x), [tensor(2)], "add: wanted at most 2 arguments, got 3"),
    (lambda x: ops.attention(x), [tensor(2)],
     "attention: wanted 3 to 4 operands (query, key, value, mask), got 1"),
    (lambda x: ops.sum(x, axes=1), [tensor(2)],
     "sum: wanted arguments named x, axis, got 'axes'"),
    (lambda x: ops.sum(x, axis=1.0), [tensor(2)], "sum: axis: wanted int, got 1.0"),
    (lambda x: ops.gather(x, x), [tensor(2)], "gather: axis: wanted int, got nothing"),
    (lambda x: ops.cast(x, "float32"), [tensor(2)], "cast: dtype: wanted DType, got 'float32'"),
    (lambda x: ops.saturating_cast(x, "int8"), [tensor(2)],
     "saturating_cast: wanted a DType, got 'int8'"),
    (lambda x: ops.saturating_cast(x, I32), [tensor(2)],
     "saturating_cast: wanted floats, got int32"),
    (lambda x: ops.layer_norm(x, x, x, epsilon=0), [tensor(2)],
     "layer_norm: epsilon: wanted a positive number, got 0"),
    (lambda x: x + "1", [tensor(2)], "add: operand 1: wanted a tensor value, got str"),
    (lambda x: ops.cast(1, F32), [tensor(2)],
     "cast: wanted a tensor value, got int; ops.constant makes one"),
    (lambda x: ops.transpose(1), [tensor(2)], "transpose: wanted a tensor value, got int"),
    (lambda x: bool(x == x), [tensor(2)],
     "a TensorValue has no value while the graph is built: use ops.where instead of 'if'"),
    (lambda x: list(x), [tensor(2)],
     "tensor value: wanted an index or a slice, got an iteration"),
    # indexing
    (lambda x: x[2], [tensor(2)],
     "slice_tensor: axis 0: wanted an index inside of 2 for all of its sizes, got 2"),
    (lambda x: x[-3], [tensor(N)],
     "slice_tensor: axis 0: wanted an index inside of n for all of its sizes, got -3"),
    (lambda x, y: x[N], [tensor(5), tensor(N)],
     "slice_tensor: axis 0: wanted an index inside of 5 for all of its sizes, got n"),
    (lambda x: x[-3:], [tensor(N)],
     "slice_tensor: axis 0: wanted 0 <= start <= stop <= n for all sizes in range, got start n - 3 "
     "and stop n; give the Dim a minimum or a maximum"),
    (lambda x: x[1.5:], [tensor(N)],
     "slice_tensor: axis 0: wanted ints or dims as the ends of a slice, got slice(1.5, None, "
     "None)"),
    (lambda x: x[2], [tensor(N)],
     "slice_tensor: axis 0: wanted an index inside of n for all of its sizes, got 2"),
    (lambda x: x[:3], [tensor(N)],
     "slice_tensor: axis 0: wanted 0 <= start <= stop <= n for all sizes in range, got start 0 "
     "and stop 3; give the Dim a minimum or a maximum"),
    (lambda x, y: x[:N], [tensor(5), tensor(N)],
     "slice_tensor: axis 0: wanted 0 <= start <= stop <= 5 for all sizes in range, got start 0 "
     "and stop n; give the Dim a minimum or a maximum"),
    (lambda x: x[::-1], [tensor(N)],
     "slice_tensor: axis 0: wanted a positive step where a size is not known, got -1"),
    (lambda x: x[::0], [tensor(2)],
     "slice_tensor: axis 0: wanted a step that is an int other than 0, got 0"),
    (lambda x: x[x], [tensor(2)],
     "slice_tensor: wanted ints, dims, slices, ... and None, got TensorValue; see ops.gather"),
    (lambda x: ops.slice_tensor(x, 1), [tensor(2)],
     "slice_tensor: indices: wanted a tuple of indices, got 1"),
    (lambda x: x[0, 0], [tensor(2)], "slice_tensor: wanted at most 1 indices and one ..., got 2"),
    (lambda x: x[..., ...], [tensor(2)],
     "slice_tensor: wanted at most 1 indices and one ..., got 2"),
    # limits of artifacts
    (lambda x: ops.unsqueeze(x, 0), [tensor(*[1] * 16)],
     f"reshape: wanted at most 16 dims, got 17: float32[{', '.join('1' * 17)}] on cpu:0"),
    (lambda x: x.broadcast_to((2**40,)), [tensor(1)],
     f"broadcast_to: wanted dims of less than 2^40, got float32[{2**40}] on cpu:0"),
    (lambda x: x.broadcast_to((2**30, "n", 2**30)), [tensor("n", 1)],
     f"broadcast_to: wanted a tensor of less than 2^47 bytes, got float32[{2**30}, n, {2**30}] "
     "on cpu:0"),
    # attention
    (lambda x: ops.attention(x, x, x, layout="sbhd"), [tensor(1, 2, 3, 4)],
     "attention: layout: wanted 'bhsd' or 'bshd', got 'sbhd'"),
    (lambda x: ops.attention(x, x, x, window=3), [tensor(1, 2, 3, 4)],
     "attention: window: wanted 0, or 1 and more of causal attention, got 3"),
    (lambda x: ops.attention(x, x, x), [tensor(2, 3, 4)],
     "attention: query: wanted rank 4 (bhsd), got [2, 3, 4]"),
    (lambda x, y: ops.attention(x, x, y), [tensor(1, 2, 3, 4), tensor(1, 2, 4, 4)],
     "attention: wanted key and value of one shape, got [1, 2, 3, 4] and [1, 2, 4, 4]"),
    (lambda x, y: ops.attention(x, y, y), [tensor(1, 2, 3, 4), tensor(2, 2, 3, 4)],
     "attention: wanted one batch and one head size, got query [1, 2, 3, 4] and key [2, 2, 3, 4]"),
    (lambda x, y: ops.attention(x, y, y), [tensor(1, 3, 3, 4), tensor(1, 2, 3, 4)],
     "attention: wanted key heads that divide the query's 3, got 2"),
    (lambda x, m: ops.attention(x, x, x, m), [tensor(1, 2, 3, 4), tensor(1, 5, 3, 3)],
     "attention: wanted shapes that broadcast, got [1, 5, 3, 3] and [1, 2, 3, 3]: 5 and 2 differ"),
    (lambda x, m: ops.attention(x, x, x, m), [tensor(1, 2, 3, 4), tensor(2, 1, 2, 3, 3)],
     "attention: mask: wanted a shape that broadcasts to [1, 2, 3, 3], got [2, 1, 2, 3, 3]"),
    (lambda x, m: ops.attention(x, x, x, m), [tensor(1, 2, 3, 4), tensor(3, 3, dtype=I32)],
     "attention: mask: wanted bool or float32, got int32; cast it first"),
    (lambda x: ops.attention(x, x, x), [tensor(1, 2, 3, "d")],
     "attention: scale: wanted a number for the head size d, got none"),
    (lambda x, y: ops.attention(x, y, y), [tensor(1, 2, 3, 4), tensor(1, 2, 3, 4, dtype=I32)],
     "attention: wanted operands of one dtype, got float32, int32, int32"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "types", "text"), BUILDING, ids=[t for _, _, t in BUILDING])
def test_op_invalid(function, types, text):
    line = inspect.getsourcelines(function)[1]
    with Graph("g", types) as graph:
        with pytest.raises(GraphError, match=re.escape(text) + "$") as caught:
            function(*graph.inputs)
        graph.output()
    assert str(caught.value) == f"{__file__}:{line}: {text}"


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
    (lambda: Graph("g", [tensor(2)] * 2, ["a", "a"]),
     "input names: wanted each once, got 'a' twice"),
    (lambda: Graph("g", [tensor(N), tensor(Dim("n", maximum=9))]),
     "dim n: wanted one range, got (2, 6) and (1, 9)"),
    (lambda: Graph("g", [tensor(Dim("n") * 2)]),
     "dim 2*n: wanted an input with the dim n by itself, got none"),
    (lambda: weights(Weight("w", F32, (2,)), Weight("w", F32, (2,))),
     "weight: wanted a new name, got 'w' twice"),
    (lambda: weights(Weight("w", F32, ("n",))), "weight 'w': wanted a static shape, got [n]"),
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
