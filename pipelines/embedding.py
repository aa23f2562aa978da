"""Sentences in, vectors out: a tokenizer in front of a compiled sentence embedder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers

from heddle.pipelines.generation.tokenizer import check_text
from heddle.pipelines.generation.tokenizer_files import tokenizer_of
from heddle.pipelines.sentence_settings import UNSAID, Reading
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.runtime import Model

BATCH = 32


class SentenceEmbedder:
    """Embeds texts with a model of `heddle.pipelines.models.embedder.sentence_embedder`.

    Args:
        model: A loaded model with inputs `tokens` and `attention_mask`.
        tokenizer: The path of its `tokenizer.json`.
        reading: How it reads texts; of more tokens than the model takes the rest is cut off, too.
        prompt: What is put before each text.
        dimensions: What embeddings may be cut to; None: to any size.

    Raises:
        InputError: The model is no sentence embedder, or the file is no tokenizer.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Path,
        reading: Reading = UNSAID,
        prompt: str = "",
        dimensions: Collection[int] | None = None,
    ) -> None:
        check_signature("embedder", model, [["tokens", "attention_mask"]], "embeddings")
        self._model = model
        self._tokenizer = read_tokenizer(tokenizer, model, reading)
        self._prompt = prompt
        self._width = int(model.output_metadata[0].shape[-1])
        self._dimensions = dimensions

    def check_dimensions(self, dimensions: int) -> None:
        """Raises InputError where embeddings are not to be cut to so many numbers."""
        if self._dimensions is not None and dimensions not in self._dimensions:
            known = ", ".join(map(str, sorted(self._dimensions)))
            wanted = f"one of {known}" if known else "none, this model's embeddings are whole"
            raise InputError(f"dimensions: wanted {wanted}, got {dimensions}")
        if not 1 <= dimensions <= self._width:
            raise InputError(f"dimensions: wanted 1 to {self._width}, got {dimensions}")

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, with the prompt and special tokens, cut to the maximum.

        Raises:
            InputError: A text cannot be encoded as UTF-8.
        """
        for number, text in enumerate(texts):
            check_text(f"embedder: text {number}", text)
        prompted = [self._prompt + text for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch(prompted)]

    def embed(self, texts: Sequence[str], batch: int = BATCH) -> NDArray[np.float32]:
        """Embeddings, float32 [texts, width], in the order of `texts`.

        Texts of similar length share a batch, so that little is spent on padding.
        """
        return self.embed_tokens(self.tokens(texts), batch)

    def embed_tokens(
        self, rows: Sequence[Sequence[int]], batch: int = BATCH
    ) -> NDArray[np.float32]:
        """As `embed`, from token ids."""
        if not rows:
            raise InputError("embedder: wanted at least one text, got none")
        check_rows(rows)
        return in_batches(self._model, [rows], batch)


def check_rows(rows: Sequence[Sequence[int]]) -> None:
    """Raises InputError for a text without tokens."""
    for number, row in enumerate(rows):
        if len(row) == 0:
            raise InputError(f"embedder: text {number}: wanted at least one token, got none")


def shortened(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """The first numbers of embeddings, of length 1 again (Matryoshka, arXiv:2205.13147)."""
    return normalized(vectors[:, :dimensions])


def normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings of length 1; one of only zeros stays so."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return found


def check_signature(what: str, model: Model, inputs: Sequence[Sequence[str]], output: str) -> None:
    """Raises an InputError unless the model has one of these lists of inputs, and the output."""
    names = [tensor.name for tensor in model.input_metadata]
    if names not in inputs:
        wanted = " or ".join(", ".join(each) for each in inputs)
        raise InputError(
            f"{what}: wanted a model with inputs {wanted}, got {', '.join(names) or 'none'}"
        )
    found = [tensor.name for tensor in model.output_metadata]
    if found != [output]:
        raise InputError(f"{what}: wanted a model with output {output}, got {', '.join(found)}")


def read_tokenizer(path: Path, model: Model, reading: Reading) -> Tokenizer:
    """The tokenizer in the file `path`, which cuts what it reads also to what the model takes.

    Lower case comes in front of all else that is done with texts, as sentence-transformers has it.

    Raises:
        InputError: It is none.
    """
    tokenizer = tokenizer_of(path)
    tokenizer.no_padding()
    if reading.lowercase:
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    longest = {row["name"]: row["maximum"] for row in model.artifact.symbols}["sequence"]
    side = reading.truncation_side or (tokenizer.truncation or {}).get("direction", "right")
    maximum = longest if reading.maximum is None else min(longest, reading.maximum)
    tokenizer.enable_truncation(maximum, direction=side)
    return tokenizer


def in_batches(
    model: Model, columns: Sequence[Sequence[Sequence[int]]], batch: int
) -> NDArray[np.float32]:
    """The model's output for each row, float32 [rows, ...].

    Args:
        model: What takes tokens, their mask, and the further columns.
        columns: For each row its tokens; and, in the same way, what else there is of each token.
        batch: Rows at a time, those of similar length.
    """
    order = sorted(range(len(columns[0])), key=lambda row: len(columns[0][row]))
    parts = []
    for first in range(0, len(order), batch):
        chosen = order[first : first + batch]
        (tokens, mask), *more = (pad([column[row] for row in chosen]) for column in columns)
        (values,) = model.execute(tokens, mask, *(values for values, _ in more))
        parts.append(values.to_numpy())
    in_order = np.concatenate(parts)
    result = np.empty_like(in_order)
    result[order] = in_order
    return result


def pad(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Token ids as an int32 rectangle filled up with 0, and where there is a token."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.zeros(mask.shape, np.int32)
    tokens[mask] = np.concatenate([np.asarray(row, np.int32) for row in rows])
    return tokens, mask
