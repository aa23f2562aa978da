"""A sentence embedder in PyTorch, as a peer of benchmarks/minilm.py: compiled by Inductor.

Needs `pip install torch` and a C++ compiler. The weights are a checkpoint's, by its names; the
module is what a hand would write: F.linear, F.layer_norm and F.scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f


class Embedder(nn.Module):
    """From tokens and a bool mask, both [batch, sequence], to unit embeddings in float32."""

    def __init__(self, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = config
        tensors = {
            name.replace(".", "_"): nn.Parameter(torch.from_numpy(np.array(array)), False)
            for name, array in arrays.items()
            if array.dtype == np.float32
        }
        self.tensors = nn.ParameterDict(tensors)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The mean over tokens of the last hidden state, normalised."""
        batch, sequence = tokens.shape
        x = f.embedding(tokens, self._weight("embeddings.word_embeddings"))
        x = x + self._weight("embeddings.position_embeddings")[:sequence]
        x = self._norm(
            "embeddings.LayerNorm", x + self._weight("embeddings.token_type_embeddings")[0]
        )
        heads, size = self.config["num_attention_heads"], self.config["hidden_size"]
        for layer in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}"
            query, key, value = (
                self._linear(f"{at}.attention.self.{name}", x)
                .view(batch, sequence, heads, size // heads)
                .transpose(1, 2)
                for name in ("query", "key", "value")
            )
            mixed = f.scaled_dot_product_attention(query, key, value, mask[:, None, None])
            mixed = mixed.transpose(1, 2).reshape(batch, sequence, size)
            mixed = self._linear(f"{at}.attention.output.dense", mixed)
            x = self._norm(f"{at}.attention.output.LayerNorm", mixed + x)
            inner = f.gelu(self._linear(f"{at}.intermediate.dense", x))
            x = self._norm(f"{at}.output.LayerNorm", self._linear(f"{at}.output.dense", inner) + x)
        total = (x.float() * mask[..., None]).sum(1)
        return f.normalize(total, dim=-1)

    def _weight(self, name: str, kind: str = "weight") -> torch.Tensor:
        return self.tensors[f"{name}.{kind}".replace(".", "_")]

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return f.linear(x, self._weight(name), self._weight(name, "bias"))

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        size, epsilon = self.config["hidden_size"], self.config["layer_norm_eps"]
        return f.layer_norm(x, (size,), self._weight(name), self._weight(name, "bias"), epsilon)


def candidate(
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    dtype: str,
    threads: int,
    package: Path | None,
) -> Callable[[np.ndarray], Callable[[], np.ndarray]]:
    """Calls compiled for the shape of their tokens, with weights that Inductor may pack.

    With a `package` it is compiled ahead of time to that file (AOTInductor), without one by
    torch.compile.
    """
    torch.set_num_threads(threads)
    module = Embedder(arrays, config).eval().to(getattr(torch, dtype))
    torch._inductor.config.freezing = True

    @torch.no_grad()
    def prepare(tokens: np.ndarray) -> Callable[[], np.ndarray]:
        inputs = (
            torch.from_numpy(tokens.astype(np.int64)),
            torch.ones(tokens.shape, dtype=torch.bool),
        )
        if package:
            exported = torch.export.export(module, inputs)
            torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
            compiled = torch._inductor.aoti_load_package(str(package))
        else:
            torch._dynamo.reset()
            compiled = torch.compile(module, dynamic=False)

        @torch.no_grad()
        def call() -> np.ndarray:
            return compiled(*inputs).numpy()

        return call

    return prepare
