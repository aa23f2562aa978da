"""A mixture of experts (Shazeer et al., arXiv:1701.06538) as the feed-forward part of a layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.models.decoder.expert_config import Experts
from heddle.pipelines.models.decoder.mlp import FeedForward
from heddle.pipelines.models.decoder.traits import ExpertNames
from heddle.pipelines.models.products import Products, Rows, scaled


@dataclass(frozen=True)
class Mixture:
    """What a token is sent to: the experts that a router chooses, and a shared one.

    Attributes:
        products: The weights.
        experts: The sizes.
        names: What they are called.
        activation: Of the gates.
        feed_forward: The shared expert.
    """

    products: Products
    experts: Experts
    names: ExpertNames
    activation: Callable[[TensorValue], TensorValue]
    feed_forward: FeedForward

    def __call__(self, at: str, x: TensorValue) -> TensorValue:
        """float32 [tokens, size] of x, [tokens, size], with the weights of the layer `at`."""
        shares, which = self._routed(at, x)
        tokens, chosen = which.shape
        groups = ops.reshape(which, (-1,))
        count = self.experts.count
        order = ops.group_order(groups, groups=count)
        sorted_groups = ops.gather(groups, order, axis=0)
        rows = ops.gather(x, order // int(chosen), axis=0)
        inputs = self.experts.router.inputs
        if inputs:
            each = ops.gather(ops.reshape(shares, (-1,)), order, axis=0)
            rows = ops.cast(rows * ops.unsqueeze(each, -1), x.dtype)
        offsets = ops.group_offsets(groups, groups=count)
        outer = self._expert(f"{at}.{self.names.experts}", rows, offsets, sorted_groups)
        places = ops.reshape(ops.group_order(groups, groups=count, places=True), which.shape)
        each = ops.gather(outer, places, axis=0)
        if not inputs:
            each = each * ops.reshape(shares, (tokens, chosen, 1))
        mixed = ops.reshape(ops.sum(each, axis=1), x.shape)
        return mixed + self._shared(at, x) if self.experts.shared else mixed

    def _routed(self, at: str, x: TensorValue) -> tuple[TensorValue, TensorValue]:
        """The shares of a token's experts, float32 [tokens, chosen], and which they are."""
        experts, names = self.experts, self.names
        results = self.products.exact(f"{at}.{names.router}", x, experts.count, experts.biased)
        if experts.router.inputs:
            best, which = ops.top_k(results, experts.chosen)
            return ops.sigmoid(best), which
        limited = experts.chosen_groups < experts.groups
        if (
            experts.router.scores == "softmax"
            and experts.normalized
            and not (names.correction or limited)
        ):  # the same as the shares of all, divided by their sum
            best, which = ops.top_k(results, experts.chosen)
            return scaled(ops.softmax(best), experts.scale), which
        sigmoid = experts.router.scores == "sigmoid"
        scores = ranks = ops.sigmoid(results) if sigmoid else ops.softmax(results)
        if names.correction:
            ranks = scores + self._correction(f"{at}.{names.correction}")
        if limited:
            ranks = self._limited(ranks)
        _, which = ops.top_k(ranks, experts.chosen)
        shares = ops.take_along(scores, which)
        if experts.normalized:
            total = ops.sum(shares, axis=-1)
            shares = shares / ops.maximum(total, experts.least_share)
        return scaled(shares, experts.scale), which

    def _correction(self, name: str) -> TensorValue:
        """What is added to scores where they choose (arXiv:2408.15664), float32 [experts]."""
        count, dims = self.experts.count, self.names.correction_dims
        found = self.products.weight(name, *(1,) * (dims - 1), count)
        return ops.cast(ops.reshape(found, (count,)), DType.float32)

    def _limited(self, ranks: TensorValue) -> TensorValue:
        """`ranks` with -inf for all experts but those of the best groups (arXiv:2405.04434)."""
        experts = self.experts
        each = ops.reshape(ranks, (ranks.shape[0], experts.groups, -1))
        best, _ = ops.top_k(each, experts.router.best)
        groups = ops.reshape(ops.sum(best, axis=-1), (ranks.shape[0], experts.groups))
        _, which = ops.top_k(groups, experts.chosen_groups)
        numbers = self.products.graph.constant(np.arange(experts.groups).reshape(-1, 1))
        named = ops.equal(ops.reshape(which, (which.shape[0], 1, -1)), numbers)
        kept = ops.max(ops.cast(named, DType.float32), axis=-1) > 0.0
        return ops.reshape(ops.where(kept, each, -math.inf), ranks.shape)

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

        size, total = experts.size, 2 * experts.size
        if names.joined:
            chosen = (
                (slice(0, None, 2), slice(1, None, 2))
                if names.in_turns
                else (slice(0, size), slice(size, total))
            )
            gate, up = (product(names.joined, x, size, Rows(part, total)) for part in chosen)
        else:
            gate, up = (product(name, x, size) for name in (names.gate, names.up))
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
        """What all tokens go to, by a share of its own where it has one."""
        names = self.names
        assert names.shared is not None, "a shared expert has names"
        found = self.feed_forward(at, names.shared, x, self.experts.shared)
        if not names.shared_gate:
            return found
        share = self.products.exact(f"{at}.{names.shared_gate}", x, 1, biased=False)
        return ops.sigmoid(share) * found
