"""How the next token is chosen: the sampling parameters of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from heddle.contexts.numeric import is_number, is_whole

INT64 = 1 << 63

# Name, least, most, what was wanted. Kernels compute in float32: a logit divided by a number from
# 1e-30 to 1e30 is finite there.
NUMBERS = (
    ("top_p", 5e-324, 1, "a number in (0, 1]"),
    ("min_p", 0, 1, "a number in [0, 1]"),
    ("temperature", 0, 1e30, "a finite number, at least 0 and at most 1e30"),
    ("frequency_penalty", -2, 2, "a number in [-2, 2]"),
    ("presence_penalty", -2, 2, "a number in [-2, 2]"),
    ("repetition_penalty", 1e-30, 1e30, "a finite number above 0, from 1e-30 to 1e30"),
)
INTEGERS = (
    ("top_k", -1, "an integer, -1 or at least 1"),
    ("min_new_tokens", 0, "an integer, at least 0"),
    ("seed", -INT64, "a signed integer of 64 bits"),
)


@dataclass(frozen=True)
class SamplingParams:
    """The sampling parameters of one request; the defaults choose the likeliest token.

    Attributes:
        top_k: Only the k likeliest tokens are candidates; -1: no limit.
        top_p: Only the likeliest tokens whose probabilities reach this sum, in (0, 1].
        min_p: Only tokens at least this likely relative to the likeliest one, in [0, 1].
        temperature: What logits are divided by, up to 1e30; 0 takes the likeliest token.
        frequency_penalty: Subtracted from a token's logit for each time it came, in [-2, 2].
        presence_penalty: Subtracted from a token's logit once it came, in [-2, 2].
        repetition_penalty: What a token's logit is divided by once it came, in [1e-30, 1e30].
        max_new_tokens: Most tokens to generate; None: up to the context's `max_length`.
        min_new_tokens: Tokens before the sequence may end; a grammar that lets nothing but an end
            follow has its way.
        ignore_eos: Go on after an end-of-sequence token of the model.
        stop: Texts that end the sequence.
        stop_token_ids: Tokens that end the sequence.
        detokenize: Whether the output is turned into text.
        seed: Seed of the random numbers, a signed integer of 64 bits.

    Raises:
        ValueError: A value is outside its range, or of another kind.
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
        for name, least, most, wanted in NUMBERS:
            value = getattr(self, name)
            # Narrow floats of NumPy do not reach what they are compared with.
            is_scalar = is_number(value) and hasattr(value, "item")
            number = value.item() if is_scalar else value
            if not (is_number(number) and least <= number <= most):
                self._refuse(name, wanted)
        for name, least, wanted in INTEGERS:
            value = getattr(self, name)
            if not (is_whole(value) and least <= value < INT64):
                self._refuse(name, wanted)
        if self.top_k == 0:
            self._refuse("top_k", "an integer, -1 or at least 1")
        most_new = self.max_new_tokens
        if most_new is not None and not (is_whole(most_new) and 0 <= most_new < INT64):
            self._refuse("max_new_tokens", "None or an integer, at least 0")
        for name in ("ignore_eos", "detokenize"):
            if not isinstance(getattr(self, name), bool):
                self._refuse(name, "True or False")
        if not _is_list(self.stop, lambda text: isinstance(text, str)):
            self._refuse("stop", "None or a list of texts")
        if not _is_list(self.stop_token_ids, is_whole):
            self._refuse("stop_token_ids", "None or a list of integers")
        for name in ("stop", "stop_token_ids"):  # lists, as they are after a message
            if isinstance(value := getattr(self, name), tuple):
                object.__setattr__(self, name, list(value))

    def _refuse(self, name: str, wanted: str) -> None:
        raise ValueError(f"SamplingParams.{name}: wanted {wanted}, got {getattr(self, name)!r}")

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


def _is_list(value: Any, is_element: Callable[[Any], bool]) -> bool:
    return value is None or (isinstance(value, (list, tuple)) and all(map(is_element, value)))
