"""Tokenizers of GGUF files, beside those of the library that they were written from."""

import json
from pathlib import Path

import gguf
import pytest
from gguf_files import byte_level
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.runtime.errors import ArtifactError, GraphError

ROOT = Path(__file__).parents[3]

CORPUS = [(ROOT / name).read_text() for name in ("README.md", "docs/design.md", "docs/ops.md")]

TEXTS = (
    "Hello world, it's 2024 and we've 12345.678 reasons\u2026",
    "  leading,   inner and trailing   \n\n\tdef f(x):\r\n    return x**2 # \u00e9l\u00e8ve\n",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \U0001f642\U0001f642 na\u00efve caf\u00e9 e\u0301",
    "MLIR's CamelCaseWords DON'T split likeThis; we'LL see/\n/path/to/file",
    "a zzz zzzz",
    "",
    " ",
    "<|user|>a<|end|>b  c<|user|> d",
)

PATTERNS = {
    "gpt-2": [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ],
    "llama-bpe": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "qwen2": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "refact": [
        r"\p{N}",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "gpt-4o": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
}
"""How models cut texts, as their `tokenizer.json` has it."""


def trained(pre):
    """A tokenizer as the models have it that files call `pre`."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in ("llama-bpe", "tekken")))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(each), "isolated") for each in PATTERNS[pre]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=800, initial_alphabet=letters, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"]["\u0120zzz"] = 800  # a token that no merges make
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_tokens([AddedToken("  ", normalized=False)])
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<|user|>", "<|end|>")]
    )
    return tokenizer


def saved(path, *adders):
    writer = gguf.GGUFWriter(path, "llama")
    for add in adders:
        add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("pre", PATTERNS)
def test_bytes(tmp_path, pre):
    tokenizer = trained(pre)
    user = tokenizer.token_to_id("<|user|>")
    path = saved(tmp_path / "m.gguf", byte_level(tokenizer, pre, bos=user, eos=user))
    found = TextTokenizer(path)
    begins = [user] if pre in ("llama-bpe", "tekken") else []
    for text in TEXTS:
        wanted = tokenizer.encode(text).ids
        assert found.encode(text, add_special_tokens=False) == wanted
        assert found.encode(text) == [*begins, *wanted]
        assert found.decode(wanted) == tokenizer.decode(wanted)
    assert found.eos_token_ids == {user, tokenizer.token_to_id("<|end|>")}


class Pieces:
    """SentencePiece's BPE (arXiv:1808.06226), step by step: the best pair of neighbours first."""

    def __init__(self, texts, space):
        self.space = space
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\u2581?[^\u2581]+"), "isolated")
        trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False)
        texts = [text.replace(" ", "\u2581") for text in texts]
        tokenizer.train_from_iterator(texts, trainer)
        order = sorted(tokenizer.get_vocab().items(), key=lambda row: (len(row[0]) < 2, row[1]))
        self.tokens = ["<unk>", "<s>", "</s>", "<|user|>", "[X]"]
        self.kinds = [2, 3, 3, 3, 4]
        self.tokens += [f"<0x{byte:02X}>" for byte in range(256)]
        self.kinds += [6] * 256
        self.scores = [0.0] * len(self.tokens)
        for rank, (text, _) in enumerate(order):
            self.tokens.append(text)
            self.scores.append(-float(rank))
        self.kinds += [1] * len(order)
        self.ids = {token: number for number, token in enumerate(self.tokens)}

    def add(self, writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_list(self.tokens)
        writer.add_token_scores(self.scores)
        writer.add_token_types(self.kinds)
        for name, number in (("bos", 1), ("eos", 2), ("unknown", 0)):
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
        writer.add_add_space_prefix(self.space)

    def encode(self, text):
        parts = list((" " if self.space and text else "") + text)
        parts = ["\u2581" if part == " " else part for part in parts]

        def score(at):
            number = self.ids.get(parts[at] + parts[at + 1], 0)
            return self.scores[number] if self.kinds[number] == 1 else -1e9

        while len(parts) > 1:
            best = max(range(len(parts) - 1), key=lambda at: (score(at), -at))
            if score(best) == -1e9:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        found = []
        for part in parts:
            whole = [self.ids[part]] if part in self.ids else []
            found += whole or [self.ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        return found


@pytest.mark.parametrize("space", [True, False])
def test_pieces_with_scores(tmp_path, space):
    pieces = Pieces(CORPUS, space)
    found = TextTokenizer(saved(tmp_path / "m.gguf", pieces.add))
    for text in (*TEXTS[:7], *CORPUS[0].splitlines()):
        wanted = pieces.encode(text)
        assert found.encode(text, add_special_tokens=False) == wanted
        assert found.encode(text) == [1, *wanted]
        assert found.decode(wanted) == text
    around = found.encode("<|user|>warp[X]weft", add_special_tokens=False)
    assert around == [3, *pieces.encode("warp"), 4, *pieces.encode("weft")]
    assert found.decode(around).strip() == ("warp[X] weft" if space else "warp[X]weft")
    assert found.eos_token_ids == {2}


def test_what_the_file_says_around_texts(tmp_path):
    pieces = Pieces(CORPUS[:1], False)

    def around(writer):
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(True)
        writer.add_eot_token_id(3)
        writer.add_float32("general.sampling.temp", 0.5)
        writer.add_int32("general.sampling.top_k", 0)
        chat = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
        named = {"default": chat, "tool_use": "{{ tools[0] }}"}
        writer.add_chat_template([{"name": n, "template": t} for n, t in named.items()])

    found = TextTokenizer(saved(tmp_path / "m.gguf", pieces.add, around))
    assert found.encode("") == [2]
    assert found.eos_token_ids == {2, 3}
    assert found.sampling() == {"temperature": 0.5, "top_k": -1}
    assert found.chat([{"role": "user", "content": "Hi"}]) == "<s>Hi</s>"
    assert found.chat([{"role": "user", "content": "Hi"}], tools=["cut"]) == "cut"


def changed(path, **values):
    """A file with a tokenizer of two bytes, and values of `tokenizer.ggml` in place of its own."""
    own = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": ["a", "b", "ab"],
        "token_type": [1, 1, 1],
        "merges": ["a b"],
        "scores": [0.0, 0.0, 0.0],
    }
    forms = {str: "string", int: "uint32", list: "array", bool: "bool"}

    def add(writer):
        for name, value in (own | values).items():
            if value is not None:
                getattr(writer, f"add_{forms[type(value)]}")(f"tokenizer.ggml.{name}", value)

    return saved(path / "m.gguf", add)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (GraphError, {"model": "t5"}, "model: wanted gpt2 or llama, got 't5'"),
        (GraphError, {"pre": "default"}, r"pre: wanted one of llama-bpe, .*, got 'default'"),
        (ArtifactError, {"pre": None}, "pre: wanted a text, got none"),
        (ArtifactError, {"model": None}, "model: wanted a text, got none"),
        (ArtifactError, {"tokens": None}, "tokens: wanted a list, got none"),
        (ArtifactError, {"token_type": [1]}, "token_type: wanted 3, got 1"),
        (ArtifactError, {"tokens": ["a", "b", "a"]}, "tokens: wanted each once, got 'a' again"),
        (ArtifactError, {"merges": ["a c"]}, "merges: wanted pairs of tokens that make one: .*c"),
        (ArtifactError, {"merges": ["a"]}, "merges: wanted pairs of tokens that make one: "),
        (ArtifactError, {"eos_token_id": 3}, "eos_token_id: wanted a token below 3, got 3"),
        (ArtifactError, {"add_bos_token": True}, "bos_token_id: wanted a token around texts, got"),
        (ArtifactError, {"model": "llama", "scores": [0.0]}, "scores: wanted 3, got 1"),
        (
            ArtifactError,
            {"model": "llama", "scores": [0.0] * 3, "tokens": ["a", "b", "c" * 1025]},
            "tokens: wanted pieces of at most 1024 letters, got 1025",
        ),
        (
            GraphError,
            {"model": "llama", "remove_extra_whitespaces": True},
            "remove_extra_whitespaces: wanted false, got true",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, kind, values, message):
    with pytest.raises(kind, match=rf"m\.gguf: tokenizer\.ggml\.{message}"):
        TextTokenizer(changed(tmp_path, **values))
