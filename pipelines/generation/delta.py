"""What is new of a text after a step."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.contexts import GenerationStatus, LogProbabilities, RequestID

REASONS = {
    GenerationStatus.END_OF_SEQUENCE: "stop",
    GenerationStatus.MAXIMUM_LENGTH: "length",
    GenerationStatus.CANCELLED: "cancelled",
}
"""Why a text ended, in the words of the field's interfaces."""


@dataclass(frozen=True)
class TextDelta:
    """What is new of a request after a step.

    Attributes:
        request_id: Whose text.
        text: The new text; the end of a character or of a stop string that may follow is held back.
            Empty where `sampling_params.detokenize` is off.
        tokens: The new tokens.
        finish_reason: None while it goes on; `stop`, `length`, `cancelled` or `error`.
        log_probabilities: One entry for each token, where they were asked for.
        error: Why it could not go on.
        prompt_tokens: Tokens of the request's prompt.
    """

    request_id: RequestID
    text: str
    tokens: list[int]
    finish_reason: str | None = None
    log_probabilities: list[LogProbabilities | None] | None = None
    error: Exception | None = None
    prompt_tokens: int = 0
