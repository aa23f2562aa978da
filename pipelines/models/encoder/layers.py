"""The layers that encoders and their heads share, made of the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from heddle.graph import DType, Graph, TensorValue, ops
from heddle.pipelines.models.products import Products


class Layers(Products):
    """Adds layers to a graph.

    Args:
        graph: The graph that the weights are added to.
        dtype: What products multiply.
        stored: The dtype of each weight in the checkpoint, by name; of others it is float32.
    """

    def __init__(
        self, graph: Graph, dtype: DType = DType.float32, stored: Mapping[str, DType] | None = None
    ) -> None:
        super().__init__(graph, dtype, stored=stored, unstored=DType.float32)

    def norm(self, name: str, x: TensorValue, epsilon: float, biased: bool = True) -> TensorValue:
        """The layer norm of x, both float32."""
        size = int(x.shape[-1])
        gamma = self.vector(f"{name}.weight", size)
        if biased:
            beta = self.vector(f"{name}.bias", size)
        else:
            beta = self.graph.constant(np.zeros(size, np.float32))
        return ops.layer_norm(x, gamma, beta, epsilon=epsilon)

    def rows(self, table: TensorValue, indices: TensorValue) -> TensorValue:
        """The rows of a table that integers name, as float32."""
        return ops.cast(ops.gather(table, indices, axis=0), DType.float32)
