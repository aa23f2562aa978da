"""Strategies that the graph's and the compiler's tests share, as fixtures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401  (gives NumPy its dtypes)
import numpy as np
import pytest
from hypothesis import strategies as st

from heddle.graph import Dim, DType, Graph, TensorType, TensorValue, Weight, ops

UNARY = (
    ops.neg,
    ops.abs,
    ops.tanh,
    ops.erf,
    ops.relu,
    ops.silu,
    ops.sigmoid,
    ops.softplus,
    ops.gelu,
    lambda x: ops.gelu(x, approximate="tanh"),
    lambda x: ops.sqrt(ops.abs(x)),
    lambda x: ops.exp(ops.minimum(x, 2.0)),
    lambda x: ops.log(ops.abs(x) + 1),
    lambda x: ops.log1p(ops.abs(x)),
    lambda x: ops.expm1(ops.minimum(x, 2.0)),
    lambda x: ops.rsqrt(x * x + 1),
    lambda x: ops.cast(ops.cast(x, DType.float64), DType.float32),
)
BINARY = (
    ops.add,
    ops.sub,
    ops.mul,
    ops.maximum,
    ops.minimum,
    lambda x, y: x / (ops.abs(y) + 1),
    lambda x, y: ops.where(x < y, x, y * 0.5),
    lambda x, y: ops.where(ops.equal(x, y), 1.0, x - y),
)
ROWWISE = (
    lambda x: ops.softmax(x),
    lambda x: ops.sum(x, axis=0),
    lambda x: ops.mean(x),
    lambda x: ops.max(x, axis=-1),
    lambda x: ops.min(x, axis=0),
    lambda x: ops.concat([x, x], axis=-1),
    lambda x: x[..., ::-1] if x.shape[-1].static is not None else x,
    lambda x: x[0:1] + x,
    lambda x: ops.unsqueeze(x, 0)[0],
)


@dataclass
class RandomGraph:
    """A graph with matching inputs and weights."""

    graph: Graph
    inputs: list[np.ndarray[Any, Any]]
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)


def draw_graph(draw: Any, most_ops: int = 8) -> RandomGraph:
    """Float32 values of moderate size, one symbolic dim, every family of ops."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, width = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    types = [
        TensorType(DType.float32, (Dim("rows", maximum=64), width)),
        TensorType(DType.float32, draw(st.sampled_from([(width,), (1,), ("rows", 1)]))),
    ]
    sizes = {"rows": rows}
    inputs = [
        rng.standard_normal([dim.evaluate(sizes) for dim in type.shape]).astype(np.float32)
        for type in types
    ]
    weights: dict[str, np.ndarray[Any, Any]] = {}
    with Graph("random", types) as graph:
        values: list[TensorValue] = list(graph.inputs)

        def weight(*shape: int) -> TensorValue:
            name = f"w{len(weights)}"
            weights[name] = (rng.standard_normal(shape) / 4).astype(np.float32)
            return graph.add_weight(Weight(name, DType.float32, shape))

        for _ in range(draw(st.integers(1, most_ops))):
            kind = draw(st.sampled_from(["unary", "binary", "row", "linear", "norm", "scalar"]))
            x = draw(st.sampled_from(values))
            last = x.shape[-1].static
            if kind == "unary":
                values.append(draw(st.sampled_from(UNARY))(x))
            elif kind == "binary":
                y = draw(st.sampled_from(values))
                if {x.shape[-1], y.shape[-1]} <= {Dim(1), Dim(width)}:
                    values.append(draw(st.sampled_from(BINARY))(x, y))
            elif kind == "row":
                values.append(draw(st.sampled_from(ROWWISE))(x))
            elif kind == "linear" and last and x.rank == 2:
                columns = draw(st.sampled_from([1, width, 33]))
                values.append(x @ weight(columns, last).T)
            elif kind == "norm" and last:
                values.append(ops.layer_norm(x, weight(last), weight(last)))
                values.append(ops.rms_norm(x, weight(last)))
            else:
                values.append(x * 0.5 + 1)
        graph.output(*values[-draw(st.integers(1, 3)) :])
    return RandomGraph(graph, inputs, weights)


@pytest.fixture(scope="session")
def random_graphs() -> st.SearchStrategy[RandomGraph]:
    """Use with `@given(data=st.data())` and `data.draw(random_graphs)`."""
    return st.composite(draw_graph)()
