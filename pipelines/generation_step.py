"""One step of a language model: contexts in, tokens out, with the cache in between.

The model is one of `heddle.pipelines.models.decoder.language_model`; what it takes beside the
inputs of a `StepBatch` is made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.contexts import CacheBlocks, LogProbabilities, StepBatch, TextContext
from heddle.contexts.step_memory import step_memory
from heddle.pipelines.generation_inputs import INPUTS, check_cache, is_language_model
from heddle.runtime import Buffer
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.contexts import GrammarMasks
    from heddle.runtime import Model


class StepModel:
    """Runs steps of a language model on contexts, whose windows it takes as they are.

    Args:
        model: A loaded model.
        rows: Most contexts of a step.
        tokens: Most tokens of a step.
        cache_tokens: Tokens for which the cache has room.

    Attributes:
        vocab_size: How many tokens there are to choose from.
        longest: Most tokens of a sequence.
        blocks: Who has which blocks of the cache.

    Raises:
        InputError: The model is no language model, a number is more than it takes, or the cache
            is more than there is memory.
    """

    def __init__(self, model: Model, rows: int, tokens: int, cache_tokens: int) -> None:
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
        results = {"tokens": ("int64", (rows,)), "logits": ("float32", (rows, self.vocab_size))}
        self._results = step_memory(results, model.device, stream=self._batch.stream).arrays
        self._all = np.full((rows, -(-self.vocab_size // 32)), -1, np.int32)
        self._written: list[list[int]] = []

    def run(
        self, contexts: Sequence[TextContext], masks: GrammarMasks | None = None
    ) -> dict[int, Exception]:
        """Processes the windows of `contexts`, whose blocks are reserved, and hands out tokens.

        A context whose window is chunked gets no token: its window moves on.

        Returns:
            As `StepBatch.commit`.
        """
        new = set(self._batch.write(contexts))
        tables = [self.blocks.blocks(context) for context in contexts]
        for row, table in enumerate(tables):
            # A context that had to give its blocks back may come again to the same row.
            written = [] if row in new else self._written[row]
            known = len(written) if table[: len(written)] == written else 0
            if known < len(table):
                self._batch.write_blocks(row, table[known:], known)
        self._written = tables
        self._batch.send()
        rows = [r for r, context in enumerate(contexts) if not context.tokens.actively_chunked]
        chosen = [contexts[row] for row in rows]
        inputs = self._batch.inputs
        ends = np.cumsum([context.tokens.active_length for context in contexts])
        outputs = [self._results[name][: len(rows)] for name in ("tokens", "logits")]
        tokens = np.zeros(len(contexts), np.int64)
        entries: list[LogProbabilities | None] = [None] * len(contexts)
        # CuPy's current stream is the one on which it picks rows and copies to the host.
        with self._batch.stream or nullcontext():
            self._model.execute(
                *(inputs[n] for n in ("tokens", "positions", "row_offsets", "lengths", "blocks")),
                (ends - 1)[rows],
                *(
                    inputs[name] if len(rows) == len(contexts) else inputs[name][rows]
                    for name in ("sampling", "sampling_integers")
                ),
                *seen(chosen),
                self._allowed(chosen, masks),
                *self._caches,
                out=[*outputs, *self._caches],
                stream=self._batch.stream,
            )
            tokens[rows] = _host(outputs[0])
            for number, row in enumerate(rows):
                if contexts[row].log_probabilities:
                    entries[row] = log_probabilities(
                        _host(outputs[1][number]), int(tokens[row]), contexts[row].log_probabilities
                    )
        refused = self._batch.commit(contexts, tokens, entries)
        for context in contexts:
            self.blocks.remember(context)
        return refused

    def _allowed(
        self, contexts: Sequence[TextContext], masks: GrammarMasks | None
    ) -> NDArray[np.int32]:
        """Which tokens may come next: those of the grammars, and no end before `min_tokens`.

        A grammar that lets nothing but an end follow has its way.
        """
        allowed = self._all[: len(contexts)]
        if masks is not None and any(context.matcher is not None for context in contexts):
            masks.fill(contexts)
            allowed = masks.bitmask[: len(contexts)]
        short = [
            (row, context)
            for row, context in enumerate(contexts)
            if context.tokens.generated_length < context.min_tokens
        ]
        if short:
            allowed = allowed.copy()
        for row, context in short:
            for _, token in context.get_min_token_logit_mask(1)[0].tolist():
                allowed.view(np.uint32)[row, token // 32] &= np.uint32(
                    ~(1 << token % 32) & 0xFFFFFFFF
                )
            if masks is not None and not allowed[row].any():
                allowed[row] = masks.bitmask[row]
        return allowed


def seen(contexts: Sequence[TextContext]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `ops.penalize` takes: the tokens of each context that has penalties, and offsets."""
    parts = [np.empty((0, 2), np.int64)]
    offsets = np.zeros(len(contexts) + 1, np.int64)
    for row, context in enumerate(contexts):
        offsets[row + 1] = offsets[row]
        params = context.sampling_params
        if params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1:
            tokens, places = np.unique(context.tokens.all, return_inverse=True)
            new = places[context.tokens.prompt_length :]
            parts.append(np.stack([tokens, np.bincount(new, minlength=len(tokens))], axis=1))
            offsets[row + 1] += len(tokens)
    return np.concatenate(parts), offsets


def log_probabilities(logits: NDArray[np.float32], token: int, count: int) -> LogProbabilities:
    """The log probability of `token` by softmax, and those of the `count` likeliest tokens."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    best = np.argpartition(wide, -count)[-count:] if count < len(wide) else np.arange(len(wide))
    ordered = sorted(best.tolist(), key=lambda t: (-wide[t], t))
    return LogProbabilities([wide[token]], [{t: wide[t] for t in ordered}])


def _host(array: Any) -> NDArray[Any]:
    """An array of a CPU as it is, one of a GPU as a copy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.get())
