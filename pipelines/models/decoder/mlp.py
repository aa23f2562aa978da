"""The feed-forward part of a decoder's layers, and activations that have weights of their own."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.models.activations import ACTIVATIONS, LEARNED
from heddle.pipelines.models.decoder.traits import MlpNames
from heddle.pipelines.models.products import Products, Rows


@dataclass(frozen=True)
class FeedForward:
    """Adds a feed-forward part to the graph that is being built.

    Attributes:
        products: The weights.
        activation: One of `ACTIVATIONS`, or `LEARNED`.
        biased: Its products have biases.
    """

    products: Products
    activation: str
    biased: bool

    def __call__(self, layer: str, names: MlpNames, x: TensorValue, inner: int) -> TensorValue:
        """float32 [tokens, size] of x, [tokens, size], by way of `inner` columns.

        With a gate it is one of arXiv:2002.05202.
        """
        at = f"{layer}.{names.at}"

        def outer(name: str, first: int) -> TensorValue:
            part = Rows(slice(first, first + inner), 2 * inner) if names.joined else None
            return self.products.linear(f"{at}.{names.joined or name}", x, inner, self.biased, part)

        if names.gate:
            gate, up = outer(names.gate, 0), outer(names.up, inner)
            both = self._activated(at, gate) * up
        else:
            both = self._activated(at, outer(names.up, 0))
        both = ops.cast(both, self.products.dtype)
        return self.products.linear(f"{at}.{names.down}", both, int(x.shape[-1]), self.biased)

    def _activated(self, at: str, x: TensorValue) -> TensorValue:
        if self.activation == LEARNED:
            return self._xielu(f"{at}.act_fn", x)
        return ACTIVATIONS[self.activation](x)

    def _xielu(self, at: str, x: TensorValue) -> TensorValue:
        """The activation of arXiv:2411.13010: a parabola above 0, below an exponential, a slope."""
        rise, fall = (
            ops.softplus(self.products.vector(f"{at}.{name}", 1)) for name in ("alpha_p", "alpha_n")
        )
        slope, most = (
            ops.cast(self.products.weight(f"{at}.{name}"), DType.float32)
            for name in ("beta", "eps")
        )
        below = (ops.expm1(ops.minimum(x, most)) - x) * (slope + fall)
        return ops.where(x > 0.0, rise * x * x, below) + slope * x
