"""Writes `docs/api-coverage.md`: where each name of the four interface documents lives here.

`python tests/contexts/api_coverage.py` writes it anew; `test_api_coverage.py` checks it.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

import heddle.contexts as contexts
from heddle.contexts.older_arguments import OLDER_ARGUMENTS, place_windows

NAMES = Path(__file__).with_name("api-names.txt")
DOCUMENT = Path(__file__).parents[2] / "docs" / "api-coverage.md"
VERSIONS = ("000", "001", "002", "003")

INTRODUCTION = """# API coverage

Four documents, 000 to 003, describe four versions of the interface of contexts. Where they disagree
003, the newest, wins; names that only the others have are views over the same state. This table is
written by `python tests/contexts/api_coverage.py`; a test resolves each name on a live object.
`Class(name)` is an argument of the constructor.
"""

# One line for each name on which the documents disagree, or that differs from them here.
RULES = {
    "AudioGenerationRequest(_assistant_message_override)": "stored; no document says more",
    "AudioGeneratorOutput.audio_data": "a torch tensor in 002; a NumPy array here",
    "EOSTracker": "named in 003, which does not describe it",
    "GenerationOutput": "named in 001, which does not describe it",
    "InputContext.matcher": "an xgrammar matcher in 002; an llguidance matcher here",
    "InputContext.max_length": "may be None in 002; always a number here",
    "InputContext.tokens": "an array in 002; a `TokenBuffer` here, which turns into an array",
    "InputError": "one class with that of `heddle.runtime`; also a ValueError",
    "RequestID": "named, not described; a string",
    "SpecDecodingState": "named in 003, which does not describe it",
    "TTSContext(_audio_generation_status)": "`audio_generation_status`, its older name",
    "TTSContext(_decoded_index)": "`decoded_index`, its older name",
    "TTSContext.audio_generation_status": "read-only in 002, an attribute elsewhere",
    "TTSContext.decoded_index": "read-only with `set_decoded_index` in 002, an attribute elsewhere",
    "TTSContext.next_speech_tokens": "moves `decoded_index` in 002; never does here",
    "TTSContext.speech_token_status": "a view of `status`",
    "TTSContext.status": "the text side; `is_done` looks at `audio_generation_status`",
    "TextAndVisionContext.bump_token_indices": "refuses a position inside an image",
    "TextAndVisionContext(pixel_values)": "002 says no positions; not together with `images`",
    "TextAndVisionContext.pixel_values": "those of `images`, or what 002 gives instead",
    "TextAndVisionContext.set_token_indices": "refuses a position inside an image",
    "TextContext(_cache_seq_id)": "`assign_to_cache`",
    "TextContext(_committed_idx)": "`committed_idx`",
    "TextContext(_prompt_len)": "-1, as with the other indices, stands for not given",
    "TextContext(_size)": "the least capacity of the token array",
    "TextContext(_status)": "`status`, its older name",
    "TextContext(eos_tracker)": "instead of `eos_token_ids` and `eos_sequences`, not beside them",
    "TextContext(log_probabilities)": "None, the default of 002, is 0",
    "TextContext(prompt)": "required in 002; optional here",
    "TextContext(tokens)": "an array in 000 and 002, a `TokenBuffer` since; both are taken",
    "TextContext.active_idx": "`tokens.current_position`",
    "TextContext.bump_token_indices": "`committed_idx` is in 002 only; accepted",
    "TextContext.current_length": "`len(tokens)`",
    "TextContext.end_idx": "`len(tokens)`",
    "TextContext.eos_sequences": "a field in 000 to 002; a view of `eos_tracker`, and an argument",
    "TextContext.eos_token_ids": "a field in 000 to 002; a view of `eos_tracker`, and an argument",
    "TextContext.get_min_token_logit_mask": "a set in the words of 002; here one array a step",
    "TextContext.jump_ahead": "advances the grammar too, as 003 says",
    "TextContext.log_probabilities": "may be None in 002; here a number, 0 for none",
    "TextContext.matcher": "an xgrammar matcher in 002; here an llguidance matcher",
    "TextContext.prompt": "required in 002; optional, else the prompt's tokens",
    "TextContext.set_token_indices": "`committed_idx` is in 002 only; accepted",
    "TextContext.start_idx": "`tokens.processed_length`",
    "TextContext.status": "read-only with `update_status` in 002, an attribute elsewhere",
    "TextContext.tokens": "an array in 000 and 002; here a `TokenBuffer`, which turns into one",
    "TextContext.update": "advances the grammar too, as 003 says; a rejected token changes nothing",
    "TextGenerationOutput": "named, not described",
    "TextGenerationStatus": "an alias of `GenerationStatus`",
    "TokenBuffer": "named, not described",
    "TokenGeneratorRequest": "an alias of the newer `TextGenerationRequest`",
    "TokenGeneratorRequestFunction": "a dict in 002; a dataclass whose items can be read too",
    "TokenGeneratorRequestMessage": "a dict in 002; a dataclass whose items can be read too",
    "TokenGeneratorRequestTool": "a dict in 002; a dataclass whose items can be read too",
    "TokenGeneratorResponseFormat": "a dict in 002; a dataclass whose items can be read too",
    "reserve_token_space_for_batch": "grows window and length; counts a context once",
}


def live_objects() -> dict[str, Any]:
    """One object of each class of the table, in a state in which every name can be read."""
    c = contexts
    tokens = np.array([1, 98, 2])
    options: dict[str, Any] = {"max_length": 9, "eos_token_ids": {0}}
    text = c.TextContext(tokens=tokens, **options)
    text.update(5)
    text.assign_to_cache(0)
    status = c.GenerationStatus.ACTIVE
    function = c.TokenGeneratorRequestFunction("f")
    return {
        "AudioGenerationRequest": c.AudioGenerationRequest("r", 0, "m", "x"),
        "AudioGenerationResponse": c.AudioGenerationResponse(status, np.zeros(1)),
        "AudioGenerator": c.AudioGenerator,
        "AudioGeneratorOutput": c.AudioGeneratorOutput(np.zeros(1)),
        "EOSTracker": c.EOSTracker(),
        "EmbeddingsGenerator": c.EmbeddingsGenerator,
        "EmbeddingsResponse": c.EmbeddingsResponse(np.zeros(1)),
        "GenerationOutput": c.GenerationOutput(c.RequestID(), status),
        "GenerationStatus": status,
        "ImageMetadata": c.ImageMetadata(1, 2, np.zeros(1)),
        "InputContext": text,
        "InputError": c.InputError(),
        "LogProbabilities": c.LogProbabilities([], []),
        "PipelineTask": c.PipelineTask.TEXT_GENERATION,
        "PipelineTokenizer": c.PipelineTokenizer,
        "PixelContext": c.PixelContext(tokens=c.TokenBuffer(tokens)),
        "RequestID": c.RequestID(),
        "SamplingParams": c.SamplingParams(),
        "SpecDecodingState": c.SpecDecodingState(),
        "TTSContext": c.TTSContext(tokens=tokens, **options),
        "TextAndVisionContext": c.TextAndVisionContext(
            tokens=tokens,
            vision_token_ids=[98],
            images=[c.ImageMetadata(1, 2, np.zeros(1))],
            **options,
        ),
        "TextContext": text,
        "TextGenerationOutput": text.to_generation_output(),
        "TextGenerationResponse": c.TextGenerationResponse([], status),
        "TextGenerationStatus": status,
        "TextResponse": c.TextResponse(1),
        "TokenBuffer": text.tokens,
        "TokenGenerator": c.TokenGenerator,
        "TokenGeneratorRequest": c.TokenGeneratorRequest("r", 0, "m", "x"),
        "TokenGeneratorRequestFunction": function,
        "TokenGeneratorRequestMessage": c.TokenGeneratorRequestMessage("user", "x"),
        "TokenGeneratorRequestTool": c.TokenGeneratorRequestTool("function", function),
        "TokenGeneratorResponseFormat": c.TokenGeneratorResponseFormat("text"),
    }


def names() -> dict[str, list[str]]:
    """Each name of the documents, with the documents that it is in."""
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: versions for name, *versions in rows}


def home(name: str, live: dict[str, Any]) -> str:
    """The file that defines `name`.

    Raises:
        AttributeError: Nothing defines it.
    """
    owner, _, member = name.partition(".")
    owner, _, argument = owner.partition("(")
    defined = getattr(contexts, owner)
    if argument:
        defined = taker(defined, argument.rstrip(")"))
    if member:
        getattr(live[owner], member)
        for base in defined.__mro__:
            if member in vars(base) or member in inspect.get_annotations(base):
                defined = base
                break
    package, room, *module = defined.__module__.split(".")
    if package != "heddle":
        raise AttributeError(f"{name} is defined in {defined.__module__}")
    return "/".join([room, *module]) + ".py"


def taker(defined: Any, argument: str) -> Any:
    """The class, of `defined` and its bases, or the module of older arguments, that takes it.

    Raises:
        AttributeError: None does.
    """
    for base in defined.__mro__:
        taken = inspect.signature(base.__init__).parameters if "__init__" in vars(base) else {}
        if argument in taken:
            return base
        if "older" in taken and argument in OLDER_ARGUMENTS:
            return place_windows
    raise AttributeError(f"{defined.__name__} takes no {argument}")


def render() -> str:
    """The table."""
    live = live_objects()
    lines = [INTRODUCTION, f"| name | {' | '.join(VERSIONS)} | here | rule |", "|---" * 7 + "|"]
    for name, versions in names().items():
        marks = " | ".join("x" if version in versions else "" for version in VERSIONS)
        lines.append(f"| `{name}` | {marks} | `{home(name, live)}` | {RULES.get(name, '')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(render(), encoding="utf-8")
