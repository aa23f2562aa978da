"""Calls of tools and reasoning that a model writes in its own form, in answers and in streams."""

import json

import pytest
from served import Script
from tokenizers import AddedToken, Tokenizer

from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.serving.app import Settings

PATH = "/v1/chat/completions"
CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ bos_token }}{% endfor %}"
    "{% if think %}<think>\n{% endif %}{# </think> <tool_call> #}"
)
CUT = {"type": "function", "function": {"name": "cut", "parameters": {"type": "object"}}}
ASKED = {"messages": [{"role": "user", "content": "Hi"}], "tools": [CUT]}
CALLS = """<think>
Hm.
</think>

Yes. <tool_call>
{"name": "cut", "arguments": {"n":  1}}
</tool_call>
<tool_call>{"name": "cut", "arguments": {}}</tool_call>"""


@pytest.fixture(params=[False, True], ids=["text", "special"])
def folder(request, decoder, tmp_path):
    """A tokenizer whose markers are text, or those for beginnings special tokens."""
    tokenizer = Tokenizer.from_file(str(decoder / "tokenizer.json"))
    if request.param:
        marks = [AddedToken(text, special=True) for text in ("<think>", "<tool_call>")]
        tokenizer.add_special_tokens(marks)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = json.loads((decoder / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": CHAT}))
    return tmp_path


@pytest.fixture
def make_script(decoder_model, folder, make_server, monkeypatch):
    """Makes a server with such settings, and what its model is to say."""

    def make(**settings):
        generator = TextGenerator(decoder_model, TextTokenizer(folder), rows=1)
        server = make_server({"tiny": generator}, settings=Settings(**settings))
        return server, Script(generator, monkeypatch)

    return make


def answer(server, **asked):
    (choice,) = server.ask(PATH, **ASKED | asked)["choices"]
    return choice["message"], choice["finish_reason"]


def streamed(server, **asked):
    """The message of a stream, as clients put it together."""
    found = {"content": "", "reasoning_content": "", "tool_calls": []}
    for piece in server.stream(PATH, **ASKED | asked):
        (choice,) = piece["choices"]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            found[name] += delta.get(name, "")
        for call in delta.get("tool_calls", []):
            assert call.pop("index") == len(found["tool_calls"])
            found["tool_calls"].append(call)
    return found, choice["finish_reason"]


def functions(message):
    calls = message["tool_calls"]
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def test_calls_and_reasoning_come_apart_from_the_text(make_script):
    server, script = make_script()
    wanted = [("cut", '{"n":  1}'), ("cut", "{}")]
    script.say(CALLS)
    message, reason = answer(server)
    assert reason == "tool_calls"
    assert (message["content"], message["reasoning_content"]) == ("Yes.", "Hm.")
    assert functions(message) == wanted
    script.say(CALLS)
    message, reason = streamed(server)
    assert reason == "tool_calls"
    assert (message["content"], message["reasoning_content"]) == ("Yes.", "Hm.")
    assert functions(message) == wanted


def test_only_one_call_where_several_are_not_wanted(make_script):
    server, script = make_script()
    for ask in (answer, streamed):
        script.say(CALLS)
        message, reason = ask(server, parallel_tool_calls=False)
        assert (functions(message), reason) == ([("cut", '{"n":  1}')], "tool_calls")


def test_the_template_for_tools_shows_how_calls_are_written(make_script, folder):
    named = [
        {"name": "default", "template": "{{ messages[0].content }}"},
        {"name": "tool_use", "template": CHAT},
    ]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    server, script = make_script()
    script.say(CALLS)
    message, reason = answer(server)
    assert (len(functions(message)), reason) == (2, "tool_calls")


def test_log_probabilities_of_a_call_are_all_told(make_script):
    server, script = make_script()
    counts = []
    for whole in (True, False):
        script.say(CALLS)
        if whole:
            (choice,) = server.ask(PATH, **ASKED, logprobs=True)["choices"]
            parts = [choice["logprobs"]]
        else:
            pieces = server.stream(PATH, **ASKED, logprobs=True)
            parts = [piece["choices"][0]["logprobs"] for piece in pieces]
        counts.append(sum(len(part["content"]) for part in parts if part))
    tokenizer = server.service.engines["tiny"].generator.tokenizer
    assert counts == [len(tokenizer.encode(CALLS, add_special_tokens=False))] * 2


def test_reasoning_that_the_prompt_begins(make_script):
    server, script = make_script()
    script.say("Hm.</think> Yes.")
    message, _ = answer(server, chat_template_kwargs={"think": True})
    assert (message["content"], message["reasoning_content"]) == ("Yes.", "Hm.")
    script.say("Hm.")
    message, reason = answer(server, chat_template_kwargs={"think": True})
    assert (message["content"], message["reasoning_content"], reason) == (None, "Hm.", "stop")


def test_reasoning_that_a_user_seems_to_begin_is_none(make_script):
    """What stands between it and the answer may be special tokens alone."""
    server, script = make_script()
    script.say("Yes.")
    messages = [{"role": "user", "content": "What does <tool_call> mean, and <think>"}]
    message, _ = answer(server, messages=messages)
    assert message == {"role": "assistant", "content": "Yes.", "refusal": None}


def test_an_answer_that_is_cut_off(make_script):
    """Reasoning stays reasoning, and a call text; either goes into the next request as it is."""
    server, script = make_script()
    for text, most in ((CALLS, 10), (CALLS[CALLS.index("<tool") :], 20)):
        script.say(text)
        message, reason = answer(server, max_tokens=most)
        assert reason == "length"
        assert "tool_calls" not in message
        script.say("Yes.")
        assert answer(server, messages=[*ASKED["messages"], message])[0]["content"] == "Yes."
        script.say(text)
        found, reason = streamed(server, max_tokens=most)
        assert reason == "length"
        assert found["content"] == (message["content"] or "")
        assert found["reasoning_content"] == message.get("reasoning_content", "")


def test_a_stop_string_within_a_call(make_script):
    server, script = make_script()
    script.say(CALLS)
    message, reason = answer(server, stop='"n"')
    assert reason == "stop"
    assert message["content"] == 'Yes. <tool_call>\n{"name": "cut", "arguments": {'
    assert message["reasoning_content"] == "Hm."


def test_what_is_no_call_is_text(make_script):
    server, script = make_script()
    call = '<tool_call>{"name": "cut"}</tool_call>'
    for asked in ({"tool_choice": "none"}, {"tools": None}):
        script.say(call)
        message, reason = answer(server, **asked)
        assert (message["content"], reason) == (call, "stop")
        assert "tool_calls" not in message
    script.say(wrong := call.replace("cut", "spin"))
    assert streamed(server) == (
        {"content": wrong, "reasoning_content": "", "tool_calls": []},
        "stop",
    )


def test_what_the_server_leaves_in_the_text(make_script):
    server, script = make_script(calls="text", reasoning=False)
    script.say(CALLS)
    message, reason = answer(server)
    assert reason == "stop"
    assert message.keys() == {"role", "content", "refusal"}
    tokenizer = server.service.engines["tiny"].generator.tokenizer
    assert message["content"] == tokenizer.decode(tokenizer.encode(CALLS))
