"""Small values that every kind of context shares: status, request id, log probabilities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class GenerationStatus(str, Enum):
    """Whether a request still generates, and if not, why it ended."""

    ACTIVE = "active"
    END_OF_SEQUENCE = "end_of_sequence"
    MAXIMUM_LENGTH = "maximum_length"
    CANCELLED = "cancelled"

    @property
    def is_done(self) -> bool:
        """Whether generation has ended, for whichever reason."""
        return self is not GenerationStatus.ACTIVE


TextGenerationStatus = GenerationStatus


class RequestID(str):
    """The identifier of a request: a string, a fresh random one by default."""

    __slots__ = ()

    def __new__(cls, value: str | None = None) -> RequestID:
        """`value`, or 32 random hexadecimal digits."""
        if value is None:
            value = os.urandom(16).hex()
        if not value:
            raise ValueError("RequestID: wanted a non-empty string, got an empty one")
        return str.__new__(cls, value)

    @property
    def value(self) -> str:
        """The identifier as a plain string."""
        return str.__str__(self)


@dataclass(frozen=True)
class LogProbabilities:
    """Log probabilities of one output step; two are equal when all their elements are.

    Attributes:
        token_log_probabilities: The log probability of each token of the step.
        top_log_probabilities: For each of these tokens, the best candidates and their values.
    """

    token_log_probabilities: list[float]
    top_log_probabilities: list[dict[int, float]]

    def __init__(
        self,
        token_log_probabilities: Iterable[float],
        top_log_probabilities: Iterable[Mapping[int, float]],
    ) -> None:
        tokens = [float(value) for value in token_log_probabilities]
        tops = [{int(k): float(v) for k, v in top.items()} for top in top_log_probabilities]
        object.__setattr__(self, "token_log_probabilities", tokens)
        object.__setattr__(self, "top_log_probabilities", tops)
        self.__post_init__()

    def __post_init__(self) -> None:
        tokens, tops = self.token_log_probabilities, self.top_log_probabilities
        if len(tokens) != len(tops):
            raise ValueError(
                "LogProbabilities: wanted one dict of top log probabilities for each token, "
                f"got {len(tops)} for {len(tokens)} tokens"
            )
