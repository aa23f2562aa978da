"""`POST /v1/rerank`: a scorer of pairs behind the wire format that Cohere and Jina share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.ranking import PairScorer
from heddle.pipelines.serving.calls import CallEngine
from heddle.pipelines.serving.metrics import ModelMetrics
from heddle.pipelines.serving.records import RankingAsked


class RankingEngine(CallEngine):
    """Scores the texts of requests; nobody else uses `scorer`."""

    kind = "a cross-encoder"

    def __init__(self, name: str, scorer: PairScorer, most: int, metrics: ModelMetrics) -> None:
        super().__init__(name, most, metrics)
        self._scorer = scorer

    async def answer(self, asked: RankingAsked) -> dict[str, Any]:
        """The response to a request: the best text comes first, and of equals the earlier one.

        Raises:
            ApiError: The queue is full, or the texts are refused.
        """
        texts = [each if isinstance(each, str) else each.text for each in asked.documents]
        scores, count = await self.call(lambda: self._score(asked.query, texts))
        order = np.argsort(-scores, kind="stable").tolist()[: asked.top_n]
        rows: list[dict[str, Any]] = [
            {"index": number, "relevance_score": float(scores[number])} for number in order
        ]
        if asked.return_documents:
            for row in rows:
                row["document"] = {"text": texts[row["index"]]}
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "results": rows, "model": self.name, "usage": usage}

    def _score(self, query: str, texts: list[str]) -> tuple[NDArray[np.float32], int, int]:
        """The scores, and how many texts and tokens of pairs they are of."""
        pairs = self._scorer.pairs(query, texts)
        return self._scorer.score_pairs(pairs), len(texts), sum(len(pair.ids) for pair in pairs)
