"""Weights that lie as [k, n] get to wgmma."""

import pytest

from heddle.graph import DeviceRef, DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler import assemble
from heddle.graph.compiler.pipeline import lower
from heddle.kernels.cuda.warpgroup import plan
from heddle.kernels.registry import MACHINES


@pytest.mark.parametrize(
    ("dtype", "op", "product"),
    [
        (DType.int8, "integer_matmul", ops.integer_matmul),
        (DType.float8_e4m3fn, "float8_matmul", ops.float8_matmul),
        (DType.float32, "matmul", lambda a, b: ops.matmul(a, b, precision="tf32")),
    ],
)
def test_products_by_weights(dtype, op, product):
    with Graph("g", [TensorType(dtype, ("rows", 64), DeviceRef.CPU())]) as graph:
        weight = graph.add_weight(Weight("w", dtype, (64, 48), DeviceRef.CPU()))
        graph.output(product(graph.inputs[0].tensor, weight))
    asked = assemble.requests(lower(graph.module, "cuda"), "cuda")
    (turn, copied), *products = [(fused, request.spec) for fused, request in asked]
    assert (copied.op, turn.attributes["stage"].value) == ("transpose", "init")
    assert {spec.op for _, spec in products} == {op}
    plans = [plan.plan_for(spec, MACHINES["sm_90a"]) for _, spec in products]
    assert any(plans)
