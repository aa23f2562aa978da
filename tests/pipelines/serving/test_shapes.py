"""How log probabilities are written."""

import json

import pytest

from heddle.contexts import LogProbabilities
from heddle.pipelines.generation.delta import TextDelta
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.serving.message import Message
from heddle.pipelines.serving.reading.pieces import Plain
from heddle.pipelines.serving.shapes import ChatShape, CompletionShape, Text


def chat(tokenizer, likely):
    return ChatShape(tokenizer, likely, lambda: Message(Plain(), str))


@pytest.mark.parametrize("kind", [CompletionShape, chat])
def test_what_cannot_be_is_a_number_of_json(decoder, kind):
    never = float("-inf")
    entry = LogProbabilities([-0.5], [{5: -0.5, 6: never}])
    delta = TextDelta("r", "a", [5], log_probabilities=[entry])
    (piece,) = kind(TextTokenizer(decoder), 2).pieces(0, delta)
    assert "-9999.0" in json.dumps(piece, allow_nan=False)


@pytest.mark.parametrize(("kind", "begins"), [(CompletionShape, False), (chat, True)])
def test_the_first_token_of_an_answer_begins_a_text(decoder, monkeypatch, kind, begins):
    """What a completion says stands behind its prompt."""
    tokenizer, asked = TextTokenizer(decoder), []
    monkeypatch.setattr(tokenizer, "token_text", lambda t, first: asked.append((t, first)) or "t")
    entries = [LogProbabilities([-0.5], [{token: -0.5}]) for token in (5, 6)]
    wanted = [(5, begins)] * 2 + [(6, False)] * 2
    shape, text = kind(tokenizer, 1), Text()
    for token, entry in zip((5, 6), entries, strict=True):
        text.add(delta := TextDelta("r", "t", [token], log_probabilities=[entry]))
        shape.pieces(0, delta)
    assert asked == wanted
    shape.whole(1, text)
    assert asked[4:] == wanted


def test_of_candidates_with_one_text_the_likeliest_is_told(decoder):
    tokenizer = TextTokenizer(decoder)
    parts = [token for token in range(256) if tokenizer.token_text(token) == "\ufffd"][:3]
    entry = LogProbabilities([-1.0], [{parts[0]: -1.0, parts[1]: -2.0, parts[2]: -3.0}])
    delta = TextDelta("r", "", parts[:1], log_probabilities=[entry])
    (piece,) = CompletionShape(tokenizer, 3).pieces(0, delta)
    assert piece["logprobs"]["top_logprobs"] == [{"\ufffd": -1.0}]
