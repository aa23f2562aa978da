"""Results of tools are kept by what made them, and nothing else is."""

import kept
import pytest

from heddle.graph.compiler.codegen import cpu, cuda, ptx
from heddle.kernels.registry import MACHINES


def double(text, machine):
    calls.append(text)
    if text == "bad":
        raise ValueError(text)
    return text.encode() * 2


calls: list[str] = []


@pytest.fixture
def keeper(tmp_path):
    calls.clear()
    return lambda tool="tool 1": kept.kept(tmp_path / "tools", double, tool)


def test_a_result_is_made_once(keeper):
    for _ in range(2):
        assert keeper()("text", MACHINES["x86-64-v3"]) == b"texttext"
    assert calls == ["text"]


def test_whatever_it_is_made_from_counts(keeper):
    keeper()("text", MACHINES["x86-64-v3"])
    keeper()("text ", MACHINES["x86-64-v3"])
    keeper()("text", MACHINES["x86-64-v4"])
    keeper("tool 2")("text", MACHINES["x86-64-v3"])
    assert calls == ["text", "text ", "text", "text"]


def test_failures_and_addresses_are_not_kept(keeper):
    text = "call void inttoptr (i64 4711 to ptr)()"
    for _ in range(2):
        keeper()(text, None)
        with pytest.raises(ValueError, match="bad"):
            keeper()("bad", None)
    assert calls == [text, "bad"] * 2


def test_live_tools_run(keeper, live_tools):
    for _ in range(2):
        keeper()("text", None)
    assert calls == ["text", "text"]


def test_all_tools_are_around(monkeypatch, tmp_path):
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path))
    kept.install(monkeypatch)
    tools = [cpu.to_object, cuda._generate, ptx.with_ptxas, ptx.with_nvjitlink]
    assert [tool.__code__.co_name for tool in tools] == ["call"] * 4
    assert [run for _, run in ptx._ASSEMBLERS] == tools[2:]
