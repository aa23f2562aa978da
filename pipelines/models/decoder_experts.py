"""A mixture of experts (Shazeer et al., arXiv:1701.06538) as the feed-forward part of a layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.models.decoder_config import Experts
from heddle.pipelines.models.decoder_families import ExpertNames
from heddle.pipelines.models.products import Products, Rows


@dataclass(frozen=True)
class Mixture:
    """What a token is sent to: the experts that a router chooses, and a shared one.

    Attributes:
        products: The weights.
        experts: The sizes.
        names: What they are called.
        activation: Of the gates.
        feed_forward: The shared expert: its name, the tokens and its inner size.
    """

    products: Products
    experts: Experts
    names: ExpertNames
    activation: Callable[[TensorValue], TensorValue]
    feed_forward: Callable[[str, TensorValue, int], TensorValue]

    def __call__(self, at: str, x: TensorValue) -> TensorValue:
        """float32 [tokens, size] of x, [tokens, size], with the weights of the layer `at`."""
        shares, which = self._routed(at, x)
        tokens, chosen = which.shape
        groups = ops.reshape(which, (-1,))
        count = self.experts.count
        order = ops.group_order(groups, groups=count)
        sorted_groups = ops.gather(groups, order, axis=0)
        rows = ops.gather(x, order // int(chosen), axis=0)
        offsets = ops.group_offsets(groups, groups=count)
        outer = self._expert(f"{at}.{self.names.experts}", rows, offsets, sorted_groups)
        places = ops.reshape(ops.group_order(groups, groups=count, places=True), which.shape)
        each = ops.gather(outer, places, axis=0) * ops.reshape(shares, (tokens, chosen, 1))
        mixed = ops.reshape(ops.sum(each, axis=1), x.shape)
        return mixed + self._shared(at, x) if self.experts.shared else mixed

    def _routed(self, at: str, x: TensorValue) -> tuple[TensorValue, TensorValue]:
        """The shares of a token's experts, float32 [tokens, chosen], and which they are."""
        experts = self.experts
        name = f"{at}.{self.names.router}"
        scores = self.products.exact(name, x, experts.count, experts.biased)
        if experts.normalized:  # the same as the shares of all, divided by their sum
            best, which = ops.top_k(scores, experts.chosen)
            return ops.softmax(best), which
        return ops.top_k(ops.softmax(scores), experts.chosen)

    def _expert(
        self, at: str, x: TensorValue, offsets: TensorValue, groups: TensorValue
    ) -> TensorValue:
        """float32 [rows, size] of rows that are sorted by their expert."""
        experts, names = self.experts, self.names

        def product(
            name: str, x: TensorValue, outputs: int, rows: Rows | None = None
        ) -> TensorValue:
            found = self.products.grouped(f"{at}.{name}", x, outputs, offsets, rows)
            if not experts.biased:
                return found
            total = rows.total if rows else outputs
            bias = self.products.weight(f"{at}.{name}_bias", experts.count, total)
            each = ops.cast(bias[:, rows.chosen] if rows else bias, DType.float32)
            return found + ops.gather(each, groups, axis=0)

        if names.joined:
            gate, up = (
                product(
                    names.joined, x, experts.size, Rows(slice(first, None, 2), 2 * experts.size)
                )
                for first in (0, 1)
            )
        else:
            gate, up = (product(name, x, experts.size) for name in (names.gate, names.up))
        inner = ops.cast(self._gated(gate, up), self.products.dtype)
        return product(names.down, inner, int(x.shape[-1]))

    def _gated(self, gate: TensorValue, up: TensorValue) -> TensorValue:
        experts = self.experts
        if not experts.gain:
            return self.activation(gate) * up
        if experts.limit < math.inf:
            gate = ops.minimum(gate, experts.limit)
            up = ops.clip(up, -experts.limit, experts.limit)
        return gate * ops.sigmoid(gate * experts.gain) * (up + 1.0)

    def _shared(self, at: str, x: TensorValue) -> TensorValue:
        """What all tokens go to, by a share of its own."""
        name = f"{at}.{self.names.shared}"
        share = ops.sigmoid(self.products.exact(f"{name}_gate", x, 1, biased=False))
        return share * self.feed_forward(name, x, self.experts.shared)
