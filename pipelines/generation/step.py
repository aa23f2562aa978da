"""One step of a language model: contexts in, tokens out, with the cache in between.

The model is one of `heddle.pipelines.models.decoder.model.language_model`; what it takes beside the
inputs of a `StepBatch` is made here and in `places`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.contexts import CacheBlocks, LogProbabilities, StepBatch, TextContext
from heddle.contexts.step_memory import step_memory
from heddle.pipelines.generation.drafts import right
from heddle.pipelines.generation.inputs import INPUTS, check_cache, is_language_model
from heddle.pipelines.generation.places import allowed, log_probabilities, seen
from heddle.runtime import Buffer
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.contexts import GrammarMasks
    from heddle.runtime import Model


Chosen = tuple[int, LogProbabilities | None]
"""A token, and its log probabilities where they are wanted."""


@dataclass(frozen=True)
class Stepped:
    """What came of a step.

    Attributes:
        refused: As `StepBatch.commit` returns it.
        checked: How many draft tokens of each context were checked: the others break its grammar.
        following: What comes behind the token that each context has got, one for each token of its
            draft that is right. It is for `TextContext.update`, as long as the text goes on.
    """

    refused: dict[int, Exception]
    checked: list[int]
    following: list[list[Chosen]]


class StepModel:
    """Runs steps of a language model on contexts, whose windows it takes as they are.

    Args:
        model: A loaded model.
        rows: Most contexts of a step.
        tokens: Most tokens of a step.
        cache_tokens: Tokens for which the cache has room.
        speculate: Most draft tokens of a context.

    Attributes:
        places: Most tokens of a step whose next one is wanted.
        vocab_size: How many tokens there are to choose from.
        longest: Most tokens of a sequence.
        blocks: Who has which blocks of the cache.

    Raises:
        InputError: The model is no language model, a number is more than it takes, or the cache
            is more than there is memory.
    """

    def __init__(
        self, model: Model, rows: int, tokens: int, cache_tokens: int, speculate: int = 0
    ) -> None:
        if not is_language_model(model.artifact):
            names = [tensor.name for tensor in model.input_metadata]
            raise InputError(
                f"language model: wanted a model with inputs {', '.join(INPUTS)} and caches, "
                f"got {', '.join(names) or 'none'}"
            )
        most = {row["name"]: row["maximum"] for row in model.artifact.symbols}
        for name, value in (("rows", rows), ("tokens", tokens)):
            if not 1 <= value <= most[name]:
                raise InputError(f"{name}: wanted 1 to {most[name]}, got {value}")
        if tokens < rows:  # some rows would wait for others to end
            raise InputError(f"tokens: wanted one for each of {rows} rows at least, got {tokens}")
        if not 0 <= speculate < tokens:
            raise InputError(
                f"speculate: wanted 0 to {tokens - 1} draft tokens, beside one of {tokens} of a "
                f"step, got {speculate}"
            )
        caches = model.input_metadata[len(INPUTS) :]
        _, block_size, *_ = caches[0].shape
        count = cache_tokens // int(block_size)
        if not 1 <= count <= most["cache_blocks"]:
            raise InputError(
                f"cache_tokens: wanted {block_size} to {most['cache_blocks'] * int(block_size)}, "
                f"got {cache_tokens}"
            )
        remedy = "give fewer cache_tokens (--cache-tokens)"
        check_cache(model.artifact, count, model.device, f"{cache_tokens} tokens", remedy)
        self._model = model
        self.blocks = CacheBlocks(count, int(block_size))
        self.vocab_size = int(model.output_metadata[1].shape[1])
        self.longest = min(most["row_blocks"], count) * int(block_size)
        self.rows, self.tokens = rows, tokens
        width = self.blocks.needed(self.longest)
        self._batch = StepBatch(rows, tokens, self.longest, width, model.device)
        self._caches = [
            Buffer(cache.dtype, (count, *map(int, cache.shape[1:])), model.device)
            for cache in caches
        ]
        self.places = places = min(rows * (1 + speculate), tokens)
        results = {"tokens": ("int64", (places,)), "logits": ("float32", (places, self.vocab_size))}
        self._results = step_memory(results, model.device, stream=self._batch.stream).arrays
        self._all = np.full((places, -(-self.vocab_size // 32)), -1, np.int32)
        self._written: list[list[int]] = []

    def run(
        self,
        contexts: Sequence[TextContext],
        masks: GrammarMasks | None = None,
        drafts: Sequence[Sequence[int]] = (),
    ) -> Stepped:
        """Processes the windows of `contexts`, whose blocks are reserved, and hands out tokens.

        A context whose window is chunked gets no token: its window moves on.

        Args:
            contexts: Those of the step.
            masks: Of their grammars.
            drafts: For each context, what may come next, where its window is whole; there are
                blocks for that, too. Empty: no context has any.
        """
        rows = [r for r, context in enumerate(contexts) if not context.tokens.actively_chunked]
        chosen = [contexts[row] for row in rows]
        proposed = [drafts[row] if drafts else () for row in rows]
        bitmask, checked = allowed(chosen, proposed, masks, self._all)
        behind: list[Sequence[int]] = [()] * len(contexts)  # the window of each context
        for row, draft in zip(rows, checked, strict=True):
            behind[row] = draft
        self._write(contexts, behind)
        sizes = [c.tokens.active_length + len(d) for c, d in zip(contexts, behind, strict=True)]
        owners = [row for row in rows for _ in range(1 + len(behind[row]))]
        back = [number for row in rows for number in range(1 + len(behind[row]), 0, -1)]
        places = np.cumsum(sizes)[owners] - np.array(back, np.int64)
        inputs = self._batch.inputs
        alike = owners == list(range(len(contexts)))  # a place for each row
        outputs = [self._results[name][: len(owners)] for name in ("tokens", "logits")]
        tokens = np.zeros(len(contexts), np.int64)
        entries: list[LogProbabilities | None] = [None] * len(contexts)
        following: list[list[Chosen]] = [[] for _ in contexts]
        # CuPy's current stream is the one on which it picks rows and copies to the host.
        with self._batch.stream or nullcontext():
            self._model.execute(
                *(inputs[n] for n in ("tokens", "positions", "row_offsets", "lengths", "blocks")),
                places,
                *(
                    inputs[name] if alike else inputs[name][owners]
                    for name in ("sampling", "sampling_integers")
                ),
                *seen(chosen, checked),
                bitmask,
                *self._caches,
                out=[*outputs, *self._caches],
                stream=self._batch.stream,
            )
            drawn = _host(outputs[0]).tolist()
            first = 0
            for row, context, draft in zip(rows, chosen, checked, strict=True):
                last = first + right(draft, drawn[first : first + 1 + len(draft)])
                found = [
                    (drawn[at], _entry(context, outputs[1][at], drawn[at]))
                    for at in range(first, last + 1)
                ]
                (tokens[row], entries[row]), *following[row] = found
                first += 1 + len(draft)
        refused = self._batch.commit(contexts, tokens, entries)
        return Stepped(refused, [len(draft) for draft in behind], following)

    def _write(self, contexts: Sequence[TextContext], drafts: Sequence[Sequence[int]]) -> None:
        """Writes the inputs, and what is new in the tables of blocks, and sends them off."""
        new = set(self._batch.write(contexts, drafts))
        tables = [self.blocks.blocks(context) for context in contexts]
        for row, table in enumerate(tables):
            # A context that had to give its blocks back may come again to the same row.
            written = [] if row in new else self._written[row]
            known = len(written) if table[: len(written)] == written else 0
            if known < len(table):
                self._batch.write_blocks(row, table[known:], known)
        self._written = tables
        self._batch.send()


def _entry(context: TextContext, logits: Any, token: int) -> LogProbabilities | None:
    """The log probabilities that `context` wants of a token, float32 [vocab_size] its logits."""
    count = context.log_probabilities
    return log_probabilities(_host(logits), token, count) if count else None


def _host(array: Any) -> NDArray[Any]:
    """An array of a CPU as it is, one of a GPU as a copy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.get())
