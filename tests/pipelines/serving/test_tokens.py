"""`POST /tokenize`, `POST /detokenize`, and the version of the server."""

from importlib.metadata import version

import pytest

HI = [{"role": "user", "content": "Hi"}]


def test_tokens_of_a_prompt_and_back(server):
    found = server.ask("/tokenize", prompt="Wé", return_token_strs=True)
    tokens = found["tokens"]
    assert found == {
        "count": 3,
        "max_model_len": 256,
        "tokens": tokens,
        "token_strs": ["W", "\ufffd", "\ufffd"],
    }
    assert server.ask("/detokenize", tokens=tokens) == {"prompt": "Wé"}
    assert server.ask("/detokenize", tokens=[256]) == {"prompt": "<s>"}


def test_tokens_of_a_conversation_are_those_of_its_prompt(server):
    found = server.ask("/tokenize", messages=HI)
    usage = server.ask("/v1/chat/completions", messages=HI, max_tokens=1)["usage"]
    assert found["count"] == usage["prompt_tokens"]
    assert found["token_strs"] is None
    text = server.ask("/detokenize", tokens=found["tokens"])["prompt"]
    assert text == "<user>Hi<s>"


@pytest.mark.parametrize(
    ("path", "asked", "message"),
    [
        ("/tokenize", {}, "prompt: wanted it or messages, got both or none"),
        (
            "/tokenize",
            {"prompt": "a", "messages": HI},
            "prompt: wanted it or messages, got both or none",
        ),
        ("/tokenize", {"prompt": "\ud800"}, "prompt: wanted a text in UTF-8, got"),
        (
            "/tokenize",
            {"prompt": "a", "chat_template_kwargs": {"a": 1}},
            "chat_template_kwargs: wanted messages beside it, got a prompt",
        ),
        (
            "/tokenize",
            {"messages": HI, "add_special_tokens": True},
            "add_special_tokens: wanted a prompt beside it, got messages",
        ),
        ("/detokenize", {"tokens": [-1]}, "tokens: wanted"),
        ("/detokenize", {"tokens": [1], "prompt": "a"}, "body: wanted names"),
    ],
)
def test_what_is_refused(server, path, asked, message):
    status, body = server.post(path, **asked)
    assert status == 400
    assert body["error"]["message"].startswith(message)


def test_the_version(server):
    assert server.client.get("/version").json() == {"version": version("heddle")}
