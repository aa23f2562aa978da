"""Specs of groups: what a product is rounded to, and whether it leaves the graph."""

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.graph.compiler import assemble, pipeline
from heddle.kernels.spec import Spec
from heddle.runtime import InferenceSession

K = 64


def product(also_rounded: bool = False) -> Graph:
    kinds = [TensorType(DType.float32, shape) for shape in ((Dim("m", 1, 9), K), (K, 32))]
    with Graph("product", kinds) as graph:
        x, y = (ops.cast(value.tensor, DType.bfloat16) for value in graph.inputs)
        narrow = x @ y
        wide = ops.cast(narrow, DType.float32) + 1
        graph.output(wide, *[narrow] * also_rounded)
    return graph


def products(graph: Graph) -> list[Spec]:
    asked = assemble.requests(pipeline.lower(graph.module, "cpu"), "cpu")
    return [wanted.spec for _, wanted in asked if wanted.spec.op == "matmul_packed"]


@pytest.mark.parametrize(("also_rounded", "dtype"), [(False, "float32"), (True, "bfloat16")])
def test_the_dtype_of_a_product_is_what_its_readers_ask_for(also_rounded, dtype):
    (spec,) = products(product(also_rounded))
    assert spec.result.dtype == dtype


def test_a_widened_product_keeps_the_digits_of_its_sums():
    """Operands of few digits, whose products are exact in float32 and not in bfloat16."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((5, K), (K, 32)))
    model = InferenceSession(threads=1).load(compile(product(), targets=["cpu:native"]))
    (found,) = model.execute(x, y)
    np.testing.assert_array_equal(found.to_numpy(), x @ y + 1)


@pytest.mark.parametrize("reshaped", [False, True])
def test_products_that_no_kernel_reads_leave_the_graph(reshaped):
    with Graph("products", [TensorType(DType.float32, (8, K))]) as graph:
        x = graph.inputs[0].tensor
        inner = x @ graph.constant(np.ones((K, K), np.float32))
        last = ops.relu(inner @ graph.constant(np.ones((K, 32), np.float32)))
        graph.output(ops.reshape(last, (4, 64)) if reshaped else last)
    assert [spec.attr("leaves") for spec in products(graph)] == [None, True]
    with Graph("both", [TensorType(DType.float32, (8, K))]) as graph:
        product = graph.inputs[0].tensor @ graph.constant(np.ones((K, 32), np.float32))
        graph.output(product, ops.sum(product, axis=0))
    (spec,) = products(graph)
    assert spec.attr("leaves") is None


def test_products_beside_each_other_leave_the_graph_together():
    with Graph("beside", [TensorType(DType.float32, (8, K))]) as graph:
        x = graph.inputs[0].tensor
        graph.output(*(x @ graph.constant(np.full((K, 32), n, np.float32)) for n in (1, 2)))
    (spec,) = products(graph)
    assert [one.attr("leaves") for one in spec.each] == [True, True]
