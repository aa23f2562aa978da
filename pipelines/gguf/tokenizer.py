"""The tokenizer of a GGUF file: byte-level BPE, or SentencePiece's BPE with scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from heddle.pipelines.generation.tokenizer_files import TOOL_TEMPLATE, TokenizerFiles, sampling_of
from heddle.pipelines.gguf.file import GgufFile
from heddle.pipelines.gguf.splitting import SPLITTINGS
from heddle.runtime.errors import GraphError

KEY = "tokenizer.ggml"
"""What the keys begin with."""

CHAT_TEMPLATE = "tokenizer.chat_template"
"""The key of the chat template; those of further ones have a name behind it."""

SPACE = "\u2581"
"""What SentencePiece (arXiv:1808.06226) writes for a space."""

SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
"""Special tokens by their names in a file, and in chat templates."""

ENDS = ("eos", "eot", "eom")
"""Tokens by which a text ends, a turn of a chat, or a message."""

ENDINGS = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>"),
    *("<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
)
"""Control tokens that end a turn where the file does not say so, which older ones do not."""

SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
"""Keys that say how tokens are drawn, and what `SamplingParams` calls it."""

MOST_LETTERS = 1024
"""Of a piece with a score, which is looked at cut in each place: more than any model's has."""


class Kind(IntEnum):
    """What a token is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def read(path: Path) -> TokenizerFiles:
    """The tokenizer in the file `path`.

    Raises:
        GraphError: It is of a kind that is not read.
        ArtifactError: Something is missing or damaged.
    """
    file = GgufFile.read(path)
    model = file.value(f"{KEY}.model", str)
    if model not in MODELS:
        raise GraphError(f"{path}: {KEY}.model: wanted {' or '.join(MODELS)}, got {model!r}")
    tokens = file.listed(f"{KEY}.tokens", str)
    kinds = file.listed(f"{KEY}.token_type", int, len(tokens))
    vocab = {token: number for number, token in enumerate(tokens)}
    if len(vocab) < len(tokens):
        lost = next(token for number, token in enumerate(tokens) if vocab[token] != number)
        raise file.bad(f"{KEY}.tokens: wanted each once, got {lost!r} again")
    for text in ENDINGS:
        if text in vocab:
            kinds[vocab[text]] = Kind.CONTROL  # older files have some as words
    tokenizer, begins = MODELS[model](file, vocab, kinds)
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == Kind.CONTROL, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (Kind.CONTROL, Kind.USER_DEFINED)
        ]
    )
    numbers = _numbers(file, len(tokens))
    tokenizer.post_processor = _around(file, tokens, numbers, begins)
    return TokenizerFiles(
        path,
        tokenizer,
        {ours: tokens[numbers[name]] for name, ours in SPECIAL.items() if name in numbers},
        frozenset(
            {numbers[name] for name in ENDS if name in numbers}
            | {vocab[text] for text in ENDINGS if text in vocab}
        ),
        file.value(CHAT_TEMPLATE, str, ""),
        file.value(f"{CHAT_TEMPLATE}.{TOOL_TEMPLATE}", str, ""),
        sampling_of({ours: file.values.get(name) for name, ours in SAMPLING.items()}),
    )


def _numbers(file: GgufFile, count: int) -> dict[str, int]:
    """Those of the special tokens that the file names, of so many tokens."""
    found = {}
    for name in dict.fromkeys((*SPECIAL, *ENDS)):
        key = f"{KEY}.{name}_token_id"
        if key in file.values:
            found[name] = file.value(key, int)
            if not 0 <= found[name] < count:
                raise file.bad(f"{key}: wanted a token below {count}, got {found[name]}")
    return found


def _around(
    file: GgufFile, tokens: Sequence[str], numbers: Mapping[str, int], begins: bool
) -> processors.TemplateProcessing:
    """What puts the tokens around a text that the file wants there; `begins` where it says none."""
    parts, known = ["$A"], []
    for name, default in (("bos", begins), ("eos", False)):
        if not file.value(f"{KEY}.add_{name}_token", bool, default):
            continue
        if name not in numbers:
            raise file.bad(f"{KEY}.{name}_token_id: wanted a token around texts, got none")
        parts.insert(0 if name == "bos" else len(parts), name)
        known.append({"id": name, "ids": [numbers[name]], "tokens": [tokens[numbers[name]]]})
    return processors.TemplateProcessing(single=parts, special_tokens=known)


def _byte_level(
    file: GgufFile, vocab: Mapping[str, int], kinds: Sequence[int]
) -> tuple[Tokenizer, bool]:
    """BPE of bytes, whose merges the file has; whether texts begin with a token of their own."""
    name = file.value(f"{KEY}.pre", str)
    if name not in SPLITTINGS:
        known = ", ".join(SPLITTINGS)
        raise GraphError(
            f"{file.path}: {KEY}.pre: wanted one of {known}, got {name!r} (--tokenizer takes the "
            "folder of the model, or its tokenizer.json)"
        )
    splitting = SPLITTINGS[name]
    merges = [tuple(merge.split(" ")) for merge in file.listed(f"{KEY}.merges", str)]
    tokenizer = Tokenizer(_model(file, vocab, merges, ignore_merges=splitting.whole))
    if splitting.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(each), "isolated") for each in splitting.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, splitting.begins


def _scored(
    file: GgufFile, vocab: Mapping[str, int], kinds: Sequence[int]
) -> tuple[Tokenizer, bool]:
    """SentencePiece's BPE: of two neighbours those are merged first whose piece scores highest."""
    if file.value(f"{KEY}.remove_extra_whitespaces", bool, False):
        raise GraphError(f"{file.path}: {KEY}.remove_extra_whitespaces: wanted false, got true")
    scores = file.listed(f"{KEY}.scores", float, len(vocab))
    pieces = {text: at for text, at in vocab.items() if kinds[at] == Kind.NORMAL}
    if long := next((text for text in pieces if len(text) > MOST_LETTERS), None):
        raise file.bad(
            f"{KEY}.tokens: wanted pieces of at most {MOST_LETTERS} letters, got {len(long)}"
        )
    merges = []
    for text in sorted(pieces, key=lambda text: -scores[pieces[text]]):
        halves = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        both = [pair for pair in halves if pair[0] in pieces and pair[1] in pieces]
        merges += sorted(both, key=lambda pair: (pieces[pair[0]], pieces[pair[1]]))
    unknown = next((text for text, at in vocab.items() if kinds[at] == Kind.UNKNOWN), None)
    tokenizer = Tokenizer(
        _model(file, vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefixed = file.value(f"{KEY}.add_space_prefix", bool, True)
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend(SPACE)] if prefixed else []), spaces]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prefixed else []),
        ]
    )
    return tokenizer, True


def _model(
    file: GgufFile, vocab: Mapping[str, int], merges: Sequence[Any], **options: Any
) -> models.BPE:
    """BPE of these tokens, and of pairs of them that are merged, the first ones first."""
    try:
        return models.BPE(dict(vocab), list(merges), **options)
    except Exception as error:  # the library raises nothing more specific
        raise file.bad(f"{KEY}.merges: wanted pairs of tokens that make one: {error}") from None


MODELS = {"gpt2": _byte_level, "llama": _scored}
"""What is known, by `tokenizer.ggml.model`."""
