"""What older versions of `TextContext` were constructed with, beside what the newest one takes."""

from __future__ import annotations

from typing import Any

from heddle.contexts.tokens import TokenBuffer, TokenState

# With the value that stands for "not given".
_INDICES: dict[str, Any] = {
    "_size": -1,
    "_start_idx": 0,
    "_active_idx": -1,
    "_end_idx": -1,
    "_completion_start_idx": -1,
    "_completion_end_idx": -1,
    "_prompt_len": -1,
}
OLDER_ARGUMENTS = {**_INDICES, "_committed_idx": 0, "_cache_seq_id": None, "_status": None}


def read_older(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """All older arguments, those of `given` over those not given.

    Raises:
        TypeError: `given` holds another name; `name` is whose constructor it was for.
    """
    unknown = sorted(set(given) - set(OLDER_ARGUMENTS))
    if unknown:
        raise TypeError(f"{name}: wanted known arguments, got {', '.join(unknown)}")
    return {**OLDER_ARGUMENTS, **given}


def place_windows(tokens: TokenBuffer, older: dict[str, Any]) -> None:
    """Put the windows of `tokens` where the older arguments say.

    `_end_idx` is how many tokens of the array are valid, `_start_idx` and `_active_idx` bound the
    window, `_prompt_len` and the completion window begin at `_active_idx` if they are not given,
    `_size` is the least capacity. If none of them is given, the windows stay as they are.

    Raises:
        ValueError: They contradict one another or the array.
    """
    if all(older[name] == absent for name, absent in _INDICES.items()):
        return
    end = _given(older["_end_idx"], len(tokens))
    active = _given(older["_active_idx"], end)
    if not 0 < end <= len(tokens) or not 0 <= older["_start_idx"] < active <= end:
        raise ValueError(
            f"TextContext: wanted 0 <= _start_idx < _active_idx <= _end_idx <= {len(tokens)}, got "
            f"{older['_start_idx']}, {active}, {end}"
        )
    completion = _given(older["_completion_start_idx"], active)
    tokens.restore(
        TokenState(
            tokens.all[:end],
            _given(older["_prompt_len"], active),
            (older["_start_idx"], active),
            (completion, _given(older["_completion_end_idx"], completion)),
            0,
            (),
        )
    )
    tokens.ensure_capacity(older["_size"])


def _given(value: int, otherwise: int) -> int:
    return otherwise if value == -1 else value
