"""Chat templates: which one it is, what it finds, and what is wrong with it."""

import json

import pytest
from tokenizer_folders import changed

from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.runtime.errors import InputError


@pytest.fixture
def tokenizer(decoder):
    return TextTokenizer(decoder)


def test_a_chat(tokenizer):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    assert tokenizer.chat(messages) == "<user>Hi<assistant>Ho<s>"


def test_templates_and_what_is_wrong_with_them(tmp_path, decoder):
    with pytest.raises(InputError, match="wanted a chat template for messages, got none"):
        TextTokenizer(changed(tmp_path, decoder)).chat([])
    refusing = "{{ raise_exception('no ' + messages[0].role) }}"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": refusing}]
    changed(tmp_path, decoder, tokenizer_config={"chat_template": named})
    with pytest.raises(InputError, match="chat template: no tool"):
        TextTokenizer(tmp_path).chat([{"role": "tool", "content": ""}])
    changed(tmp_path, decoder, tokenizer_config={"chat_template": [{"name": "default"}]})
    with pytest.raises(InputError, match="wanted a chat template, got KeyError"):
        TextTokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(InputError, match="wanted a chat template, got UnicodeDecodeError"):
        TextTokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(InputError, match=r"chat template: .*unsafe"):
        TextTokenizer(tmp_path).chat([])


def test_a_template_finds_the_special_tokens_that_there_are(tmp_path, decoder):
    """Those of an older file, too, where the newer one is not told of all tokens."""
    template = "{{ bos_token }},{{ cls_token }},{{ image_token }},{{ pad_token is defined }}"
    config = {"chat_template": template, "bos_token": "<s>", "image_token": {"content": "<i>"}}
    older = {"bos_token": "<b>", "cls_token": "<c>", "add_bos_token": True}
    changed(tmp_path, decoder, tokenizer_config=config, special_tokens_map=older)
    assert TextTokenizer(tmp_path).chat([]) == "<b>,<c>,<i>,False"
    changed(tmp_path, decoder, tokenizer_config=config | {"added_tokens_decoder": {}})
    assert TextTokenizer(tmp_path).chat([]) == "<s>,,<i>,False"


@pytest.mark.parametrize("how", ["list", "object", "files"])
def test_a_template_of_its_own_for_tools(tmp_path, decoder, how):
    """As transformers chooses one of several by their names."""
    named = {"default": "{{ tools }}", "tool_use": "{{ tools[0].name }}", "rag": "{{ 1 / 0 }}"}
    rows = [{"name": name, "template": template} for name, template in named.items()]
    changed(tmp_path, decoder, tokenizer_config={"chat_template": rows if how == "list" else named})
    if how == "files":
        changed(tmp_path, decoder, tokenizer_config={"chat_template": "another"})
        (folder := tmp_path / "additional_chat_templates").mkdir()
        for name in ("tool_use", "rag"):
            (folder / f"{name}.jinja").write_text(named[name])
        (tmp_path / "chat_template.jinja").write_text(named["default"])
    tokenizer = TextTokenizer(tmp_path)
    assert tokenizer.chat([]) == "None"
    assert tokenizer.chat([], tools=[{"name": "cut"}]) == "cut"


def test_a_template_needs_jinja2(tokenizer, monkeypatch):
    modules = __import__("sys").modules
    monkeypatch.delitem(modules, "heddle.pipelines.generation.chat_template", raising=False)
    monkeypatch.setitem(modules, "jinja2", None)
    with pytest.raises(InputError, match="wanted the package jinja2, which is not installed"):
        tokenizer.chat([])


TOOL = {"type": "function", "function": {"name": "größe", "description": "a < b & it's", "b": 1}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ tools[0] | tojson }}", json.dumps(TOOL, ensure_ascii=False)),
        ("{{ tools[0] | tojson(indent=4) }}", json.dumps(TOOL, ensure_ascii=False, indent=4)),
        ("{{ '\"f\": ' + tools[0].function.name | tojson }}", '"f": "größe"'),
        ("{% for m in messages %}{{ m.content + '.' }}{% break %}{% endfor %}", "Hi."),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ messages[1].content }}", "Ho, ho"),
        ("{% generation %}Hi{% set marked = 1 %}{% endgeneration %}{{ marked }}", "Hi"),
        ("{{ [documents is none, add_generation_prompt] }}", "[True, True]"),
    ],
)
def test_templates_find_what_they_are_written_for(tmp_path, decoder, template, text):
    changed(tmp_path, decoder, tokenizer_config={"chat_template": template})
    parts = [{"type": "text", "text": "Ho, "}, {"type": "text", "text": "ho"}]
    messages = [{"role": "user", "content": "Hi"}, {"role": "user", "content": parts}]
    options = {"tools": [TOOL], "messages": "ignored", "self": 1}
    assert TextTokenizer(tmp_path).chat(messages, **options) == text


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ nothing.at.all }}"])
def test_a_template_that_fails_is_told_as_such(tmp_path, decoder, template):
    changed(tmp_path, decoder, tokenizer_config={"chat_template": template})
    with pytest.raises(InputError, match=r"^chat template: "):
        TextTokenizer(tmp_path).chat([{"role": "user", "content": "Hi"}])
