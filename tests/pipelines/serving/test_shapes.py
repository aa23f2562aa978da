"""How log probabilities are written."""

import json

import pytest

from heddle.contexts import LogProbabilities
from heddle.pipelines.generation.delta import TextDelta
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.serving.message import Message
from heddle.pipelines.serving.reading.pieces import Plain
from heddle.pipelines.serving.shapes import ChatShape, CompletionShape


def chat(tokenizer, likely):
    return ChatShape(tokenizer, likely, lambda: Message(Plain(), str))


@pytest.mark.parametrize("kind", [CompletionShape, chat])
def test_what_cannot_be_is_a_number_of_json(decoder, kind):
    never = float("-inf")
    entry = LogProbabilities([-0.5], [{5: -0.5, 6: never}])
    delta = TextDelta("r", "a", [5], log_probabilities=[entry])
    (piece,) = kind(TextTokenizer(decoder), 2).pieces(0, delta)
    assert "-9999.0" in json.dumps(piece, allow_nan=False)


def test_of_candidates_with_one_text_the_likeliest_is_told(decoder):
    tokenizer = TextTokenizer(decoder)
    parts = [token for token in range(256) if tokenizer.token_text(token) == "\ufffd"][:3]
    entry = LogProbabilities([-1.0], [{parts[0]: -1.0, parts[1]: -2.0, parts[2]: -3.0}])
    delta = TextDelta("r", "", parts[:1], log_probabilities=[entry])
    (piece,) = CompletionShape(tokenizer, 3).pieces(0, delta)
    assert piece["logprobs"]["top_logprobs"] == [{"\ufffd": -1.0}]
