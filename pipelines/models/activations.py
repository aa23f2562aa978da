"""The activations of models, by the names that Hugging Face's configurations give them."""

from __future__ import annotations

from collections.abc import Callable

from heddle.graph import TensorValue, ops

ACTIVATIONS: dict[str, Callable[[TensorValue], TensorValue]] = {
    "gelu": ops.gelu,
    "gelu_new": lambda x: ops.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
}
