"""`POST /v1/chat/completions`: conversations, forms of answers, and calls of tools."""

import json

import pytest

from heddle.contexts import SamplingParams, TextGenerationRequest

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
KIND = {
    "type": "object",
    "properties": {"kind": {"enum": ["warp", "weft"]}},
    "required": ["kind"],
    "additionalProperties": False,
}
OF_REFERENCES = {**KIND, "properties": {"kind": {"$ref": "#/$defs/K"}}}
OF_REFERENCES["$defs"] = {"K": KIND["properties"]["kind"]}
WEAVE = {"type": "function", "function": {"name": "weave", "parameters": KIND, "strict": True}}
CUT = {"type": "function", "function": {"name": "cut", "description": "Ends it."}}


def message(found):
    (choice,) = found["choices"]
    return choice["message"]


def test_an_answer_is_the_generator_s(server, make_generator):
    params = SamplingParams(top_k=-1, max_new_tokens=12, seed=4)
    request = TextGenerationRequest("r", 0, "", messages=HI, sampling_params=params)
    text = "".join(delta.text for delta in make_generator().stream(request))
    found = server.ask(PATH, messages=HI, max_completion_tokens=12, seed=4)
    assert found["object"] == "chat.completion"
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert found["usage"]["prompt_tokens"] == len("<user>Hi") + 1
    first, *pieces = server.stream(PATH, messages=HI, max_tokens=12, seed=4)
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    *pieces, last = [piece["choices"][0] for piece in pieces]
    assert "".join(piece["delta"]["content"] for piece in pieces) == text
    assert (last["delta"], last["finish_reason"]) == ({}, "length")


def test_a_chat_has_no_limit_but_the_context(server):
    usage = server.ask(PATH, messages=HI, ignore_eos=True)["usage"]
    assert usage["total_tokens"] == 256


def test_log_probabilities_come_with_bytes(server):
    asked = {"messages": HI, "guided_regex": "weft", "logprobs": True}
    (choice,) = server.ask(PATH, **asked, top_logprobs=1)["choices"]
    rows = choice["logprobs"]["content"]
    assert [row["token"] for row in rows] == list("weft")
    assert [row["bytes"] for row in rows] == [list(letter.encode()) for letter in "weft"]
    for row in rows:
        (best,) = row["top_logprobs"]
        assert best["logprob"] >= row["logprob"]
        assert (best["bytes"] is None) == ("\ufffd" in best["token"])
    pieces = server.stream(PATH, **asked)
    entries = [p["choices"][0]["logprobs"] for p in pieces if p["choices"][0]["logprobs"]]
    assert [e["content"][0]["token"] for e in entries] == list("weft")
    assert entries[0]["content"][0]["top_logprobs"] == []


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (
            {"type": "json_schema", "json_schema": {"name": "k", "strict": True, "schema": KIND}},
            KIND,
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "k", "schema": {"const": 7}}},
            {"const": 7},
        ),
    ],
)
def test_an_answer_has_the_form_of_a_schema(server, form, schema):
    found = server.ask(PATH, messages=HI, response_format=form, seed=1)
    value = json.loads(message(found)["content"])
    assert value == 7 if schema == {"const": 7} else value["kind"] in ("warp", "weft")
    assert found["choices"][0]["finish_reason"] == "stop"


def test_an_answer_is_any_object(server):
    form = {"type": "json_object"}
    text = message(server.ask(PATH, messages=HI, response_format=form, seed=1))["content"]
    assert text.startswith("{")


@pytest.fixture
def told(server):
    """What the chat template of the server is told from here on."""
    tokenizer = server.service.engines["tiny"].generator.tokenizer
    plain = tokenizer.template
    tokenizer.template = "{{ [messages, tools, deep] | tojson }}"
    seen = []
    encode = tokenizer.encode
    tokenizer.encode = lambda text, **options: seen.append(text) or encode("x", **options)
    yield seen
    tokenizer.template = plain
    del tokenizer.encode


def test_the_template_is_told_all_of_a_conversation(server, told):
    call = {"id": "c1", "type": "function", "function": {"name": "cut", "arguments": '{"a": 1}'}}
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "!"}],
        },
        {"role": "user", "content": "Hi", "name": "Ann"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [call],
            "refusal": None,
        },
        {"role": "tool", "content": "done", "tool_call_id": "c1"},
    ]
    server.ask(
        PATH,
        messages=messages,
        tools=[WEAVE, CUT],
        chat_template_kwargs={"deep": False},
        max_tokens=2,
        parallel_tool_calls=True,
    )
    call["function"]["arguments"] = {"a": 1}
    assert json.loads(told[0]) == [
        [
            {"role": "system", "content": "Be !"},
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call],
                "reasoning_content": "Hm.",
            },
            {"role": "tool", "content": "done", "tool_call_id": "c1"},
        ],
        [
            {
                "type": "function",
                "function": {"name": "weave", "description": "", "parameters": KIND},
            },
            {
                "type": "function",
                "function": {"name": "cut", "description": "Ends it.", "parameters": {}},
            },
        ],
        False,
    ]


