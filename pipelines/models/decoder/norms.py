"""The norms of a decoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.models.decoder.traits import Family
from heddle.pipelines.models.products import Products


@dataclass(frozen=True)
class Norms:
    """RMS norms or layer norms.

    Attributes:
        products: The weights.
        epsilon: What is added to the mean square.
        family: Which they are, and whether they have weights and biases.
    """

    products: Products
    epsilon: float
    family: Family

    def __call__(self, name: str, x: TensorValue, dtype: DType) -> TensorValue:
        """The norm of the last dim of x with the weights `name`, in `dtype`."""
        family = self.family
        gamma = self._vector(f"{name}.weight", x, 1.0 if not family.norm_weight else None)
        if family.offset:
            gamma = gamma + family.offset
        if family.centred:
            beta = self._vector(f"{name}.bias", x, 0.0 if not family.norm_bias else None)
            normal = ops.layer_norm(x, gamma, beta, epsilon=self.epsilon)
        else:
            normal = ops.rms_norm(x, gamma, epsilon=self.epsilon)
        return ops.cast(normal, dtype)

    def plain(self, x: TensorValue) -> TensorValue:
        """The RMS norm of the last dim of x without weights, float32."""
        return ops.rms_norm(x, self._constant(x, 1.0), epsilon=self.epsilon)

    def _vector(self, name: str, x: TensorValue, constant: float | None) -> TensorValue:
        """The weight `name`, as long as a row of x, or a constant in its place."""
        if constant is None:
            return self.products.vector(name, int(x.shape[-1]))
        return self._constant(x, constant)

    def _constant(self, x: TensorValue, value: float) -> TensorValue:
        """As many of a value as a row of x has elements."""
        return self.products.graph.constant(np.full(int(x.shape[-1]), value, np.float32))
