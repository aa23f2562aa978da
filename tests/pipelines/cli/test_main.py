"""What all commands have in common."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from heddle.pipelines.cli import main
from heddle.runtime.errors import ArtifactError

COMMANDS = ("compile", "inspect", "verify", "run", "bench", "doctor", "embed")
PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()


def test_every_command_is_there():
    assert sorted(main.commands) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_parse(heddle, command):
    text = heddle(command, "--help").output
    examples = re.findall(rf"^ +heddle {command}\b(.*)$", text.split("Examples:")[1], re.M)
    assert examples
    known = {name for option in main.commands[command].params for name in option.opts}
    for example in examples:
        ours = example.split(" | ")[0]
        assert set(re.findall(r"(?<= )--?[a-z-]+", ours)) <= known


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_documented(command):
    section = PAGE.split(f"\n## {command}\n")[1].split("\n## ")[0]
    for option in main.commands[command].params:
        for name in option.opts:
            assert not name.startswith("-") or f"`{name}`" in section or name in section, name


def test_an_error_is_one_sentence_on_stderr(heddle, tmp_path):
    result = heddle("verify", tmp_path / "none.heddle", code=1)
    assert result.stdout == ""
    assert re.fullmatch(r"error: .*none\.heddle: .*\n", result.stderr)


def test_debug_shows_the_traceback(heddle, tmp_path):
    result = heddle("--debug", "verify", tmp_path / "none.heddle", code=1)
    assert isinstance(result.exception, ArtifactError)


def test_a_wrong_command_line_exits_with_2(heddle):
    assert "No such option" in heddle("verify", "--nope", code=2).stderr
    assert "Missing argument" in heddle("inspect", code=2).stderr


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlir", "torch_mlir", "llvmlite", "elftools"):
            raise ImportError(f"blocked: {name}")
sys.meta_path.insert(0, Block())
from heddle.pipelines.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "{artifact}"),
        ("verify", "{artifact}", "--weights", "{weights}"),
        ("run", "{artifact}", "--repeat", "1"),
        ("doctor", "{artifact}"),
        ("embed", "{artifact}", "--tokenizer", "{tokenizer}", "loom", "reed"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_only_compile_needs_the_compiler(arguments, tiny, tiny_artifact):
    files = {
        "artifact": tiny_artifact,
        "weights": tiny / "model.safetensors",
        "tokenizer": tiny / "tokenizer.json",
    }
    command = [argument.format(**files) for argument in arguments]
    subprocess.run([sys.executable, "-c", BLOCKED, *command], check=True, timeout=60)
