"""How the next token is chosen: the sampling parameters of a request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class SamplingParams:
    """The sampling parameters of one request; the defaults choose the likeliest token.

    Attributes:
        top_k: Only the k likeliest tokens are candidates; -1: no limit.
        top_p: Only the likeliest tokens whose probabilities reach this sum, in (0, 1].
        min_p: Only tokens at least this likely relative to the likeliest one, in [0, 1].
        temperature: What logits are divided by; 0 takes the likeliest token.
        frequency_penalty: Subtracted from a token's logit for each time it came, in [-2, 2].
        presence_penalty: Subtracted from a token's logit once it came, in [-2, 2].
        repetition_penalty: What a token's logit is divided by once it came, above 0.
        max_new_tokens: Most tokens to generate; None: up to the context's `max_length`.
        min_new_tokens: Tokens before the sequence may end.
        ignore_eos: Go on after an end-of-sequence token.
        stop: Texts that end the sequence.
        stop_token_ids: Tokens that end the sequence.
        detokenize: Whether the output is turned into text.
        seed: Seed of the random numbers.

    Raises:
        ValueError: A value is outside its range.
    """

    top_k: int = 1
    top_p: float = 1
    min_p: float = 0.0
    temperature: float = 1
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    ignore_eos: bool = False
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    detokenize: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        self._check(self.top_k == -1 or self.top_k >= 1, "top_k", "-1 or at least 1")
        self._check(0 < self.top_p <= 1, "top_p", "a number in (0, 1]")
        self._check(0 <= self.min_p <= 1, "min_p", "a number in [0, 1]")
        self._check(0 <= self.temperature < math.inf, "temperature", "a finite number, at least 0")
        self._check(-2 <= self.frequency_penalty <= 2, "frequency_penalty", "a number in [-2, 2]")
        self._check(-2 <= self.presence_penalty <= 2, "presence_penalty", "a number in [-2, 2]")
        self._check(
            0 < self.repetition_penalty < math.inf, "repetition_penalty", "a finite number above 0"
        )
        self._check(
            self.max_new_tokens is None or self.max_new_tokens >= 0,
            "max_new_tokens",
            "None or at least 0",
        )
        self._check(self.min_new_tokens >= 0, "min_new_tokens", "at least 0")

    def _check(self, holds: bool, name: str, wanted: str) -> None:
        if not holds:
            raise ValueError(f"SamplingParams.{name}: wanted {wanted}, got {getattr(self, name)}")

    @classmethod
    def from_input_and_generation_config(
        cls,
        input_params: Mapping[str, Any] | None = None,
        generation_config: Mapping[str, Any] | None = None,
    ) -> SamplingParams:
        """The user's values over the model's generation config over the defaults of this class.

        None stands for a value that is not given. Of the generation config, only the names of this
        class count: it describes much more than sampling.

        Raises:
            ValueError: The user's parameters hold an unknown name, or a value is out of range.
        """
        names = {field.name for field in fields(cls)}
        unknown = sorted(set(input_params or {}) - names)
        if unknown:
            raise ValueError(
                f"SamplingParams: wanted names among {sorted(names)}, got {', '.join(unknown)}"
            )
        values: dict[str, Any] = {}
        for source in (generation_config or {}, input_params or {}):
            values.update({k: v for k, v in source.items() if k in names and v is not None})
        return cls(**values)
