"""How byte-level BPE cuts a text before it merges bytes, by the names that GGUF files have for it.

The expressions are those of the models' own `tokenizer.json`; llama-vocab.cpp of the llama.cpp
project says which name stands for which.
"""

from __future__ import annotations

from dataclasses import dataclass

ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"

GPT2 = rf"{ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"


def _cased(digits: str) -> str:
    """Letters with one mark before them, so many digits, and lines by themselves."""
    return (
        rf"(?i:{ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


def _by_case(end: str, digits: str) -> str:
    """Words that end where a capital follows a small letter, with what `end` takes behind them."""
    large, small = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    mark = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{mark}{large}*{small}+{end}|{mark}{large}+{small}*{end}|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


THREE, ONE = r"\p{N}{1,3}", r"\p{N}"


@dataclass(frozen=True)
class Splitting:
    """How a text is cut.

    Attributes:
        patterns: Each cuts what the one before left whole: what it finds stands alone.
        whole: A piece that is a token becomes it, whatever is merged first.
        composed: Characters are put together first (Unicode's form NFC).
        begins: A text begins with a token of its own where the file does not say whether.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    composed: bool = False
    begins: bool = False


_LLAMA = Splitting((_cased(THREE),), whole=True, begins=True)
_DIGITS = Splitting((ONE, GPT2))
_GLM = Splitting((_cased(THREE),))
_DEEPSEEK = Splitting(
    (
        THREE,
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)

SPLITTINGS = {
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "qwen2": Splitting((_cased(ONE),), composed=True),
    "gpt-2": Splitting((GPT2,)),
    "olmo": Splitting((GPT2,)),
    "dbrx": Splitting((_cased(THREE),)),
    "smaug-bpe": Splitting((_cased(THREE),)),
    "glm4": _GLM,
    "chatglm-bpe": _GLM,
    "deepseek-v3": _DEEPSEEK,
    "hunyuan-dense": _DEEPSEEK,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "smollm": _DIGITS,
    "tekken": Splitting((_by_case("", ONE),), whole=True, begins=True),
    "gpt-4o": Splitting((_by_case(rf"(?i:{ENDINGS})?", THREE),)),
}
"""What is known, by `tokenizer.ggml.pre`."""
