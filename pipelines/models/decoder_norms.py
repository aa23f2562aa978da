"""The norms of a decoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.models.products import Products


@dataclass(frozen=True)
class Norms:
    """RMS norms, or layer norms without a bias.

    Attributes:
        products: The weights.
        epsilon: What is added to the mean square.
        centred: Whether the mean is taken off first: layer norms.
        offset: What is added to the weights.
    """

    products: Products
    epsilon: float
    centred: bool
    offset: float

    def __call__(self, name: str, x: TensorValue, dtype: DType) -> TensorValue:
        """The norm of the last dim of x with the weight `name`, in `dtype`."""
        size = int(x.shape[-1])
        gamma = self.products.vector(f"{name}.weight", size)
        if self.offset:
            gamma = gamma + self.offset
        if self.centred:
            beta = self.products.graph.constant(np.zeros(size, np.float32))
            normal = ops.layer_norm(x, gamma, beta, epsilon=self.epsilon)
        else:
            normal = ops.rms_norm(x, gamma, epsilon=self.epsilon)
        return ops.cast(normal, dtype)
