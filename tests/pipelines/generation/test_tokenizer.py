"""Text to tokens and back, as it grows; chat templates and ends."""

import random
import re

import pytest
from tokenizer_folders import changed
from tokenizers import AddedToken, Tokenizer, decoders, models

from heddle.pipelines.generation.tokenizer import (
    MOST_UNFINISHED,
    HeldText,
    TextStream,
    TextTokenizer,
)
from heddle.runtime.errors import InputError


@pytest.fixture
def tokenizer(decoder):
    return TextTokenizer(decoder)


def test_there_and_back(tokenizer):
    text = "Schöne Grüße — 你好 🙂\n"
    tokens = tokenizer.encode(text)
    assert len(tokens) == len(text.encode())
    assert tokenizer.decode(tokens) == text
    assert tokenizer.decode([256, *tokens, 257]) == text
    assert tokenizer.eos_token_ids == {257}


def test_special_tokens_may_be_shown(tokenizer):
    assert tokenizer.special_tokens() == {256, 257}
    hidden = tokenizer.special_tokens(but={"<s>"})
    tokens = [256, *tokenizer.encode("a"), 257]
    assert (
        tokenizer.decode(tokens, hidden) == tokenizer.stream(hidden=hidden).push(tokens) == "<s>a"
    )


def test_how_tokens_are_drawn(tmp_path, decoder):
    assert TextTokenizer(changed(tmp_path, decoder)).sampling() == {}
    said = {"temperature": 0.5, "top_k": 0, "top_p": None, "max_length": 9, "do_sample": True}
    changed(tmp_path, decoder, generation_config=said)
    assert TextTokenizer(tmp_path).sampling() == {"temperature": 0.5, "top_k": -1}
    changed(tmp_path, decoder, generation_config=said | {"do_sample": False})
    assert TextTokenizer(tmp_path).sampling() == {}
    penalty = {"repetition_penalty": 1.05}
    changed(tmp_path, decoder, generation_config=said | penalty | {"do_sample": False})
    assert TextTokenizer(tmp_path).sampling() == penalty
    changed(tmp_path, decoder, generation_config={"top_p": 2})
    wanted = re.escape(f"{tmp_path}: SamplingParams.top_p: wanted ")
    with pytest.raises(InputError, match=wanted):
        TextTokenizer(tmp_path).sampling()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_stream_gives_whole_characters(tokenizer, size):
    text = "aé你🙂!" * 3
    tokens = tokenizer.encode(text)
    stream = tokenizer.stream()
    parts = [stream.push(tokens[i : i + size]) for i in range(0, len(tokens), size)]
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts)
    broken = tokenizer.stream()
    assert broken.push(tokens[1:2]) == ""
    assert broken.push([], final=True) == "\ufffd"


def test_bytes_that_never_become_a_character_are_shown(tokenizer):
    """At most three tokens wait: no beginning of a character is longer.

    How many marks stand for bytes in a row is the decoder's to say.
    """

    def short(text):
        return re.sub("\ufffd+", "\ufffd", text)

    face, accent = tokenizer.encode("🙂"), tokenizer.encode("é")
    tokens = [*tokenizer.encode("a"), *face[:3], *accent[:1] * 8, *face]
    stream = tokenizer.stream()
    shown = ""
    for count, token in enumerate(tokens, 1):
        shown += stream.push([token])
        assert short(shown).startswith(short(tokenizer.decode(tokens[: max(0, count - 3)])))
    assert short(shown) == short(tokenizer.decode(tokens))
    assert shown.endswith("\ufffd🙂")


def test_a_mark_that_was_meant_is_shown_once(tokenizer):
    """U+FFFD is what bytes of no whole character look like, and has three bytes of its own."""
    text = "bad \ufffd€ end\ufffd"
    tokens = tokenizer.encode(text)
    for size in (1, 2, 3, 4):
        stream = tokenizer.stream()
        parts = [stream.push(tokens[i : i + size]) for i in range(0, len(tokens), size)]
        assert "".join([*parts, stream.push([], final=True)]) == text


def test_a_stream_of_any_bytes_is_their_text(tokenizer):
    """As the decoder has it for all of them, also where no character ends for a long time."""
    draw = random.Random(1)
    marks = tokenizer.encode("\ufffd€🙂é")
    for length in [*range(40), 3 * MOST_UNFINISHED, 9 * MOST_UNFINISHED]:
        tokens = draw.choices([*marks, *tokenizer.encode("aé")], k=length)
        broken = [token for token in tokens if token in marks[:-1]]
        for some in (tokens, broken):
            stream, at, shown = tokenizer.stream(), 0, ""
            while at < len(some):
                size = draw.randint(1, 3)
                shown += stream.push(some[at : at + size])
                at += size
            assert shown + stream.push([], final=True) == tokenizer.decode(some)
            assert at < MOST_UNFINISHED or len(some) - stream._start < 2 * MOST_UNFINISHED


def test_tokens_of_several_bytes_may_end_and_begin_a_character():
    class Bytes:
        def decode(self, tokens, hidden=None):
            return b"".join(tokens).decode(errors="replace")

    tokens = [b"\xd3", b"\x82\xac", b"\xe2", b"\x82", b"\xac"]
    stream = TextStream(Bytes())
    shown = "".join(stream.push([token]) for token in tokens) + stream.push([], final=True)
    assert shown == Bytes().decode(tokens) == "\u04c2\ufffd\u20ac"


