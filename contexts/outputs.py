"""What a context hands back: text tokens, or generated images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.contexts.values import GenerationStatus, LogProbabilities, RequestID


@dataclass(frozen=True)
class TextGenerationOutput:
    """Tokens that are new to the user.

    Attributes:
        request_id: Whose tokens.
        tokens: Token ids in the order of generation.
        final_status: The status of the request after these tokens.
        log_probabilities: One entry for each token, None where there is none; or None for all.

    Raises:
        ValueError: The log probabilities are not as many as the tokens.
    """

    request_id: RequestID
    tokens: list[int]
    final_status: GenerationStatus
    log_probabilities: list[LogProbabilities | None] | None = None

    def __post_init__(self) -> None:
        if self.log_probabilities is not None and len(self.log_probabilities) != len(self.tokens):
            raise ValueError(
                f"TextGenerationOutput: wanted {len(self.tokens)} log probabilities, one for each "
                f"token, got {len(self.log_probabilities)}"
            )

    @property
    def is_done(self) -> bool:
        """Whether nothing follows."""
        return self.final_status.is_done

    @classmethod
    def merge(cls, outputs: Sequence[TextGenerationOutput]) -> TextGenerationOutput:
        """One output for consecutive outputs of one request; the last status counts.

        Raises:
            ValueError: No outputs, or outputs of several requests.
        """
        if not outputs:
            raise ValueError("TextGenerationOutput.merge: wanted at least one output, got none")
        ids = {output.request_id for output in outputs}
        if len(ids) > 1:
            raise ValueError(
                f"TextGenerationOutput.merge: wanted one request, got {', '.join(sorted(ids))}"
            )
        tokens = [token for output in outputs for token in output.tokens]
        log_probabilities: list[LogProbabilities | None] = []
        for output in outputs:
            log_probabilities += output.log_probabilities or [None] * len(output.tokens)
        return cls(
            outputs[0].request_id,
            tokens,
            outputs[-1].final_status,
            log_probabilities if any(output.log_probabilities for output in outputs) else None,
        )


@dataclass(frozen=True)
class OutputImageContent:
    """One encoded image.

    Attributes:
        data: The image file, base64.
        format: Its format, for example `png`.
    """

    data: str
    format: str


@dataclass(frozen=True)
class GenerationOutput:
    """What a request for images has produced.

    Attributes:
        request_id: Whose output.
        final_status: The status of the request.
        output: One entry for each image.
    """

    request_id: RequestID
    final_status: GenerationStatus
    output: list[OutputImageContent] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether nothing follows."""
        return self.final_status.is_done
