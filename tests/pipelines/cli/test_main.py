"""What all commands have in common."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from heddle.pipelines.cli import main
from heddle.runtime.errors import ArtifactError

COMMANDS = ("compile", "inspect", "verify", "run", "bench", "doctor", "embed", "rank", "generate")
COMMANDS += ("serve",)
PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()


def test_every_command_is_there():
    assert sorted(main.commands) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("missing", "output", "code", "text"),
    [
        ("none_such", "stdout", 0, "heddle, version"),
        ("click", "stderr", 1, "error: the command line wants click, which is not installed; pip"),
        ("heddle.runtime", "stderr", 1, "Traceback"),
    ],
)
def test_the_command_says_what_it_needs(missing, output, code, text):
    program = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['heddle', '--version']\n"
    program += "from heddle.pipelines.command import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code
    assert text in getattr(done, output)


def test_an_interrupt_while_it_starts_is_one_word():
    program = "import builtins\nfrom heddle.pipelines.command import main\n"
    program += "def stop(*names):\n    raise KeyboardInterrupt\nbuiltins.__import__ = stop\nmain()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Aborted!\n")


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


def test_an_error_of_the_system_begins_with_the_file(heddle, tmp_path):
    path = tmp_path / "none.jsonl"
    result = heddle("bench", "plot", path, code=1)
    assert result.stderr == f"error: {path}: No such file or directory\n"


def test_debug_shows_the_traceback(heddle, tmp_path):
    result = heddle("--debug", "verify", tmp_path / "none.heddle", code=1)
    assert isinstance(result.exception, ArtifactError)


def test_a_wrong_command_line_exits_with_2(heddle):
    assert "No such option" in heddle("verify", "--nope", code=2).stderr
    assert "Missing argument" in heddle("verify", code=2).stderr


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlir", "torch_mlir", "llvmlite", "elftools"):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)
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


def test_compiling_without_the_compiler_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, "compile", "minilm", "-o", "/dev/null"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: MLIR Python bindings: wanted mlir or torch_mlir"), (
        done.stderr
    )
    assert "pip install 'heddle[compiler]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_warnings_are_printed_as_messages(heddle, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "model.py").write_text(
        "from heddle.graph import DType, Graph, TensorType, ops\n"
        "def build():\n"
        "    with Graph('g', [TensorType(DType.float32, [3])]) as graph:\n"
        "        graph.output(ops.exp(graph.inputs[0]))\n"
        "    return graph\n"
    )
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path / "file"))
    output = ("--output", tmp_path / "g.heddle", "-t", "cpu:x86-64-v3")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = heddle("compile", f"{tmp_path}/model.py:build", *output)
    (line,) = [line for line in result.stderr.splitlines() if "cache" in line]
    assert line.startswith("warning: kernel cache ")
    assert line.endswith("; compiling without it")


def test_the_help_says_what_the_exit_codes_mean(heddle):
    text = " ".join(heddle("--help").output.split())
    codes = re.findall(r"^\| (\d) \| (.*) \|$", PAGE, re.M)
    assert len(codes) == 3
    for code, meaning in codes:
        assert f"{code} {meaning}" in text


def test_a_reader_that_has_enough_ends_it_without_a_word():
    """As `head` does."""
    program = "from heddle.pipelines.command import main; main()"
    command = [sys.executable, "-c", program, "compile", "--help"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as run:
        run.stdout.close()
        assert run.stderr.read() == ""
    assert run.returncode == 1
