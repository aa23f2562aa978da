"""Graphs in which an op is written out: what they become, and whether results are right."""

import numpy as np

from heddle.graph import DType, Graph, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession


def written(write, *types):
    """The graph of `write(*inputs)`."""
    with Graph("written", types) as graph:
        graph.output(write(*graph.inputs))
    return graph


def found(graph, kind="cpu"):
    """The names of the ops after the pass, without those that move or fill memory."""
    module = pipeline.lower(graph.module, kind, stop_after="recognize")
    moves = ("reshape", "transpose", "constant", "broadcast_to", "slice", "iota")
    return [m.name(op) for op in m.operations(module) if m.name(op) not in moves]


def attrs(graph, name):
    """The attributes of the one op called so."""
    module = pipeline.lower(graph.module, "cpu", stop_after="recognize")
    (operation,) = (op for op in m.operations(module) if m.name(op) == name)
    return m.attrs(operation)


def kernels(graph, kind="cpu"):
    """The kernels of the graph, in the order of their calls."""
    module = pipeline.lower(graph.module, kind)
    return [op.attributes["kernel"].value for op in m.operations(module) if m.name(op) == "fused"]


def check(graph, *sizes, tolerance=2e-6):
    """Compiled and run, it is what the graph says as it is written."""
    model = InferenceSession(threads=1).load(compile(graph, "cpu:x86-64-v3"))
    rng = np.random.default_rng(0)
    for symbols in sizes:
        arrays = []
        for value in graph.inputs:
            shape = [dim.evaluate(symbols) for dim in value.shape]
            drawn = rng.random(shape) < 0.7 if value.dtype is DType.bool else rng.normal(size=shape)
            arrays.append(drawn.astype(value.dtype.to_numpy()))
        (wanted,) = evaluate(graph, arrays)
        (result,) = model.execute(*arrays)
        np.testing.assert_allclose(result.to_numpy(), wanted, rtol=tolerance, atol=tolerance)


def softmax(x):
    shares = ops.exp(x - ops.max(x, axis=-1))
    return shares / ops.sum(shares, axis=-1)


def turned(x):
    return ops.transpose(x, -1, -2)


def heads(x, count=4):
    """`[batch, sequence, count * 16]` as `[batch, count, sequence, 16]`."""
    batch, sequence, _ = x.shape
    return ops.permute(ops.reshape(x, (batch, sequence, count, 16)), (0, 2, 1, 3))
