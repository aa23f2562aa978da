"""Requests that a text generator refuses, and what it says."""

import numpy as np
import pytest
from asked import request

from heddle.contexts import TextGenerationRequest
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.runtime import InferenceSession
from heddle.runtime.errors import InputError

TOOL = {"type": "function", "function": {"name": "weave"}}


def test_prompts_that_cannot_be_leave_nothing_behind(make_generator):
    generator = make_generator()
    with pytest.raises(InputError, match=r"wanted a prompt of at least one token$"):
        generator.generate(["a", "", "b"])
    assert not generator.busy
    with pytest.raises(
        InputError, match=r"^generate: wanted a list of prompts, got the text 'ab'$"
    ):
        generator.generate("ab")


def test_ids_are_their_own(make_generator):
    generator = make_generator()
    generator.submit(request())
    with pytest.raises(InputError, match="request r0: wanted an id of its own, got that of anoth"):
        generator.submit(request())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(prompt=[]), "wanted a prompt of at least one token"),
        (request(prompt=np.array([5, 260])), "wanted tokens below 260, got 260"),
        (request(params={"stop_token_ids": [7, 260]}), "wanted tokens below 260, got 260"),
        (request(params={"stop_token_ids": [2**40]}), f"wanted tokens below 260, got {2**40}"),
        (
            request(prompt=[1.5]),
            r"request r0: wanted a prompt of text or of integers, got \[1.5\]$",
        ),
        (request(prompt=[True, 2]), r"wanted a prompt of text or of integers, got \[True, 2\]$"),
        (request(prompt=b"ab"), "wanted a prompt of text or of integers, got b'ab'$"),
        (request(prompt={1: 2}), r"wanted a prompt of text or of integers, got \{1: 2\}$"),
        (
            TextGenerationRequest("r0", 0, "", "a", sampling_params=None),
            "^request r0: wanted SamplingParams, got None$",
        ),
        (request(prompt="a\ud800"), r"prompt: wanted a text in UTF-8, got '\\ud800' at 1$"),
        (
            request(response_format={"type": "json_schema", "json_schema": {"const": {1}}}),
            "json_schema: wanted JSON, got Object of type set is not JSON serializable$",
        ),
        (
            request(response_format={"type": "json_schema", "json_schema": {"schema": [1]}}),
            "json_schema: wanted a grammar that llguidance takes, got: schema must be an object",
        ),
        (request(prompt="x" * 256), "wanted a prompt of at most 255 tokens, got 256"),
        (
            request(params={"min_new_tokens": 30}),
            "^request r0: wanted min_new_tokens of at most 24, as max_new_tokens says, got 30$",
        ),
        (
            request("x" * 250, params={"min_new_tokens": 24}),
            "^request r0: wanted min_new_tokens of at most 6, for which there is room, got 24$",
        ),
        (
            request(logprobs=261),
            "^request r0: wanted logprobs of at most 260, the tokens that the model knows, got 26",
        ),
        (request(echo=True), "request r0: wanted no echo, a text generator has none$"),
        (request(images=[b"x"]), "request r0: wanted no images, a text generator has none$"),
        (
            request(tools=[TOOL]),
            "request r0: wanted messages beside tools, which the chat template shows to the model",
        ),
        (
            request(response_format={"type": "json_schema", "json_schema": {"type": "nope"}}),
            "json_schema: wanted a grammar",
        ),
    ],
)
def test_a_request_that_cannot_be(make_generator, asked, message):
    generator = make_generator()
    with pytest.raises(InputError, match=message):
        generator.submit(asked)
    assert not generator.busy


def test_two_grammars(make_generator):
    form = {"type": "json_object"}
    with pytest.raises(InputError, match="wanted a response format or a regular expression, got"):
        make_generator().submit(request(response_format=form), regex="a")


def test_a_grammar_needs_an_end_and_its_package(decoder, decoder_model, monkeypatch):
    tokenizer = TextTokenizer(decoder)
    tokenizer.eos_token_ids = frozenset([260])  # which the model does not know
    with pytest.warns(
        UserWarning,
        match=r"eos_token_id: wanted tokens below 260, got 260, with which no text ends",
    ):
        generator = TextGenerator(decoder_model, tokenizer)
    with pytest.raises(InputError, match="wanted a tokenizer with an end of text, got none"):
        generator.submit(request(), regex="a")
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(InputError, match="wanted the package llguidance, which is not installed"):
        generator.submit(request(), regex="a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows: wanted 1 to 1024, got 0"),
        ({"tokens": 15}, "tokens: wanted one for each of 16 rows at least, got 15"),
        ({"tokens": 1 << 20}, "tokens: wanted 1 to 16384, got 1048576"),
        ({"cache_tokens": 15}, "cache_tokens: wanted 16 to 67108864, got 15"),
    ],
)
def test_sizes_that_cannot_be(make_generator, options, message):
    with pytest.raises(InputError, match=message):
        make_generator(**options)


def test_another_model_is_refused(tiny_artifact, decoder):
    model = InferenceSession().load(tiny_artifact)
    with pytest.raises(InputError, match=r"wanted a model with inputs tokens, .*got tokens, att"):
        TextGenerator(model, TextTokenizer(decoder))
