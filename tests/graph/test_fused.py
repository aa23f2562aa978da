"""`heddle.fused`: a region that is one kernel."""

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, ops
from heddle.graph.dialect import create
from heddle.graph.reference import evaluate
from heddle.kernels.mlir import ir
from heddle.runtime.errors import GraphError


def fused(graph, ins, *, yields=None):
    """`tanh(x) + y` as a fused op before the graph's end, by the dialect's own means."""
    x, y = ins
    made = create(
        "heddle.fused",
        results=[x.type],
        operands=[x, y],
        regions=1,
        loc=graph.module.operation.location,
        ip=graph._point,
    )
    block = made.regions[0].blocks.append(x.type, y.type, arg_locs=[made.location] * 2)
    point = ir.InsertionPoint(block)
    a, b = block.arguments
    t = create("heddle.tanh", results=[a.type], operands=[a], loc=made.location, ip=point)
    s = create(
        "heddle.add", results=[a.type], operands=[t.results[0], b], loc=made.location, ip=point
    )
    create("heddle.yield", operands=[yields or s.results[0]], loc=made.location, ip=point)
    return made


def fused_graph():
    graph = Graph("fused", [TensorType(DType.float32, ("n", 3)), TensorType(DType.float32, (3,))])
    x, y = graph.inputs
    with graph:
        z = ops.exp(x)
        made = fused(graph, [z.mlir, y.mlir])
        graph.output(type(x)(graph, made.results[0]))
    return graph, made


def test_a_fused_region_verifies_and_computes():
    graph, _ = fused_graph()
    graph.verify()
    assert str(Graph.from_text(str(graph))) == str(graph)
    x, y = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    (result,) = evaluate(graph, [x, y])
    np.testing.assert_allclose(result, np.tanh(np.exp(x)) + y)


def test_a_fused_region_invalid():
    graph, made = fused_graph()
    block = made.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    end.operands[0] = block.arguments[1]
    with pytest.raises(GraphError, match=r"heddle.fused: wanted yielded values of tensor<\?x3xf32"):
        graph.verify()
    graph, made = fused_graph()
    made.operands[1] = made.operands[0]
    with pytest.raises(GraphError, match=r"fused: wanted block arguments of tensor<\?x3xf32"):
        graph.verify()
    graph, made = fused_graph()
    block = made.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    end.erase()
    with pytest.raises(
        GraphError, match=r"fused: wanted heddle.yield at the end of the region, got heddle.add"
    ):
        graph.verify()