def test_the_end_of_a_text_is_held_back():
    held = HeldText()
    parts = [held.push(c, kept) for c, kept in zip("aENEb", (0, 1, 2, 1, 0), strict=True)]
    assert parts == ["a", "", "", "EN", "Eb"]
    assert held.push("12E", 1) == "12"
    assert held.push("ND more", 8) == ""


def test_the_text_of_one_token(tokenizer):
    (token,) = tokenizer.encode("w")
    (end,) = tokenizer.eos_token_ids
    assert (tokenizer.token_text(token), tokenizer.token_text(end)) == ("w", "</s>")


def test_the_texts_of_tokens_are_together_the_text(pieces):
    """Each is what it adds: those of `▁x` and `x` are not the same."""
    names = ("▁a", "▁the", "▁", "x", "▁x", "<s>", "▁the")
    tokens = [pieces.ids[name] for name in names]
    texts = [pieces.token_text(token, not at) for at, token in enumerate(tokens)]
    assert texts == ["a", " the", " ", "x", " x", "<s>", " the"]
    assert "".join(texts) == pieces.decode(tokens, hidden=())


def test_where_the_ends_are_said(tmp_path, decoder):
    assert not TextTokenizer(changed(tmp_path, decoder)).eos_token_ids
    changed(tmp_path, decoder, tokenizer_config={"eos_token": 257})  # no text
    assert not TextTokenizer(tmp_path).eos_token_ids
    changed(tmp_path, decoder, tokenizer_config={"eos_token": "</s>"})
    assert TextTokenizer(tmp_path).eos_token_ids == {257}
    changed(tmp_path, decoder, tokenizer_config={}, special_tokens_map={"eos_token": "<s>"})
    assert TextTokenizer(tmp_path).eos_token_ids == {256}
    changed(tmp_path, decoder, config={"eos_token_id": 3})
    assert TextTokenizer(tmp_path).eos_token_ids == {3}
    changed(tmp_path, decoder, generation_config={"temperature": 0.5})
    assert TextTokenizer(tmp_path).eos_token_ids == {3}
    changed(tmp_path, decoder, generation_config={"eos_token_id": [4, 5]})
    assert TextTokenizer(tmp_path).eos_token_ids == {4, 5}
    for wrong in ([4, "</s>"], True):
        changed(tmp_path, decoder, generation_config={"eos_token_id": wrong})
        with pytest.raises(InputError) as error:
            TextTokenizer(tmp_path)
        assert str(error.value) == (
            f"{tmp_path}: wanted eos_token_id as an integer or a list of them, got {wrong}"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "wanted a JSON object, got no JSON"),
        ("[" * 100_000, "wanted a JSON object, got no JSON"),
        ("[]", "wanted a JSON object, got list"),
    ],
)
def test_a_broken_file_is_named(tmp_path, decoder, text, message):
    changed(tmp_path, decoder)
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        TextTokenizer(tmp_path)
    assert "tokenizer_config.json" in str(error.value)


def test_no_tokenizer(tmp_path):
    with pytest.raises(InputError, match=r"tokenizer\.json: wanted a tokenizer\.json"):
        TextTokenizer(tmp_path)


@pytest.fixture
def pieces(tmp_path):
    """As the tokenizers of Llama 2 and Mistral, which drop a text's first space."""
    words = ("<unk>", "▁once", "▁upon", "▁a", "▁time", "▁the", "▁x", "▁", "a", "x")
    vocab = [*words, *(f"<0x{byte:02X}>" for byte in range(256))]
    made = Tokenizer(models.BPE({word: at for at, word in enumerate(vocab)}, [], unk_token="<unk>"))
    made.add_special_tokens([AddedToken("<s>", special=True)])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = TextTokenizer(tmp_path)
    tokenizer.ids = made.get_vocab()
    return tokenizer


def test_a_text_goes_on_with_its_space(pieces):
    once, upon, *rest = (pieces.ids[word] for word in ("▁once", "▁upon", "▁a", "▁time"))
    assert pieces.decode([once, upon, *rest]) == "once upon a time"
    stream = pieces.stream([once, upon])
    assert [stream.push([token]) for token in rest] == [" a", " time"]
    alone = pieces.stream()
    assert [alone.push([token]) for token in rest] == ["a", " time"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ["▁a", "▁the", "<s>", "▁the", "▁a"]),
        ([], ["<s>", "▁a", *["<s>"] * 9, "▁", "▁the"]),
        (["▁once", *["<s>"] * 9], ["▁the"]),
        ([*"你好".encode()], ["▁the", "▁a"]),
        (["▁a", *"你".encode()], [*"好".encode(), "▁a"]),
        (["▁a", "▁"], ["▁the"]),
    ],
)
def test_a_space_stays_behind_what_is_hidden_and_behind_bytes(pieces, before, after):
    before, after = (
        [pieces.ids[f"<0x{piece:02X}>" if isinstance(piece, int) else piece] for piece in row]
        for row in (before, after)
    )
    stream = pieces.stream(before)
    text = "".join(stream.push([token]) for token in after) + stream.push([], final=True)
    assert pieces.decode(before) + text == pieces.decode([*before, *after])


def test_a_text_behind_half_a_character(tokenizer):
    face = tokenizer.encode("🙂")
    stream = tokenizer.stream([*tokenizer.encode("ab"), *face[:2]])
    assert stream.push([*face[2:], *tokenizer.encode("c")]).endswith("c")
