"""What the server refuses, and how it says so."""

import pytest

from heddle.pipelines.serving.errors import ApiError

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "cut"}}
PICTURE = [{"type": "image_url", "image_url": {"url": "x"}}]
BROKEN = [{"type": "function", "function": {"name": "cut", "arguments": "{"}}]
NESTED = [{"function": {"name": "cut", "arguments": "[" * 100_000}}]


def named(name):
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        ({"temprature": 1}, "temprature", "body: wanted names that this endpoint knows, got 'temp"),
        ({"temperature": -1}, "temperature", "temperature: wanted a finite number, at least 0 and"),
        ({"temperature": "1"}, "temperature", "temperature: wanted a valid number, got '1'"),
        ({"temperature": True}, "temperature", "temperature: wanted a valid number, got True"),
        ({"top_p": 0}, "top_p", "top_p: wanted a number in (0, 1], got 0"),
        ({"max_tokens": 0}, "max_tokens", "max_tokens: wanted greater than or equal to 1, got 0"),
        ({"n": 129}, "n", "n: wanted less than or equal to 128, got 129"),
        ({"n": 65}, "n", "n: wanted at most 64 texts, got 65"),
        ({"prompt": ["x"] * 65}, "prompt", "prompt: wanted at most 64 texts, got 65"),
        # Before a request is made, which would say that it wants fewer tokens.
        (
            {"n": 2, "prompt": ["x"] * 40, "min_tokens": 9},
            "n",
            "n: wanted at most 64 texts, got 80",
        ),
        ({"seed": 1 << 63}, "seed", "seed: wanted a signed integer of 64 bits, got 9223372036854"),
        ({"stop": ""}, "stop", "stop: wanted a text that is not empty, or a list, got ''"),
        ({"stop": ["a", 3]}, "stop", "stop: wanted a text that is not empty, or a list, got ['a'"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "logit_bias: wanted none, this server does not"),
        ({"echo": True}, "echo", "echo: wanted none, this server does not have it"),
        ({"suffix": "x"}, "suffix", "suffix: wanted none, this server does not have it"),
        ({"prompt": 5}, "prompt", "prompt: wanted a text, tokens, a list of texts or of tokens, g"),
        ({"prompt": [-1]}, "prompt", "prompt: wanted a text, tokens, a list of texts or of tokens"),
        ({"prompt": None}, "prompt", "prompt: wanted a text, tokens, a list of texts or of tokens"),
        ({"model": 5}, "model", "model: wanted a valid string, got 5"),
    ],
)
def test_a_name_that_is_wrong_is_told(server, asked, param, message):
    status, body = server.post(COMPLETIONS, **{"prompt": "x", "max_tokens": 2, **asked})
    found = body["error"]
    assert (status, found["type"], found["param"]) == (400, "invalid_request_error", param)
    assert found["message"].startswith(message)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"prompt": ""}, "wanted a prompt of at least one token"),
        ({"prompt": [[]]}, "wanted a prompt of at least one token"),
        ({"prompt": [260]}, "wanted tokens below 260, got 260"),
        ({"prompt": "x" * 256}, "wanted a prompt of at most 255 tokens, got 256"),
        ({"prompt": "\ud800"}, "prompt: wanted a text in UTF-8, got '\\ud800' at 0"),
        ({"guided_regex": "("}, "regex: wanted a grammar that llguidance takes, got: "),
        ({"response_format": {"type": "xml"}}, "response format: wanted type 'text', 'json_obje"),
        ({"min_tokens": 9}, "wanted min_new_tokens of at most 2, as max_new_tokens says, got 9"),
    ],
)
def test_what_the_generator_refuses_is_told_in_its_words(server, asked, message):
    ended = server.metric("heddle_requests_total", finish_reason="refused")
    status, body = server.post(COMPLETIONS, **{"prompt": "x", "max_tokens": 2, **asked})
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert message in body["error"]["message"]
    by_the_generator = "response_format" not in asked
    now = server.metric("heddle_requests_total", finish_reason="refused")
    assert now == ended + by_the_generator


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        ({"messages": []}, "messages", "messages: wanted to have at least 1 item"),
        ({"messages": [{"role": "robot"}]}, "messages", "messages: wanted 'system', 'developer'"),
        (
            {"messages": [{"role": "user", "content": PICTURE}]},
            "messages",
            "messages: wanted parts of type 'text', got 'image_url'; a text generator sees no",
        ),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages",
            "messages: wanted content as a text or a list of parts, got 5",
        ),
        ({"messages": [{"role": "user"}]}, None, "message: wanted content as a text or a list of"),
        (
            {"messages": [{"role": "assistant", "tool_calls": BROKEN}]},
            "messages",
            "messages: wanted arguments of 'cut' as JSON: Expecting",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": NESTED}]},
            "messages",
            "messages: wanted arguments of 'cut' as JSON: maximum recursion",
        ),
        ({"top_logprobs": 2}, "top_logprobs", "top_logprobs: wanted logprobs beside it, got none"),
        ({"functions": [{}]}, "functions", "functions: wanted none, this server does not have it"),
        ({"modalities": ["audio"]}, "modalities", "modalities: wanted none, this server does not"),
        ({"tool_choice": "required"}, "tool_choice", "tool_choice: wanted tools beside it, got no"),
        (
            {"tool_choice": "some", "tools": [TOOL]},
            "tool_choice",
            "tool_choice: wanted 'none', 'auto', 'required' or a function, got 'some'",
        ),
        (
            {"tool_choice": named("weave"), "tools": [TOOL]},
            "tool_choice",
            "tool_choice: wanted a function of tools, got 'weave'",
        ),
        (
            {"tool_choice": "required", "tools": [TOOL], "guided_regex": "a"},
            "tool_choice",
            "tool_choice: wanted no other form of the answer, got one",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [TOOL],
                "response_format": {"type": "json_object"},
            },
            "tool_choice",
            "tool_choice: wanted no other form of the answer, got one",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            None,
            "request chatcmpl-",
        ),
    ],
)
def test_what_no_chat_is(server, asked, param, message):
    status, body = server.post(CHAT, **{"messages": HI, **asked})
    assert (status, body["error"]["param"]) == (400, param)
    assert body["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "message"),
    [
        ("POST", COMPLETIONS, b"{", 400, "body: wanted JSON, got an error: "),
        ("POST", COMPLETIONS, b"[]", 400, "body: wanted a valid dictionary"),
        ("POST", COMPLETIONS, b"", 400, "body: wanted a value, got nothing"),
        ("POST", COMPLETIONS, b"{}", 400, "model: wanted a value, got nothing"),
        ("POST", COMPLETIONS, b"[" * 5000, 400, ""),
        ("POST", COMPLETIONS, b"[" * 100_000, 400, "body: wanted JSON, got an error: maximum"),
        ("POST", COMPLETIONS, b'"\xff"', 400, "body: wanted JSON, got an error: 'utf-8' codec can"),
        ("POST", COMPLETIONS, b"9" * 5000, 400, "body: wanted JSON, got an error: Exceeds the lim"),
        ("GET", COMPLETIONS, b"", 405, "GET /v1/completions: wanted an endpoint of this server: M"),
        ("GET", "/v2", b"", 404, "GET /v2: wanted an endpoint of this server: Not Found"),
        ("GET", "/v1/models/big", b"", 404, "model: wanted one of tiny, got 'big'"),
    ],
)
def test_what_is_no_request(server, method, path, content, status, message):
    headers = {"content-type": "application/json"}
    response = server.client.request(method, path, content=content, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["message"].startswith(message)


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/x-www-form-urlencoded"}])
def test_a_body_of_another_type(server, headers):
    """Such as curl sends where it is not told."""
    response = server.client.post(COMPLETIONS, content=b'{"model": "tiny"}', headers=headers)
    assert response.status_code == 400
    message = "Content-Type: wanted application/json, got another type or none"
    assert response.json()["error"]["message"] == message


def test_a_model_that_is_not_there(server):
    status, body = server.post(CHAT, model="gpt", messages=HI)
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    status, body = server.post("/v1/embeddings", input="x")
    assert status == 400
    assert body["error"]["message"] == "model: wanted an embedder, got 'tiny', a text generator"


def test_a_key_is_wanted_of_who_uses_a_model(make_generator, make_server):
    server = make_server({"tiny": make_generator()}, api_keys=["one", "zwölf"])
    get = server.client.get
    assert get("/health").status_code == get("/metrics").status_code == 200
    for given in ({}, {"authorization": "Bearer three"}, {"authorization": "one"}):
        response = get("/v1/models", headers=given)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
    json = {"content-type": "application/json"}
    response = server.client.post(COMPLETIONS, content=b"{", headers=json)  # which is not read
    assert response.status_code == 401
    for given in ("Bearer one", "bearer zwölf"):
        assert get("/v1/models", headers={"authorization": given.encode()}).status_code == 200


def test_an_error_has_the_form_of_openai():
    assert ApiError(429, "no", "n", "full").body() == {
        "error": {"message": "no", "type": "rate_limit_error", "param": "n", "code": "full"}
    }
