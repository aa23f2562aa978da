"""The activations of models, by the names that Hugging Face's configurations give them."""

from __future__ import annotations

from collections.abc import Callable

from heddle.graph import TensorValue, ops

LEARNED = "xielu"
"""One with weights of its own (arXiv:2411.13010), which decoders have in `act_fn`."""


def _squared(x: TensorValue) -> TensorValue:
    """The square of `relu` (arXiv:2109.08668)."""
    above = ops.relu(x)
    return above * above


ACTIVATIONS: dict[str, Callable[[TensorValue], TensorValue]] = {
    "gelu": ops.gelu,
    "gelu_new": lambda x: ops.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "relu": ops.relu,
    "relu2": _squared,
    "silu": ops.silu,
    "tanh": ops.tanh,
}
