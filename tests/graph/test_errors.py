"""Every mistake with an op: where, what was wanted, what was found."""

import inspect
import re

import pytest

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, ops
from heddle.runtime.errors import GraphError

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
    (lambda x: x / x.shape[0], [tensor(N)],
     "div: operand 1: wanted a tensor value, got Dim; see ops.size"),
    (lambda x: 1 - x, [tensor(3, dtype=DType.bool)],
     "sub: wanted a number of dtype bool, got 1; cast first"),
    (lambda x: -x, [tensor(3, dtype=DType.uint8)],
     "neg: wanted a dtype with negative values, got uint8; cast it first"),
    (lambda x: ops.where(x, x, x), [tensor(3)], "where: condition: wanted bool, got float32"),
    (lambda x: ops.where(ops.isnan(x), True, 2), [tensor(3)],
     "where: wanted a number of dtype int64, got True; cast first"),
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
    (lambda x: ops.constant([x]), [tensor(2)],
     "constant: wanted numbers, got [TensorValue(float32[2] on cpu:0)]"),
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
    (lambda x: ops.attention(x, x, x, window=2**63), [tensor(1, 2, 3, 4)],
     f"attention: window: wanted int, got {2**63}"),
    (lambda x: ops.max_pool(x, (2, 2), (1, 2**63)), [tensor(1, 2, 3, 4)],
     f"max_pool: strides: wanted tuple[int, ...], got (1, {2**63})"),
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
    (lambda x, y: ops.attention(x, y, y), [tensor(1, 0, 3, 4), tensor(1, 2, 3, 4)],
     "attention: wanted heads of queries for 2 of keys, got [1, 0, 3, 4]"),
    (lambda x, i: ops.ragged_attention(x, x, x, i, i, scale=1.0),
     [tensor(3, 2, 0), tensor(2, dtype=DType.int64)],
     "ragged_attention: wanted heads, and a size of them, got query [3, 2, 0] and key [3, 2, 0]"),
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
