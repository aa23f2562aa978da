"""The page that leads through writing a kernel: its commands run as they stand there."""

import re
import shlex
from pathlib import Path

from heddle.pipelines.bench import limits, tune
from heddle.pipelines.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "writing-a-kernel.md"

LIMITS = {
    "threads": 1,
    "read_gb_s": {"L1": 400.0, "L2": 200.0, "L3": 100.0, "memory": 40.0},
    "copy_gb_s": {"L1": 400.0, "L2": 200.0, "L3": 80.0, "memory": 50.0},
    "tflop_s": {"AVX-512 float32": 0.5},
    "call_us": 0.3,
    "others_share": 0.0,
    "date": "2026-01-01",
}


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
