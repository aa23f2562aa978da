"""The page that leads through writing a kernel: its commands run as they stand there."""

import re
import shlex
from pathlib import Path

from bench_commands import LIMITS

from heddle.pipelines.bench import limits, tune
from heddle.pipelines.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "writing-a-kernel.md"


def test_the_commands_of_the_page(heddle, monkeypatch, tmp_path):
    """In their order and in one folder; without measuring limits, and with fewer processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limits, "of", lambda threads, again=False: LIMITS)
    monkeypatch.setattr(tune, "PROCESSES", 1)
    commands = re.findall(r"^    heddle (.+)$", PAGE.read_text(), re.M)
    seen = set()
    for command in commands:
        words = shlex.split(command)
        code = None if words[:2] == ["bench", "compare"] else 0  # that depends on the times
        result = heddle(*words, code=code)
        assert result.stdout.strip(), command
        seen.add(tuple(words[:2]))
    assert {("inspect", "--kernel"), ("bench", "run"), ("bench", "tune")} <= seen
    assert (tmp_path / "after.jsonl").exists()
    assert list((tmp_path / "my-tables").glob("*.json"))
    assert "tune" in main.commands["bench"].commands
