"""`heddle serve`: a process behind a socket, and what its command line refuses."""

import importlib
import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from heddle.pipelines.cli import source
from heddle.pipelines.cli.console import packages_of
from heddle.pipelines.cli.serve import from_checkpoint, is_checkpoint, names_of
from heddle.pipelines.serving import app, server
from heddle.pipelines.serving.app import Settings
from heddle.runtime.errors import InputError

HEDDLE = (sys.executable, "-c", "from heddle.pipelines.command import main; main()")
COMMAND = "heddle.pipelines.cli.serve"
LONG = {"prompt": "Warp", "max_tokens": 240, "ignore_eos": True, "n": 16}


@contextmanager
def served(*arguments):
    """A process that serves, and what its first line says."""
    command = [*HEDDLE, "serve", *map(str, arguments), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_process_answers_until_it_is_told_to_stop(decoder, tiny_artifact, tiny, reranker, stop):
    """It says where it is found, and ends what runs before it goes."""
    encoder = (tiny_artifact, "--tokenizer", tiny) if stop == signal.SIGTERM else (tiny,)
    called = ["writer", "encoder", "ranker"]
    names = [option for name in called for option in ("--name", name)]
    with served(decoder, *encoder, reranker, *names, "--threads", 1) as (process, said):
        found = re.fullmatch(r"writer, encoder, ranker: (http://127\.0\.0\.1:\d+/v1)\n", said)
        with httpx.Client(base_url=found[1], timeout=60) as client:
            assert [row["id"] for row in client.get("/models").json()["data"]] == called
            asked = {"model": "encoder", "input": "warp"}
            assert len(client.post("/embeddings", json=asked).json()["data"]) == 1
            asked = {"model": "ranker", "query": "warp", "documents": ["loom", "reed"]}
            assert len(client.post("/rerank", json=asked).json()["results"]) == 2
            asked = {"model": "writer", "stream": True, **LONG}
            with client.stream("POST", "/completions", json=asked) as response:
                lines = response.iter_lines()
                first = json.loads(next(lines).removeprefix("data: "))
                process.send_signal(stop)
                *_, last = filter(None, lines)
        assert (first["model"], last) == ("writer", "data: [DONE]")
        assert process.wait(30) == 0
        assert process.stdout.read() == process.stderr.read() == ""


def test_a_port_that_is_taken_is_told_before_anything_is_compiled(heddle, decoder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = heddle("serve", decoder, "--port", port, code=1)
    wanted = f"error: 127.0.0.1:{port}: wanted an address to listen at, got: Address already in use"
    assert result.stderr == f"{wanted}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["m", "m"], 2, "--name: wanted names of their own, got decoder0, decoder0"),
        (
            ["m", "--name", "a", "--name", "b"],
            2,
            "--name: wanted one for each of 1 models, got a, b",
        ),
        (["m", "--api-key", ""], 2, "--api-key: wanted a key, got an empty one"),
        (["m", "--weights", "e"], 2, "--weights: wanted one artifact as MODEL, and nothing else"),
        (
            ["e", "--quantize", "int4"],
            2,
            "--quantize: wanted a folder or a GGUF file as MODEL, got",
        ),
        (["e", "--context", "8"], 2, "--context: wanted a folder or a GGUF file as MODEL, got an"),
        (["e", "--group", "64"], 2, "--group: wanted a folder or a GGUF file as MODEL, got an"),
        (["m", "--group", "64"], 2, "--group 64: wanted --quantize int8 or int4 beside it"),
        (["m", "--host", "no.such.host.invalid"], 1, "no.such.host.invalid:8000: wanted an addre"),
        (["m", "--port", "0", "--rows", "2000"], 1, "rows: wanted 1 to 1024, got 2000"),
        (
            ["m", "--tool-calls", "xml"],
            2,
            "--tool-calls: wanted auto, text, harmony, mistral, deepseek, qwen-coder, glm, "
            "hermes, llama, got 'xml'",
        ),
        (["nowhere"], 1, "nowhere: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said(heddle, decoder, tiny_artifact, arguments, code, message):
    names = {"m": decoder, "e": tiny_artifact}
    result = heddle("serve", *(names.get(a, a) for a in arguments), code=code)
    assert message in result.stderr


def test_a_folder_called_as_the_packaged_model_is_a_folder(tmp_path, monkeypatch):
    asked = []

    def of_checkpoint(found, *others):
        asked.append(found.folder)
        raise InputError("seen")

    monkeypatch.setattr(source, "of_checkpoint", of_checkpoint)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="seen"):
        from_checkpoint(Path("minilm"), None, None, 1, None)
    assert [folder.absolute() for folder in asked] == [tmp_path / "minilm"]


def test_artifacts_want_their_tokenizers(heddle, decoder, tmp_path):
    path = tmp_path / "small.heddle"
    heddle("compile", decoder, "-t", "cpu:native", "--embed-weights", "-o", path)
    result = heddle("serve", path, "--port", 0, code=2)
    wanted = f"--tokenizer: wanted the model's folder beside the artifact {path}, got none"
    assert wanted in result.stderr
    given = ("--tokenizer", decoder, "--tokenizer", decoder)
    result = heddle("serve", path, "--port", 0, *given, code=2)
    assert f"--tokenizer: wanted one for each artifact, got also {decoder}" in result.stderr
    with served(path, "--tokenizer", decoder) as (_, said):
        assert said.startswith("small: http://127.0.0.1:")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), Settings()),
        (("--tool-calls", "mistral"), Settings(calls="mistral")),
        (("--tool-calls", "text", "--reasoning", "text"), Settings("text", reasoning=False)),
        (("--generation-config", "off"), Settings(generation_config=False)),
    ],
)
def test_how_answers_are_read(heddle, decoder, decoder_model, monkeypatch, arguments, wanted):
    seen = []
    monkeypatch.setattr(sys.modules[COMMAND], "from_checkpoint", lambda *_: decoder_model)
    monkeypatch.setattr(app, "Service", lambda *given: seen.append(given[-1]))
    monkeypatch.setattr(app, "make_app", lambda service: None)
    monkeypatch.setattr(server, "serve", lambda *given: None)
    heddle("serve", decoder, "--port", 0, *arguments)
    assert seen == [wanted]


def test_models_are_called_as_their_folders_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [Path("."), Path("a/llama-3.1.gguf"), Path("b.heddle")]
    assert names_of(paths, []) == [tmp_path.name, "llama-3.1", "b"]
    assert [is_checkpoint(path) for path in paths] == [True, True, False]


def test_the_package_that_is_missing_is_named(heddle, decoder, monkeypatch):
    monkeypatch.delitem(sys.modules, "heddle.pipelines.serving.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = heddle("serve", decoder, code=1)
    sentence = "wanted the package fastapi, which is not installed; pip install 'heddle[serve]'"
    assert result.stderr == f"error: {sentence}\n"
    with pytest.raises(ModuleNotFoundError, match=r"none_such, .*\[x\]'$"), packages_of("x"):
        importlib.import_module("none_such")


def test_other_commands_load_no_server():
    code = "import sys, heddle.pipelines.cli as c; print([m for m in sys.modules if m in sys.argv])"
    names = ("fastapi", "uvicorn", "pydantic", "prometheus_client", "numpy")
    found = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
