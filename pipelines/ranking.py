"""A query and texts in, a score of each text out: a tokenizer in front of a compiled scorer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.embedding import BATCH, check_signature, in_batches, read_tokenizer
from heddle.pipelines.generation.tokenizer import check_text
from heddle.pipelines.sentence_settings import UNSAID, Reading
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Encoding

    from heddle.runtime import Model

INPUTS = ["tokens", "attention_mask"]


class PairScorer:
    """Scores texts with a model of `heddle.pipelines.models.scorer.pair_scorer`.

    Args:
        model: The loaded model.
        tokenizer: The path of its `tokenizer.json`.
        reading: How it reads them; what is cut off is of the longer text, at most down to the
            tokens that the model takes.

    Raises:
        InputError: The model is no scorer of pairs, or the file is no tokenizer.
    """

    def __init__(self, model: Model, tokenizer: Path, reading: Reading = UNSAID) -> None:
        typed = [*INPUTS, "token_types"]
        check_signature("scorer", model, [INPUTS, typed], "scores")
        self._model = model
        self._tokenizer = read_tokenizer(tokenizer, model, reading)
        self._typed = [tensor.name for tensor in model.input_metadata] == typed

    def score(self, query: str, texts: Sequence[str], batch: int = BATCH) -> NDArray[np.float32]:
        """How well each text goes with the query, float32 [texts]; the higher, the better.

        Raises:
            InputError: There is no text, or one cannot be encoded as UTF-8.
        """
        return self.score_pairs(self.pairs(query, texts), batch)

    def pairs(self, query: str, texts: Sequence[str]) -> list[Encoding]:
        """The tokens of each text behind those of the query, cut to the maximum.

        Raises:
            InputError: As `score`.
        """
        if not texts:
            raise InputError("scorer: wanted at least one text, got none")
        check_text("scorer: query", query)
        for number, text in enumerate(texts):
            check_text(f"scorer: text {number}", text)
        found: list[Encoding] = self._tokenizer.encode_batch([(query, text) for text in texts])
        return found

    def score_pairs(self, pairs: Sequence[Encoding], batch: int = BATCH) -> NDArray[np.float32]:
        """As `score`, from what `pairs` gave."""
        columns = [[pair.ids for pair in pairs]]
        if self._typed:
            columns.append([pair.type_ids for pair in pairs])
        return in_batches(self._model, columns, batch)
