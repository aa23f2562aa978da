"""`POST /v1/embeddings`: a sentence embedder behind OpenAI's wire format."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.embedding import SentenceEmbedder
from heddle.pipelines.serving.calls import CallEngine
from heddle.pipelines.serving.errors import ApiError
from heddle.pipelines.serving.metrics import ModelMetrics
from heddle.pipelines.serving.records import MOST_TEXTS, EmbeddingsAsked


class EmbeddingEngine(CallEngine):
    """Embeds the texts of requests; nobody else uses `embedder`."""

    kind = "an embedder"

    def __init__(
        self, name: str, embedder: SentenceEmbedder, most: int, metrics: ModelMetrics
    ) -> None:
        super().__init__(name, most, metrics)
        self._embedder = embedder

    async def answer(self, asked: EmbeddingsAsked) -> dict[str, Any]:
        """The response to a request.

        Raises:
            ApiError: The queue is full, or the texts are refused.
        """
        vectors, count = await self.call(lambda: self._embed(asked.input))
        written = _in_base64 if asked.encoding_format == "base64" else np.ndarray.tolist
        rows = [
            {"object": "embedding", "index": index, "embedding": written(vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": rows, "model": self.name, "usage": usage}

    def _embed(self, given: Any) -> tuple[NDArray[np.float32], int, int]:
        """The vectors of texts or of rows of tokens, and how many these are."""
        rows = given if isinstance(given, list) else [given]
        if rows and isinstance(rows[0], int):
            rows = [rows]
        if not rows or "" in rows or len(rows) > MOST_TEXTS:
            got = "none" if not rows else "an empty one" if "" in rows else len(rows)
            raise ApiError(400, f"input: wanted at most {MOST_TEXTS} texts, got {got}", "input")
        if isinstance(rows[0], str):
            rows = self._embedder.tokens(rows)
        return self._embedder.embed_tokens(rows), len(rows), sum(map(len, rows))


def _in_base64(vector: NDArray[np.float32]) -> str:
    """The bytes of little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