def test_a_call_of_nothing_may_have_empty_arguments(server, told):
    call = {"id": "c1", "type": "function", "function": {"name": "cut", "arguments": " "}}
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}]
    options = {"tools": [CUT], "chat_template_kwargs": {"deep": 1}}
    server.ask(PATH, messages=messages, max_tokens=1, **options)
    (shown,) = json.loads(told[0])[0][1]["tool_calls"]
    assert shown["function"]["arguments"] == {}


def test_a_template_may_take_arguments_for_a_text(server, told):
    """As those of DeepSeek V3 and R1 do."""
    call = {"id": "c1", "type": "function", "function": {"name": "cut", "arguments": '{"a": 1}'}}
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}]
    tokenizer = server.service.engines["tiny"].generator.tokenizer
    tokenizer.template = "{{ 'json: ' + messages[1].tool_calls[0].function.arguments + '.' }}"
    server.ask(PATH, messages=messages, max_tokens=1)
    assert told == ['json: {"a": 1}.']


def test_a_prompt_is_made_once_for_all_choices(server, told):
    server.ask(PATH, messages=HI, n=3, max_tokens=1, chat_template_kwargs={"deep": 1}, tools=[CUT])
    assert len(told) == 1


def test_an_effort_of_reasoning_is_told_or_refused(server, told, monkeypatch):
    tokenizer = server.service.engines["tiny"].generator.tokenizer
    asked = {"messages": HI, "max_tokens": 1, "reasoning_effort": "low"}
    status, body = server.post(PATH, **asked)
    assert (status, body["error"]["param"]) == (400, "reasoning_effort")
    with monkeypatch.context() as of_tools:
        of_tools.setattr(tokenizer, "tool_template", "{{ reasoning_effort }}!")
        server.ask(PATH, **asked, tools=[CUT])
    tokenizer.template = "{{ reasoning_effort }}"
    server.ask(PATH, **asked)
    assert told == ["low!", "low"]


def test_tools_that_may_not_be_called_are_not_shown(server, told):
    asked = {"messages": HI, "tools": [CUT], "max_tokens": 1, "chat_template_kwargs": {"deep": 1}}
    for choice, shown in (("auto", True), (None, True)):
        server.ask(PATH, tool_choice=choice, **asked)
        assert ("cut" in told.pop()) == shown
    server.service.engines["tiny"].generator.tokenizer.template = "{{ tools is none }}"
    server.ask(PATH, tool_choice="none", **asked)
    assert told.pop() == "True"


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([WEAVE, CUT], {"type": "function", "function": {"name": "weave"}}),
        ([WEAVE], "required"),
        ([WEAVE, {**WEAVE, "function": {**WEAVE["function"], "name": "weave again"}}], "required"),
        (
            [
                {"type": "function", "function": {"name": n, "parameters": OF_REFERENCES}}
                for n in "ab"
            ],
            "required",
        ),
    ],
)
def test_a_tool_has_to_be_called(server, tools, choice):
    asked = {"messages": HI, "tools": tools, "tool_choice": choice, "seed": 2}
    asked["response_format"] = {"type": "text"}  # which is none
    found = server.ask(PATH, **asked)
    assert found["choices"][0]["finish_reason"] == "tool_calls"
    assert message(found)["content"] is None
    (call,) = message(found)["tool_calls"]
    assert call["id"].startswith("call_")
    function = call["function"]
    assert function["name"] in [tool["function"]["name"] for tool in tools]
    assert json.loads(function["arguments"])["kind"] in ("warp", "weft")
    pieces = [piece["choices"][0] for piece in server.stream(PATH, **asked)]
    assert pieces[-1]["finish_reason"] == "tool_calls"
    calls = [piece["delta"]["tool_calls"][0] for piece in pieces if "tool_calls" in piece["delta"]]
    assert {each["index"] for each in calls} == {0}
    assert [each["function"]["name"] for each in calls if "name" in each["function"]] == [
        function["name"]
    ]
    assert "".join(each["function"]["arguments"] for each in calls) == function["arguments"]


def test_a_call_that_is_cut_off_before_it_says_which_is_text(server):
    tools = [WEAVE, {**WEAVE, "function": {**WEAVE["function"], "name": "weave again"}}]
    asked = {"messages": HI, "tools": tools, "tool_choice": "required", "max_tokens": 3, "seed": 2}
    found = server.ask(PATH, **asked)
    assert found["choices"][0]["finish_reason"] == "length"
    assert message(found)["content"].startswith("{")
    pieces = server.stream(PATH, **asked)
    said = [piece["choices"][0]["delta"].get("content", "") for piece in pieces]
    assert "".join(said) == message(found)["content"]
