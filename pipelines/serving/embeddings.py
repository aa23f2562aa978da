"""`POST /v1/embeddings`: a sentence embedder behind OpenAI's wire format."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.embedding import SentenceEmbedder, check_rows, shortened
from heddle.pipelines.serving.answer import Receive
from heddle.pipelines.serving.calls import BatchEngine
from heddle.pipelines.serving.errors import ApiError
from heddle.pipelines.serving.metrics import ModelMetrics
from heddle.pipelines.serving.records import MOST_TEXTS, EmbeddingsAsked
from heddle.runtime.errors import InputError


class EmbeddingEngine(BatchEngine[Sequence[int]]):
    """Embeds the texts of requests; nobody else uses `embedder`."""

    kind = "an embedder"

    def __init__(
        self, name: str, embedder: SentenceEmbedder, most: int, metrics: ModelMetrics
    ) -> None:
        super().__init__(name, most, metrics)
        self._embedder = embedder

    async def answer(self, asked: EmbeddingsAsked, receive: Receive) -> dict[str, Any]:
        """The response to a request, whose client is told of by `receive`.

        Raises:
            ApiError: The queue is full, or the texts are refused.
        """
        if asked.dimensions is not None:
            self._check(asked.dimensions)
        vectors, count = await self.call(lambda: self._rows(asked.input), receive)
        if asked.dimensions is not None:
            vectors = shortened(vectors, asked.dimensions)
        written = _in_base64 if asked.encoding_format == "base64" else np.ndarray.tolist
        rows = [
            {"object": "embedding", "index": index, "embedding": written(vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": rows, "model": self.name, "usage": usage}

    def length(self, row: Sequence[int]) -> int:
        """Tokens of a text."""
        return len(row)

    def compute(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The embeddings of texts."""
        return self._embedder.embed_tokens(rows)

    def _check(self, dimensions: int) -> None:
        try:
            self._embedder.check_dimensions(dimensions)
        except InputError as error:
            raise ApiError(400, str(error), "dimensions") from None

    def _rows(self, given: Any) -> Sequence[Sequence[int]]:
        """The tokens of each text, of texts or of rows of tokens."""
        rows = given if isinstance(given, list) else [given]
        if rows and isinstance(rows[0], int):
            rows = [rows]
        if not rows or "" in rows or len(rows) > MOST_TEXTS:
            got = "none" if not rows else "an empty one" if "" in rows else len(rows)
            raise ApiError(400, f"input: wanted at most {MOST_TEXTS} texts, got {got}", "input")
        if isinstance(rows[0], str):
            rows = self._embedder.tokens(rows)
        check_rows(rows)
        return rows


def _in_base64(vector: NDArray[np.float32]) -> str:
    """The bytes of little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
