"""What a chat template finds in messages."""

import pytest

from heddle.contexts.messages import TokenGeneratorRequestMessage
from heddle.pipelines.generation.chat_template import render
from heddle.pipelines.generation.messages import rows

CALLS = [{"id": "c", "type": "function", "function": {"name": "cut", "arguments": {}}}]
THOUGHT = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
CALLED = {"role": "assistant", "content": None, "tool_calls": CALLS}


@pytest.mark.parametrize(
    "template",
    [
        '{% if "thinking" in message %}{{ message.thinking }}{% endif %}',
        "{{ message['thinking'] }}",
        "{{ message.thinking }}",
    ],
)
def test_reasoning_has_the_name_that_a_template_reads(template):
    (row,) = rows([THOUGHT], template)
    assert row == {"role": "assistant", "content": "Yes.", "thinking": "Hm."}
    (row,) = rows([CALLED | THOUGHT], template)
    assert row == {**CALLED, "thinking": "Hm.\nYes."}
    (row,) = rows([CALLED | {"reasoning_content": "Hm."}], template)
    assert row == {**CALLED, "thinking": "Hm."}
    own = {"role": "assistant", "content": "Yes.", "thinking": "So."}
    assert rows([own], template) == [own]


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a ' + arguments + ' b' }}",
        "{{ 'a ' ~ arguments ~ ' b' }}",
        "a {{ arguments }} b",
        "a {{ arguments if arguments is string else arguments | tojson }} b",
        "a {{ arguments | tojson }} b",
        "a {% for n, v in arguments.items() %}{{ {n: v} | tojson }}{% endfor %} b",
        "a {% if arguments is mapping %}{{ arguments | string }}{% endif %} b",
    ],
)
def test_arguments_are_an_object_or_its_json(template):
    template = f"{{% set arguments = messages[0].tool_calls[0].function.arguments %}}{template}"
    call = {"type": "function", "function": {"name": "cut", "arguments": {"wo": "Köln"}}}
    given = rows([CALLED | {"tool_calls": [call]}], template)
    assert render(template, {"messages": given}) == 'a {"wo": "Köln"} b'


def test_arguments_that_are_no_object_stay():
    calls = [{"function": {"name": "cut", "arguments": "{}"}}, {"name": "cut"}]
    assert rows([CALLED | {"tool_calls": calls}], "")[0]["tool_calls"] == calls


@pytest.mark.parametrize(
    "template",
    [
        "{{ message.content }}",
        "{% if enable_thinking or thinking %}<think>{% endif %}",
        "{{ message.thinking or message.reasoning_content }}",
    ],
)
def test_reasoning_has_its_own_name_elsewhere(template):
    given = dict(THOUGHT)
    assert rows([given], template) == [THOUGHT]
    record = TokenGeneratorRequestMessage(**THOUGHT)
    assert rows([record], template) == [THOUGHT]


def test_a_message_has_no_content_where_a_template_looks_for_one():
    looks = '{% if "content" in message %}{{ message.content + "" }}{% endif %}'
    (row,) = rows([CALLED], looks)
    assert row == {"role": "assistant", "tool_calls": CALLS}
    assert rows([THOUGHT], looks) == [THOUGHT]
    for other in ("{{ message.content is none }}", '{% if "content" in part %}{% endif %}'):
        assert rows([CALLED], other) == [CALLED]
    assert rows([{"role": "assistant"}], "") == [{"role": "assistant", "content": None}]
