"""`POST /v1/completions`: what it says is what the generator says."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from heddle.contexts import SamplingParams
from heddle.pipelines.serving.app import Settings

PATH = "/v1/completions"
DRAWN = {"temperature": 0.8, "top_p": 0.9, "max_tokens": 20}


def wanted(generator, prompt, seed, **params):
    """The generator's own text, by the defaults of OpenAI's API."""
    params = {"top_k": -1, "max_new_tokens": 20, "seed": seed, **params}
    return generator.generate([prompt], SamplingParams(**params))[0]


def texts(pieces, count):
    """What the pieces of a stream say, by choice."""
    found = [""] * count
    for piece in pieces:
        for choice in piece["choices"]:
            found[choice["index"]] += choice["text"]
    return found


def test_a_text_is_the_generator_s(server, make_generator):
    found = server.ask(PATH, prompt="Warp", seed=5, **DRAWN)
    (choice,) = found.pop("choices")
    text = wanted(make_generator(), "Warp", 5, temperature=0.8, top_p=0.9)
    assert choice == {"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}
    assert found.pop("id").startswith("cmpl-")
    assert found.pop("created") >= server.service.created
    usage = {"prompt_tokens": 4, "completion_tokens": 20, "total_tokens": 24}
    assert found == {"object": "text_completion", "model": "tiny", "usage": usage}


@pytest.mark.parametrize(
    ("asked", "params"),
    [
        ({"temperature": 0}, {"temperature": 0}),
        ({"top_k": 3, "min_p": 0.1}, {"top_k": 3, "min_p": 0.1}),
        (
            {"frequency_penalty": 1.5, "presence_penalty": -1, "repetition_penalty": 1.3},
            {"frequency_penalty": 1.5, "presence_penalty": -1, "repetition_penalty": 1.3},
        ),
        (
            {"min_tokens": 18, "stop_token_ids": [113]},
            {"min_new_tokens": 18, "stop_token_ids": [113]},
        ),
        ({"stop": "e", "ignore_eos": True}, {"stop": ["e"], "ignore_eos": True}),
    ],
)
def test_what_is_asked_for_reaches_the_sampler(server, make_generator, asked, params):
    found = server.ask(PATH, prompt="Warp", seed=11, max_tokens=20, **asked)
    assert found["choices"][0]["text"] == wanted(make_generator(), "Warp", 11, **params)


def test_the_model_s_files_say_how_tokens_are_drawn(make_server, make_generator):
    """Where the request does not, and unless the server is told otherwise."""
    generators = [make_generator() for _ in range(3)]
    for generator in generators[:2]:
        generator.tokenizer._sampling = {"temperature": 0.5, "top_k": 2}
    asked = {"prompt": "Warp", "seed": 5, "max_tokens": 20}
    server = make_server({"tiny": generators[0]})
    text = wanted(generators[2], "Warp", 5, temperature=0.5, top_k=2)
    assert server.ask(PATH, **asked)["choices"][0]["text"] == text
    text = wanted(generators[2], "Warp", 5, temperature=0.5)
    assert server.ask(PATH, **asked, top_k=-1)["choices"][0]["text"] == text
    server = make_server({"tiny": generators[1]}, settings=Settings(generation_config=False))
    text = wanted(generators[2], "Warp", 5)
    assert server.ask(PATH, **asked)["choices"][0]["text"] == text


def test_choices_have_seeds_of_their_own_and_prompts_count_once(server, make_generator):
    generator = make_generator()
    found = server.ask(PATH, prompt=["Warp", "we"], n=2, seed=7, max_tokens=20)
    places = [("Warp", 7), ("Warp", 8), ("we", 7), ("we", 8)]
    assert [choice["text"] for choice in found["choices"]] == [
        wanted(generator, *place) for place in places
    ]
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert found["usage"]["prompt_tokens"] == 6
    tokens = {text: generator.tokenizer.encode(text) for text in ("Warp", "we")}
    same = server.ask(PATH, prompt=list(tokens.values()), n=2, seed=7, max_tokens=20)
    assert same["choices"] == found["choices"]
    (one,) = server.ask(PATH, prompt=tokens["we"], seed=7, max_tokens=20)["choices"]
    assert one["text"] == found["choices"][2]["text"]


def test_a_seed_that_nobody_chose_is_a_new_one(server):
    found = {server.ask(PATH, prompt="x")["choices"][0]["text"] for _ in range(4)}
    assert len(found) > 1
    together = server.ask(PATH, prompt=["x"] * 4)["choices"]
    assert len({choice["text"] for choice in together}) > 1


def test_a_stream_is_the_text_in_pieces(server, make_generator):
    options = {"include_usage": True}
    pieces = server.stream(PATH, prompt=["Warp", "x"], seed=5, stream_options=options, **DRAWN)
    *pieces, last = pieces
    generator = make_generator()
    assert texts(pieces, 2) == [
        wanted(generator, prompt, 5, temperature=0.8, top_p=0.9) for prompt in ("Warp", "x")
    ]
    assert {piece["usage"] for piece in pieces} == {None}
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 5, "completion_tokens": 40, "total_tokens": 45}
    assert len({piece["id"] for piece in [*pieces, last]}) == 1
    reasons = [c["finish_reason"] for piece in pieces for c in piece["choices"]]
    assert [reason for reason in reasons if reason] == ["length"] * 2
    assert "usage" not in server.stream(PATH, prompt="x", max_tokens=2)[-1]


def test_many_streams_at_once_are_those_of_the_generator(server, make_generator):
    def read(seed):
        pieces = server.stream(PATH, prompt="Warp and weft", seed=seed, max_tokens=40)
        return texts(pieces, 1)[0]

    with ThreadPoolExecutor(24) as clients:
        found = list(clients.map(read, range(48)))
    generator = make_generator()
    assert found == [
        wanted(generator, "Warp and weft", seed, max_new_tokens=40) for seed in range(48)
    ]


def test_log_probabilities_come_in_columns(server):
    asked = {"prompt": "Warp", "temperature": 0, "max_tokens": 6}
    whole = server.ask(PATH, logprobs=2, **asked)["choices"][0]["logprobs"]
    assert list(whole) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    for token, value, top in zip(*list(whole.values())[:3], strict=True):
        assert len(top) <= 2  # tokens that are no whole character have the same text
        assert max(top.values()) == value or token not in top
    assert whole["text_offset"] == list(range(6))
    pieces = server.stream(PATH, logprobs=2, **asked)
    columns = [choice["logprobs"] for piece in pieces for choice in piece["choices"]]
    for name, column in whole.items():
        assert [cell for each in columns for cell in each[name]] == column
    alone = server.ask(PATH, logprobs=0, **asked)["choices"][0]["logprobs"]
    assert alone == {**whole, "top_logprobs": [{}] * 6}


def test_a_text_follows_a_regular_expression(server):
    found = server.ask(PATH, prompt="Warp", guided_regex="(ab){2}!", logprobs=0)
    (choice,) = found["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abab!", "stop")
    assert choice["logprobs"]["tokens"] == list("abab!")  # what ends a text is none of it


def test_names_that_change_no_text_are_left_alone(server):
    asked = {"prompt": "x", "temperature": 0}
    more = {"user": "me", "store": False, "suffix": "", "best_of": 1, "echo": False, "n": None}
    assert server.ask(PATH, **asked, **more)["choices"] == server.ask(PATH, **asked)["choices"]
