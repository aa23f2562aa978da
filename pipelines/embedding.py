"""Sentences in, unit vectors out: a tokenizer in front of a compiled sentence embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from heddle.pipelines.generation_tokenizer import check_text
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.runtime import Model

BATCH = 32


class SentenceEmbedder:
    """Embeds texts with a model made from `heddle.pipelines.models.bert.sentence_embedder`.

    Args:
        model: A loaded model with inputs `tokens` and `attention_mask`.
        tokenizer: The path of its `tokenizer.json`.
        maximum: Tokens of a text that are looked at, special ones among them; the rest is cut off.
            None: as many as the model takes.

    Raises:
        InputError: The model is no sentence embedder, or the file is no tokenizer.
    """

    def __init__(self, model: Model, tokenizer: Path, maximum: int | None = None) -> None:
        names = tuple(tensor.name for tensor in model.input_metadata)
        if names != ("tokens", "attention_mask"):
            raise InputError(
                f"embedder: wanted a model with inputs tokens, attention_mask, "
                f"got {', '.join(names) or 'none'}"
            )
        self._model = model
        self._tokenizer = _read(tokenizer)
        self._tokenizer.no_padding()
        longest = {row["name"]: row["maximum"] for row in model.artifact.symbols}["sequence"]
        self._tokenizer.enable_truncation(longest if maximum is None else maximum)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, with the special tokens, cut to the maximum.

        Raises:
            InputError: A text cannot be encoded as UTF-8.
        """
        for number, text in enumerate(texts):
            check_text(f"embedder: text {number}", text)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, texts: Sequence[str], batch: int = BATCH) -> NDArray[np.float32]:
        """Unit embeddings, float32 [texts, width], in the order of `texts`.

        Texts of similar length share a batch, so that little is spent on padding.
        """
        return self.embed_tokens(self.tokens(texts), batch)

    def embed_tokens(
        self, rows: Sequence[Sequence[int]], batch: int = BATCH
    ) -> NDArray[np.float32]:
        """As `embed`, from token ids."""
        if not rows:
            raise InputError("embedder: wanted at least one text, got none")
        for number, row in enumerate(rows):
            if len(row) == 0:
                raise InputError(f"embedder: text {number}: wanted at least one token, got none")
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        parts = []
        for first in range(0, len(rows), batch):
            chosen = [rows[row] for row in order[first : first + batch]]
            (vectors,) = self._model.execute(*pad(chosen))
            parts.append(vectors.to_numpy())
        sorted_vectors = np.concatenate(parts)
        result = np.empty_like(sorted_vectors)
        result[order] = sorted_vectors
        return result


def _read(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise InputError(f"{path}: wanted a tokenizer.json: {error}") from None


def pad(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Token ids as an int32 rectangle filled up with 0, and where there is a token."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.zeros(mask.shape, np.int32)
    tokens[mask] = np.concatenate([np.asarray(row, np.int32) for row in rows])
    return tokens, mask
