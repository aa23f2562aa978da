"""What users ask for: text or audio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from heddle.contexts.messages import (
    TokenGeneratorRequestMessage,
    TokenGeneratorRequestTool,
    TokenGeneratorResponseFormat,
)
from heddle.contexts.numeric import is_whole
from heddle.contexts.sampling import SamplingParams
from heddle.contexts.values import RequestID

# Longest text for audio, characters.
MAX_AUDIO_INPUT = 4096


def _check_common(kind: str, request_id: str, index: int, model: str) -> None:
    if not request_id:
        raise ValueError(f"{kind}: wanted an id, got an empty one")
    if not (isinstance(request_id, str) and isinstance(model, str)):
        raise ValueError(
            f"{kind}: wanted id and model name as texts, got {request_id!r} and {model!r}"
        )
    if not is_whole(index) or index < 0:
        raise ValueError(f"{kind}: wanted an index of at least 0, got {index!r}")


def _listed(tokens: Any) -> Any:
    """Tokens as they travel: an array as a list. Whether they are any is the tokenizer's to say."""
    return tokens.tolist() if hasattr(tokens, "tolist") else tokens


@dataclass(frozen=True)
class TextGenerationRequest:
    """A request for text. Messages, tools and the response format may be given as dicts.

    Attributes:
        id: Names the request.
        index: Its place within a batch.
        model_name: Which model shall answer.
        prompt: Text or token ids; instead of `messages`.
        messages: A conversation; instead of `prompt`.
        images: One file for each image of the messages.
        tools: What the model may call.
        response_format: What the output shall look like.
        timestamp_ns: When the request came, nanoseconds.
        request_path: Where it came in.
        logprobs: How many top log probabilities to return for each token.
        echo: Return the prompt too.
        stop: Texts that end the output.
        chat_template_options: For the chat template.
        sampling_params: How tokens are chosen.

    Raises:
        ValueError: Both or none of prompt and messages; images that are not as many as the messages
            name; an empty id, or one that is no text; a negative number.
    """

    id: str
    index: int
    model_name: str
    prompt: str | Sequence[int] | None = None
    messages: list[TokenGeneratorRequestMessage] | None = None
    images: list[bytes] | None = None
    tools: list[TokenGeneratorRequestTool] | None = None
    response_format: TokenGeneratorResponseFormat | None = None
    timestamp_ns: int = 0
    request_path: str = "/"
    logprobs: int = 0
    echo: bool = False
    stop: str | list[str] | None = None
    chat_template_options: dict[str, Any] | None = None
    sampling_params: SamplingParams = SamplingParams()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        _check_common("TextGenerationRequest", self.id, self.index, self.model_name)
        object.__setattr__(self, "prompt", _listed(self.prompt))
        if (self.prompt is None) == (self.messages is None):
            found = "neither" if self.prompt is None else "both"
            raise ValueError(f"TextGenerationRequest: wanted prompt or messages, got {found}")
        if not is_whole(self.logprobs) or self.logprobs < 0:
            raise ValueError(
                "TextGenerationRequest: wanted logprobs as an integer of at least 0, got "
                f"{self.logprobs!r}"
            )
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not isinstance(stops, (list, tuple)) or not all(isinstance(s, str) for s in stops):
            raise ValueError(
                f"TextGenerationRequest: wanted stop as a text or a list of texts, got {stops!r}"
            )
        if self.messages is not None:
            messages = [TokenGeneratorRequestMessage.of(message) for message in self.messages]
            object.__setattr__(self, "messages", messages)
        if self.tools is not None:
            tools = [TokenGeneratorRequestTool.of(tool) for tool in self.tools]
            object.__setattr__(self, "tools", tools)
        if self.response_format is not None:
            response_format = TokenGeneratorResponseFormat.of(self.response_format)
            object.__setattr__(self, "response_format", response_format)
        if self.messages is not None:
            named = sum(message.image_count for message in self.messages)
            given = len(self.images or ())
            if named != given:
                raise ValueError(
                    f"TextGenerationRequest: wanted {named} images, as the messages name, got "
                    f"{given}"
                )

    @property
    def request_id(self) -> RequestID:
        """`id` under its newer name."""
        return RequestID(self.id)


TokenGeneratorRequest = TextGenerationRequest


@dataclass(frozen=True)
class AudioGenerationRequest:
    """A request for audio.

    Attributes:
        id: Names the request.
        index: Its place within a batch.
        model: Which model shall answer.
        input: The text to speak, at most 4096 characters.
        audio_prompt_tokens: Speech tokens of the voice to imitate.
        audio_prompt_transcription: What that voice says.
        sampling_params: How speech tokens are chosen.
        _assistant_message_override: Replaces the message that starts the answer.
        prompt: Text or token ids for the model as they are, instead of what `input` would become.

    Raises:
        ValueError: Neither `prompt` nor `input`; an input that is too long; an empty id; a negative
            index.
    """

    id: str
    index: int
    model: str
    input: str | None = None
    audio_prompt_tokens: list[int] = field(default_factory=list)
    audio_prompt_transcription: str = ""
    sampling_params: SamplingParams = SamplingParams()  # noqa: RUF009 (frozen)
    _assistant_message_override: str | None = None
    prompt: list[int] | str | None = None

    def __post_init__(self) -> None:
        _check_common("AudioGenerationRequest", self.id, self.index, self.model)
        for name in ("prompt", "audio_prompt_tokens"):
            object.__setattr__(self, name, _listed(getattr(self, name)))
        if self.prompt is None and self.input is None:
            raise ValueError("AudioGenerationRequest: wanted prompt or input, got neither")
        if self.input is not None and len(self.input) > MAX_AUDIO_INPUT:
            raise ValueError(
                f"AudioGenerationRequest: wanted an input of at most {MAX_AUDIO_INPUT} characters, "
                f"got {len(self.input)}"
            )
