"""The state of one text request, from prompt to last token."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.contexts.endpoints import check_endpoint
from heddle.contexts.eos import EOSTracker
from heddle.contexts.matcher import Matcher, TrackedMatcher
from heddle.contexts.numeric import not_negative, text, whole
from heddle.contexts.older_arguments import place_windows, read_older
from heddle.contexts.older_names import OlderNames
from heddle.contexts.outputs import TextGenerationOutput
from heddle.contexts.sampling import SamplingParams
from heddle.contexts.speculative import SpecDecodingState
from heddle.contexts.tokens import TokenArray, TokenBuffer
from heddle.contexts.values import GenerationStatus, LogProbabilities, RequestID

_GREEDY = SamplingParams()


class TextContext(OlderNames):
    """Tokens, status, sampling and grammar of one text request.

    Args:
        max_length: Most tokens that the sequence should have, prompt included: the one that reaches
            it ends the sequence. What comes after an end all the same, as from a device that runs
            steps ahead, is appended and can be rolled back: who schedules looks at `is_done`.
        tokens: The prompt: a `TokenBuffer`, or an int64 array, shape [tokens].
        request_id: Names the request.
        eos_tracker: What ends the sequence; copied, as each sequence has a tail of its own.
        eos_token_ids: With `eos_sequences`, the older way to say it.
        log_probabilities: How many top log probabilities to return for each token; 0: none.
        log_probabilities_echo: Whether to return those of the prompt too.
        ignore_eos: Go on after an end of sequence.
        json_schema: Schema that the output follows; None: free text; empty: any JSON value.
        sampling_params: How tokens are chosen.
        model_name: Which model serves the request.
        status: Where generation stands.
        target_endpoint: Where to route the request: `tcp://host:port` or `ipc://path`.
        external_block_metadata: Opaque, for a cache outside the process.
        cached_prefix_length: Prompt tokens that the prefix cache served; None before admission.
        prompt: The prompt before it was tokenized, a text or its tokens; only stored.
        **older: What older versions took, see `older_arguments`.

    Raises:
        TypeError: A number, a name, the sampling parameters or the matcher is none.
        ValueError: The prompt and the minimum of new tokens do not fit `max_length`; an endpoint of
            another form; both ways to say what ends the sequence; older indices out of order; a
            negative number; a schema that is no text.
    """

    # What `snapshot` holds beside tokens, matcher and the tail of the text.
    _STATE: tuple[str, ...] = (
        "status",
        "_status_log",
        "_log_probabilities_data",
        "_is_initial_prompt",
        "_spec_decoding_state",
        "cached_prefix_length",
        "_cache_seq_id",
        "_committed_idx",
        "_prompt_length",
    )

    def __init__(
        self,
        *,
        max_length: int,
        tokens: TokenBuffer | TokenArray,
        request_id: RequestID | str | None = None,
        eos_tracker: EOSTracker | None = None,
        eos_token_ids: Iterable[int] | None = None,
        eos_sequences: Iterable[Iterable[int]] | None = None,
        log_probabilities: int | None = 0,
        log_probabilities_echo: bool = False,
        ignore_eos: bool = False,
        json_schema: str | None = None,
        sampling_params: SamplingParams | None = None,
        model_name: str = "",
        _matcher: Matcher | None = None,
        status: GenerationStatus = GenerationStatus.ACTIVE,
        _log_probabilities_data: dict[int, LogProbabilities] | None = None,
        _is_initial_prompt: bool = True,
        _draft_offset: int = 0,
        _spec_decoding_state: SpecDecodingState | None = None,
        target_endpoint: str | None = None,
        external_block_metadata: Any = None,
        cached_prefix_length: int | None = None,
        prompt: str | Iterable[int] | None = None,
        **older: Any,
    ) -> None:
        if eos_tracker is None:
            eos_tracker = EOSTracker(eos_token_ids or (), eos_sequences or ())
        elif eos_token_ids is not None or eos_sequences is not None:
            raise ValueError(
                "TextContext: wanted eos_tracker, or eos_token_ids and eos_sequences, got both"
            )
        self.max_length = whole("max_length", max_length)
        self.tokens = TokenBuffer.of(tokens)
        self.request_id = RequestID(request_id)
        self.eos_tracker = eos_tracker.copy()
        self.log_probabilities = (
            not_negative("log_probabilities", log_probabilities) if log_probabilities else 0
        )
        self.log_probabilities_echo = bool(log_probabilities_echo)
        self.ignore_eos = bool(ignore_eos)
        self.json_schema = json_schema
        self.sampling_params = _GREEDY if sampling_params is None else sampling_params
        if not isinstance(self.sampling_params, SamplingParams):
            raise TypeError(
                "TextContext.sampling_params: wanted None or SamplingParams, got "
                f"{sampling_params!r}"
            )
        self.model_name = text("model_name", model_name)
        # An enumeration takes its own members too, but in many times the time of this.
        self.status = status if type(status) is GenerationStatus else GenerationStatus(status)
        self.target_endpoint = target_endpoint
        self.external_block_metadata = external_block_metadata
        if cached_prefix_length is not None:
            cached_prefix_length = not_negative("cached_prefix_length", cached_prefix_length)
        self.cached_prefix_length = cached_prefix_length
        if not (prompt is None or isinstance(prompt, (str, list))):
            prompt = [whole("prompt", token) for token in prompt]
        self._prompt = prompt
        self._prompt_length = self.tokens.prompt_length
        known = _log_probabilities_data or {}
        self._log_probabilities_data = dict(sorted(known.items())) if known else {}
        self._is_initial_prompt = _is_initial_prompt
        self._spec_decoding_state = _spec_decoding_state
        self._matcher: TrackedMatcher | None = None
        self._status_log: list[tuple[int, GenerationStatus]] = []
        self._cache_seq_id: int | None = None
        self._committed_idx = 0
        if older:
            self._take_older(older)
        check_endpoint(target_endpoint)
        if not (json_schema is None or isinstance(json_schema, str)):
            raise ValueError(
                "TextContext.json_schema: wanted None or a text of JSON, as json.dumps makes it, "
                f"got {type(json_schema).__name__}"
            )
        if self.min_tokens + self.tokens.prompt_length > max_length:
            raise ValueError(
                f"TextContext: wanted min_tokens + prompt within max_length {max_length}, "
                f"got {self.min_tokens} + {self.tokens.prompt_length}"
            )
        if _draft_offset:
            self.tokens.apply_processing_offset(_draft_offset)
        if _matcher is not None:
            self.set_matcher(_matcher)

    def _take_older(self, given: dict[str, Any]) -> None:
        older = read_older(type(self).__name__, given)
        place_windows(self.tokens, older)
        self._prompt_length = self.tokens.prompt_length
        self._cache_seq_id = older["_cache_seq_id"]
        self.status = GenerationStatus(older["_status"] or self.status)
        self._committed_idx = older["_committed_idx"]
        if not 0 <= self._committed_idx <= len(self.tokens):
            raise ValueError(
                f"_committed_idx: wanted 0 to {len(self.tokens)}, got {self._committed_idx}"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(request_id={str(self.request_id)!r}, "
            f"status={self.status.value}, max_length={self.max_length}, tokens={self.tokens!r})"
        )

    @property
    def is_done(self) -> bool:
        """Whether generation has ended."""
        return self.status is not GenerationStatus.ACTIVE

    @property
    def is_initial_prompt(self) -> bool:
        """Whether no token has been added since the start, or since `reset`."""
        return self._is_initial_prompt

    @property
    def min_tokens(self) -> int:
        """Tokens to generate before the sequence may end."""
        return self.sampling_params.min_new_tokens

    @property
    def matcher(self) -> Matcher | None:
        """The grammar matcher, if the output is constrained."""
        return None if self._matcher is None else self._matcher.matcher

    def set_matcher(self, matcher: Matcher, consumed: int = 0) -> None:
        """Constrain the tokens from here on by `matcher`, which knows the last `consumed` ones.

        Raises:
            TypeError: It is no matcher.
        """
        if not hasattr(matcher, "try_consume_tokens"):
            raise TypeError(
                "set_matcher: wanted a matcher, as GrammarCompiler.compile makes one, got "
                f"{matcher!r}"
            )
        known = len(self.tokens) - self.tokens.awaits_token
        self._hold(TrackedMatcher(matcher, known, consumed))

    def _hold(self, matcher: TrackedMatcher | None) -> None:
        # Counted last: who sees the count from another thread sees the matcher.
        self._matcher = matcher
        TrackedMatcher.changes += 1

    @property
    def spec_decoding_state(self) -> SpecDecodingState:
        """The state of speculative decoding, made when it is first asked for."""
        if self._spec_decoding_state is None:
            self._spec_decoding_state = SpecDecodingState()
        return self._spec_decoding_state

    def to_generation_output(self) -> TextGenerationOutput:
        """The tokens that the user has not got yet; a future token stays for the next call.

        While the last token at `max_length` is a future token, the output is not final.
        """
        delivered = self.outstanding_completion_tokens()
        status = self.status
        if self.tokens.awaits_token and status is GenerationStatus.MAXIMUM_LENGTH:
            status = GenerationStatus.ACTIVE
        log_probabilities = [entry for _, entry in delivered]
        return TextGenerationOutput(
            self.request_id,
            [token for token, _ in delivered],
            status,
            log_probabilities if any(entry is not None for entry in log_probabilities) else None,
        )

    def reset(self) -> None:
        """Make all tokens the prompt, to be processed anew; a future token is dropped."""
        self.tokens.reset_as_new_prompt(delete_last_generated_token=self.tokens.awaits_token)
        self._is_initial_prompt = True
        self._spec_decoding_state = None
        self._committed_idx = 0
        self._log_probabilities_data = {}
        self._status_log = []

    def compute_num_available_steps(self, max_seq_len: int) -> int:
        """Steps before the sequence has `max_seq_len` tokens; negative when it has more."""
        return max_seq_len - (len(self.tokens) - self.tokens.active_length)

    def cache_content(self, start: int, end: int) -> bytes | None:
        """What tells the cache of positions `start` to `end` from that of others.

        Two contexts have the same cache there where this is the same of all positions up to `end`.
        None: it is nothing that another context can have too.
        """
        return self.tokens[start:end].tobytes()

    def get_min_token_logit_mask(self, num_steps: int) -> list[npt.NDArray[np.int32]]:
        """What must not be chosen at each of the next steps, so that `min_tokens` holds.

        Returns:
            For each step, rows (0, token id), shape [rows, 2].
        """
        tokens = self.tokens
        first = tokens.current_position
        end = tokens.prompt_length + self.min_tokens
        masks = []
        for position in range(first, first + num_steps):
            masked: frozenset[int] = frozenset()
            if tokens.prompt_length <= position < end:
                # Beyond the first step the tokens before are not known.
                masked = (
                    self.eos_tracker.ending_tokens(tokens.generated)
                    if position == len(tokens)
                    else self.eos_tracker.single_ending_tokens()
                )
            masks.append(np.array([(0, t) for t in sorted(masked)], dtype=np.int32).reshape(-1, 2))
        return masks

    def snapshot(self) -> dict[str, Any]:
        """Everything that can change, apart from this context; for `restore`."""
        state = {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}
        tokens = self.tokens.state()
        state["tokens"] = tokens._replace(tokens=tokens.tokens.copy())
        state["matcher"] = None if self._matcher is None else self._matcher.copy()
        state["tail"] = self.eos_tracker.tail
        return state

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to what `snapshot` returned; it can be restored again."""
        for name in self._STATE:
            setattr(self, name, copy.deepcopy(snapshot[name]))
        tokens = snapshot["tokens"]
        self.tokens.restore(tokens._replace(tokens=tokens.tokens.copy()))
        matcher = snapshot["matcher"]
        self._hold(None if matcher is None else matcher.copy())
        self.eos_tracker.tail = snapshot["tail"]
