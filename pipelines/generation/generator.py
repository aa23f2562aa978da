"""Text generation: requests in, text out, step by step, many at once.

Requests join and leave between steps (continuous batching, Yu et al., OSDI 2022): a step takes one
token of each sequence that decodes and fills up with chunks of prompts.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from heddle.contexts import GenerationStatus, RequestID, SamplingParams, TextGenerationRequest
from heddle.pipelines.generation.delta import REASONS, TextDelta
from heddle.pipelines.generation.drafts import DraftCounts
from heddle.pipelines.generation.grammar import Grammars
from heddle.pipelines.generation.prompt import Prompts
from heddle.pipelines.generation.schedule import Load, Running, Schedule
from heddle.pipelines.generation.step import Chosen, StepModel
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.generation.turns import Turns
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.contexts.grammar import JSONWhitespace
    from heddle.runtime import Model

CACHE_TOKENS = 8192
"""Tokens for which a cache has room by default."""


class TextGenerator:
    """Generates text with a loaded language model.

    Several threads may use it at once: calls take turns, and a step that one of them runs works on
    the requests of all.

    Args:
        model: A model of `heddle.pipelines.models.decoder.model.language_model`.
        tokenizer: The model's.
        rows: Most sequences of a step.
        tokens: Most tokens of a step; longer prompts are processed in chunks.
        cache_tokens: Tokens for which the cache has room; no sequence can be longer.
        json_whitespace: What may stand between the parts of a JSON value, `none`, `bounded` or
            `any`: see `GrammarCompiler`.
        speculate: Most draft tokens of a sequence that a step checks; 0: none.

    Attributes:
        max_length: Most tokens of a sequence, prompt included.

    Raises:
        InputError: The model is no language model, a number is more than it takes, or the cache
            is more than there is memory.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: TextTokenizer,
        rows: int = 16,
        tokens: int = 512,
        cache_tokens: int = CACHE_TOKENS,
        json_whitespace: JSONWhitespace = "bounded",
        speculate: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self._step = StepModel(model, rows, tokens, cache_tokens, speculate)
        self.max_length = self._step.longest
        self._schedule = Schedule(self._step.blocks, rows, tokens, speculate)
        known = self._step.vocab_size
        self._ends = frozenset(token for token in tokenizer.eos_token_ids if token < known)
        if unknown := tokenizer.eos_token_ids - self._ends:
            warnings.warn(
                f"{tokenizer.place}: eos_token_id: wanted tokens below {known}, got "
                f"{', '.join(map(str, sorted(unknown)))}, with which no text ends",
                stacklevel=2,
            )
        self._grammars = Grammars(tokenizer, self._ends, known, self._step.places, json_whitespace)
        self._prompts = Prompts(tokenizer, known, self._ends, self.max_length)
        self._new: list[TextDelta] = []
        # Whose news waits for who asked, and is not for `step`.
        self._kept: set[RequestID] = set()
        # Requests of streams that were closed, perhaps by the garbage collector within a turn.
        self._closed: deque[RequestID] = deque()
        self._turns = Turns()

    def prompt(self, request: TextGenerationRequest) -> list[int]:
        """The tokens of a request's prompt, or of its messages by the chat template.

        Raises:
            InputError: As `submit`.
        """
        return self._prompts.tokens(request)

    def submit(
        self,
        request: TextGenerationRequest,
        regex: str | None = None,
        prompt: list[int] | None = None,
        hidden: Collection[int] | None = None,
    ) -> RequestID:
        """Queues a request; `step` works on it from then on.

        Args:
            request: Its `response_format` may name a JSON schema.
            regex: A regular expression that the whole output matches.
            prompt: What `prompt` says of the request, where that is known.
            hidden: Tokens that are left out of the text; None: special ones.

        Raises:
            InputError: Another request has its id, whose last delta may still wait; the prompt is
                empty or has no room for a token after it, or for `min_new_tokens`; it, or
                `stop_token_ids`, has tokens that the model does not know, or `logprobs` is more
                than all of them; there is no chat template for messages, or there are tools
                without messages; the grammar is refused; or it has images, or wants an echo.
        """
        return self._submit(request, regex, False, prompt, hidden)

    def _submit(
        self,
        request: TextGenerationRequest,
        regex: str | None,
        keep: bool,
        prompt: list[int] | None = None,
        hidden: Collection[int] | None = None,
    ) -> RequestID:
        """As `submit`; with `keep`, what is new of the request is not for `step`."""
        prompt = self.prompt(request) if prompt is None else prompt
        context = self._prompts.context(request, prompt, regex is not None)
        self._grammars.constrain(context, regex)
        before = prompt if request.messages is None else []  # an answer has a beginning of its own
        running = Running(context, self.tokenizer.stream(before, hidden))
        name = context.request_id
        with self._turn():
            if self._schedule.find(name) or any(delta.request_id == name for delta in self._new):
                raise InputError(f"request {name}: wanted an id of its own, got that of another")
            if context.max_length > len(prompt):
                self._schedule.add(running)
            else:
                context.status = GenerationStatus.MAXIMUM_LENGTH
                self._new.append(TextDelta(name, "", [], "length", prompt_tokens=len(prompt)))
            if keep:
                self._kept.add(name)
        return name

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """This thread's turn; first the requests of closed streams go."""
        with self._turns.take():
            while self._closed:
                self._drop([self._closed.popleft()])
            yield

    def cancel(self, request_id: str) -> None:
        """Ends a request before its time; its last delta comes with the next step."""
        with self._turn():
            self._cancel(request_id)

    def _cancel(self, request_id: str) -> None:
        if running := self._schedule.find(request_id):
            running.context.status = GenerationStatus.CANCELLED
            self._new.append(self._last(running, "cancelled"))

    @property
    def load(self) -> Load:
        """How much there is to do; at once, also while a step runs."""
        return self._schedule.load

    @property
    def drafts(self) -> DraftCounts:
        """How drafts have fared so far; at once, also while a step runs."""
        return self._schedule.drafts

    @property
    def busy(self) -> bool:
        """Whether there is something left to do."""
        with self._turn():
            return bool(self._schedule) or any(d.request_id not in self._kept for d in self._new)

    def step(self) -> list[TextDelta]:
        """Runs the model once; what is new for each request that got a token or ended.

        What is new of an open `stream`, or of a `generate` of another thread, is kept for it.
        """
        with self._turn():
            self._run()
            return self._take(lambda name: name not in self._kept)

    def _advance(self, wanted: Callable[[RequestID], bool]) -> list[TextDelta]:
        """What waits of the requests that are wanted; if nothing does, what a step brings."""
        with self._turn():
            if taken := self._take(wanted):
                return taken
            self._run()
            return self._take(wanted)

    def _run(self) -> None:
        """Runs the model once; what is new waits."""
        chosen = self._schedule.next_step()
        if not chosen:
            return
        contexts = [running.context for running in chosen]
        stepped = self._step.run(contexts, self._grammars.masks, [r.draft for r in chosen])
        for row, running in enumerate(chosen):
            if row in stepped.refused:
                self._new.append(self._last(running, "error", stepped.refused[row]))
                continue
            if running.context.tokens.has_outstanding_generated_tokens:
                self._new.append(self._delta(running, stepped.following[row]))
            self._schedule.settle(running, stepped.checked[row], len(stepped.following[row]))

    def _take(self, wanted: Callable[[RequestID], bool]) -> list[TextDelta]:
        """What waits of the requests that are wanted; nothing is kept of those that end."""
        taken = [delta for delta in self._new if wanted(delta.request_id)]
        self._new = [delta for delta in self._new if not wanted(delta.request_id)]
        self._kept -= {delta.request_id for delta in taken if delta.finish_reason}
        return taken

    def _last(self, running: Running, reason: str, error: Exception | None = None) -> TextDelta:
        """Ends a request, with the text that was held back."""
        self._schedule.leave(running)
        text = running.held.push(running.text.push((), final=True), 0)
        context = running.context
        shown = text if context.sampling_params.detokenize else ""
        length = context.tokens.prompt_length
        return TextDelta(context.request_id, shown, [], reason, None, error, length)

    def stream(
        self, request: TextGenerationRequest, regex: str | None = None
    ) -> Iterator[TextDelta]:
        """Submits a request and yields what is new until it ends.

        Other requests go on meanwhile; what is new of them comes with the next `step`. A stream
        that is closed before its end cancels its request.
        """
        wanted = self._submit(request, regex, keep=True)
        ended = False
        try:
            while not ended:
                deltas = self._advance(wanted.__eq__)
                ended = any(delta.finish_reason for delta in deltas)
                yield from deltas
        finally:
            if not ended:
                self._closed.append(wanted)

    def generate(
        self, prompts: Iterable[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[str]:
        """The text that follows each prompt, all side by side.

        Raises:
            InputError: As `submit`; or one of them could not go on. Either ends the others too.
        """
        if isinstance(prompts, str):
            raise InputError(f"generate: wanted a list of prompts, got the text {prompts!r}")
        params = params or SamplingParams()
        texts: dict[RequestID, str] = {}
        left: set[RequestID] = set()
        try:
            for index, prompt in enumerate(prompts):
                request = TextGenerationRequest(
                    RequestID(), index, "", prompt, sampling_params=params
                )
                texts[self._submit(request, None, keep=True)] = ""
            left = set(texts)
            while left:
                for delta in self._advance(left.__contains__):
                    if delta.error:
                        raise InputError(
                            f"request {delta.request_id}: {delta.error}"
                        ) from delta.error
                    texts[delta.request_id] += delta.text
                    if delta.finish_reason:
                        left.discard(delta.request_id)
        finally:
            with self._turn():
                self._drop(texts)
        return list(texts.values())

    def _drop(self, requests: Collection[RequestID]) -> None:
        """Ends those of `requests` that have not ended, without a word."""
        for name in requests:
            self._cancel(name)
        self._new = [delta for delta in self._new if delta.request_id not in requests]
        self._kept.difference_update(requests)

    def _delta(self, running: Running, following: Sequence[Chosen]) -> TextDelta:
        """What is new with the token that a request has got, and with those that follow it."""
        context = running.context
        text = running.push(self._ends)
        for token, entry in following:
            if context.is_done:
                break
            try:
                context.update(token, entry)
            except AssertionError:  # which is for a step of its own to say
                break
            text += running.push(self._ends)
        output = context.to_generation_output()
        return TextDelta(
            context.request_id,
            text if context.sampling_params.detokenize else "",
            output.tokens,
            REASONS.get(context.status),
            output.log_probabilities,
            prompt_tokens=context.tokens.prompt_length,
        )
