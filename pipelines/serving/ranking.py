"""`POST /v1/rerank`: a scorer of pairs behind the wire format that Cohere and Jina share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.ranking import PairScorer
from heddle.pipelines.serving.answer import Receive
from heddle.pipelines.serving.calls import BatchEngine
from heddle.pipelines.serving.metrics import ModelMetrics
from heddle.pipelines.serving.records import RankingAsked

if TYPE_CHECKING:
    from tokenizers import Encoding


class RankingEngine(BatchEngine["Encoding"]):
    """Scores the texts of requests; nobody else uses `scorer`."""

    kind = "a cross-encoder"

    def __init__(self, name: str, scorer: PairScorer, most: int, metrics: ModelMetrics) -> None:
        super().__init__(name, most, metrics)
        self._scorer = scorer

    async def answer(self, asked: RankingAsked, receive: Receive) -> dict[str, Any]:
        """The response to a request: the best text comes first, and of equals the earlier one.

        Its client is told of by `receive`.

        Raises:
            ApiError: The queue is full, or the texts are refused.
        """
        texts = [each if isinstance(each, str) else each.text for each in asked.documents]
        scores, count = await self.call(lambda: self._scorer.pairs(asked.query, texts), receive)
        order = np.argsort(-scores, kind="stable").tolist()[: asked.top_n]
        rows: list[dict[str, Any]] = [
            {"index": number, "relevance_score": float(scores[number])} for number in order
        ]
        if asked.return_documents:
            for row in rows:
                row["document"] = {"text": texts[row["index"]]}
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "results": rows, "model": self.name, "usage": usage}

    def length(self, row: Encoding) -> int:
        """Tokens of a pair."""
        return len(row.ids)

    def compute(self, rows: Sequence[Encoding]) -> NDArray[np.float32]:
        """The scores of pairs."""
        return self._scorer.score_pairs(rows)
