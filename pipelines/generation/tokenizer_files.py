"""What the files of a folder say of a language model's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from heddle.contexts.numeric import is_whole
from heddle.pipelines.json_files import read_object
from heddle.runtime.errors import InputError


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer, and what is said of it.

    Attributes:
        place: The folder or file that it is from, which messages name.
        tokenizer: What makes tokens of texts.
        special: The texts of special tokens by their names in chat templates, such as `bos_token`;
            what a model does not have is not there, so that a template can ask.
        ends: The tokens that end a text.
        template: The chat template; empty: there is none.
        tool_template: That for conversations with tools; empty: it is the same.
        sampling: How tokens are to be drawn, by names of `SamplingParams`.
    """

    place: Path
    tokenizer: Tokenizer
    special: Mapping[str, str]
    ends: frozenset[int]
    template: str
    tool_template: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of_folder(folder: Path) -> TokenizerFiles:
        """Those of a checkpoint as Hugging Face writes it.

        They are `tokenizer.json`, `tokenizer_config.json` or files of their own for chat templates
        and, in older folders, special tokens, and `generation_config.json` or `config.json` for the
        tokens that end a text; the former for how tokens are drawn, too.

        Raises:
            InputError: There is no tokenizer, a file is no JSON object, a template no text, or an
                end of text no token.
        """
        tokenizer = tokenizer_of(folder / "tokenizer.json")
        config = _object(folder / "tokenizer_config.json")
        special = _special(folder, config)
        generation = _object(folder / "generation_config.json")
        said = (of.get("eos_token_id") for of in (generation, _object(folder / "config.json")))
        ends = next((end for end in said if end is not None), None)
        if ends is None and "eos_token" in special:
            ends = tokenizer.token_to_id(special["eos_token"])
        listed = ends if isinstance(ends, list) else [ends]
        known = [token for token in listed if token is not None]
        for token in known:
            if not is_whole(token) or token < 0:
                raise InputError(
                    f"{folder}: wanted eos_token_id as an integer or a list of them, got {ends!r}"
                )
        try:
            named = _templates(folder, config.get("chat_template"))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{folder}: wanted a chat template, got {error!r}") from None
        templates = named.get("default", ""), named.get(TOOL_TEMPLATE, "")
        sampling = sampling_of(generation)
        if generation.get("do_sample") is False:  # What goes before the choice counts all the same.
            sampling = {name: sampling[name] for name in sampling if name == "repetition_penalty"}
        return TokenizerFiles(folder, tokenizer, special, frozenset(known), *templates, sampling)


SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""What of a `generation_config.json` says how tokens are drawn."""

TOOL_TEMPLATE = "tool_use"
"""What the chat template for conversations with tools is called, of several."""


def tokenizer_of(file: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`.

    Raises:
        InputError: It is none.
    """
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more specific
        raise InputError(f"{file}: wanted a tokenizer.json: {error}") from None


def sampling_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of these values says how tokens are drawn; of `top_k`, 0 means all."""
    found = {name: given[name] for name in SAMPLING if given.get(name) is not None}
    return found | ({"top_k": -1} if found.get("top_k") == 0 else {})


def _object(path: Path) -> dict[str, Any]:
    return read_object(path, InputError) if path.is_file() else {}


def _special(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens of a `tokenizer_config.json`, or of the file that was there before it.

    As transformers does it, `special_tokens_map.json` counts where the former lists no
    `added_tokens_decoder`.
    """
    older = {} if "added_tokens_decoder" in config else _object(folder / "special_tokens_map.json")
    named = {**config, **older}.items()
    texts = {name: _text_of(token) for name, token in named if name.endswith("_token")}
    return {name: text for name, text in texts.items() if text}


def _text_of(token: Any) -> str:
    """A special token, written as its text or as an object with `content`; empty: there is none."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _templates(folder: Path, said: Any) -> dict[str, str]:
    """Chat templates by their names: files of their own, or what `tokenizer_config.json` says.

    That is a text, the template called `default`, or all of them, as a list or by name.
    """
    files = {file.stem: file for file in (folder / "additional_chat_templates").glob("*.jinja")}
    if (only := folder / "chat_template.jinja").is_file():
        files["default"] = only
    if files:
        return {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    if isinstance(said, list):
        said = {row["name"]: row["template"] for row in said}
    named = said if isinstance(said, dict) else {"default": said or ""}
    for text in named.values():
        if not isinstance(text, str):
            raise TypeError(text)
    return named
