"""`heddle generate`, and `heddle compile` of a language model."""

import importlib
import json
import re
import shutil
import sys

import numpy as np
import pytest

from heddle.pipelines.cli.console import packages_of_generate
from heddle.pipelines.generation import inputs
from heddle.pipelines.generation.step import StepModel
from heddle.runtime import Artifact
from heddle.runtime.errors import DeviceError


def test_a_prompt(heddle, decoder):
    result = heddle("generate", decoder, "--prompt", "Warp", "--max-tokens", 8, "--threads", 1)
    assert result.stdout.endswith("\n")
    assert "prefill: 4 tokens in" in result.stderr
    assert "decode: 7 tokens in" in result.stderr
    assert result.stderr.count("tokens/s") == 2


def test_several_prompts_as_json(heddle, decoder):
    arguments = ("--prompt", "Warp", "--prompt", "weft", "--regex", "(ab){2}!", "--json")
    report = json.loads(heddle("generate", decoder, *arguments).stdout)
    assert [row["text"] for row in report["texts"]] == ["abab!"] * 2
    assert {row["finish_reason"] for row in report["texts"]} == {"stop"}
    assert report["prefill"]["tokens"] == 8
    text = heddle("generate", decoder, *arguments[:-1]).stdout
    assert text == "abab!\n\nabab!\n"


def test_drafts(heddle, decoder):
    """They change no text, and how they fared is told."""
    asked = ("generate", decoder, "--prompt", "Warp", "--regex", "(warp and weft ){4}", "--json")
    plain, drafted = (json.loads(heddle(*asked, "--speculate", count).stdout) for count in (0, 4))
    assert drafted["texts"] == plain["texts"]
    assert plain["drafts"] == {"checked": 0, "right": 0}
    right = drafted["drafts"]["right"]
    assert drafted["drafts"]["checked"] == right > 40
    result = heddle(*asked[:-1], "--speculate", 4)
    assert result.stderr.endswith(f"drafts: {right} of {right} tokens were right\n")


def test_activations_in_8_bits(heddle, decoder):
    held = ("--quantize", "int4", "--group", 32, "--activations", "int8")
    stage = ("-t", "cpu", "--stop-after", "pack")
    module = heddle("compile", decoder, *held, *stage).stdout
    assert module.count("heddle.round_rows") > 0
    assert "heddle.quantized_matmul_packed" not in module
    report = json.loads(
        heddle("generate", decoder, *held, "--prompt", "Warp", "--max-tokens", 4, "--json").stdout
    )
    assert report["decode"]["tokens"] == 3


def test_an_artifact_with_its_weights(heddle, decoder, tmp_path):
    path = tmp_path / "small.heddle"
    held = ("--quantize", "int8", "--group", 32, "--dtype", "bfloat16")
    heddle("compile", decoder, "-t", "cpu:native", *held, "--embed-weights", "-o", path)
    kinds = {row["name"].rpartition(".")[2]: row["dtype"] for row in Artifact.load(path).weights}
    assert (kinds["integers"], kinds["scales"]) == ("int8", "bfloat16")
    common = ("--prompt", "Warp", "--max-tokens", 8, "--json")
    ready = json.loads(heddle("generate", path, "--tokenizer", decoder, *common).stdout)
    fresh = json.loads(heddle("generate", decoder, *held, *common).stdout)
    assert ready["texts"] == fresh["texts"]
    index = decoder / "model.safetensors.index.json"
    heddle("verify", path, "--weights", index)
    bare = tmp_path / "bare.heddle"
    heddle("compile", decoder, "-t", "cpu:native", *held, "-o", bare)
    given = ("--tokenizer", decoder, "--weights", index)
    assert json.loads(heddle("generate", bare, *given, *common).stdout)["texts"] == ready["texts"]


def test_a_chat_that_follows_a_schema(heddle, decoder, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["weft"]}')
    arguments = ("--chat", "--json-schema", schema, "--json")
    report = json.loads(heddle("generate", decoder, *arguments, text="Which one?").stdout)
    assert report["texts"][0]["text"].strip() == '"weft"'
    assert report["prefill"]["tokens"] == len("<user>Which one?") + 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["m", "--weights", "w"], 2, "--weights: wanted an artifact as MODEL, got a folder"),
        (
            ["a", "--dtype", "float16"],
            2,
            "--dtype: wanted a folder or a GGUF file as MODEL, got another file",
        ),
        (
            ["a", "--quantize", "int4"],
            2,
            "--quantize: wanted a folder or a GGUF file as MODEL, got another file",
        ),
        (
            ["a", "--activations", "int8"],
            2,
            "--activations: wanted a folder or a GGUF file as MODEL, got another file",
        ),
        (
            ["m", "--quantize", "float", "--group", "64"],
            2,
            "--group 64: wanted --quantize int8 or int4 beside it",
        ),
        (
            ["m", "--quantize", "float", "--activations", "int8"],
            2,
            "--activations int8: wanted no --quantize float beside it",
        ),
        (
            ["a", "--group", "128"],
            2,
            "--group: wanted a folder or a GGUF file as MODEL, got another file",
        ),
        (["a", "--context", 8], 2, "--context: wanted a folder or a GGUF file as MODEL, got ano"),
        (
            ["a"],
            2,
            "--tokenizer: wanted the model's folder beside an artifact, got none; a model that is "
            "not compiled is given as its folder",
        ),
        (["m", "--json-schema", "a"], 1, "wanted a JSON schema: Expecting value, line 1\n"),
        (["a", "--temperature", "-1"], 2, "temperature: wanted a finite number, at least 0"),
        (
            ["a", "--seed", 1 << 63],
            2,
            "SamplingParams.seed: wanted a signed integer of 64 bits, got",
        ),
        (["m", "--prompt", "\udcff"], 1, "error: prompt: wanted a text in UTF-8, got '\\udcff' at"),
        (["m", "--quantize", "int8"], 1, "wanted inputs in whole groups of 128, got 64"),
    ],
)
def test_what_is_wrong_is_said(heddle, decoder, tmp_path, arguments, code, message):
    file = tmp_path / "file"
    file.write_text("no")
    names = {"m": decoder, "a": file, "w": file}
    result = heddle("generate", *(names.get(a, a) for a in arguments), "--prompt", "x", code=code)
    assert message in result.stderr


def test_an_artifact_wants_its_weights_and_a_tokenizer(heddle, decoder, tmp_path):
    """The tokenizer by its folder or its file, as `heddle embed` takes it."""
    bare, whole = tmp_path / "bare.heddle", tmp_path / "whole.heddle"
    heddle("compile", decoder, "-t", "cpu:native", "-o", bare)
    result = heddle("generate", bare, "--tokenizer", decoder, "--prompt", "x", code=1)
    assert result.stderr == (
        f"error: {bare}: wanted --weights, a file with 21 weights: model.embed_tokens.weight, "
        "model.layers.0.input_layernorm.weight, model.layers.0.self_attn.q_proj.weight and 18 "
        "more, got none; or compile it with --embed-weights\n"
    )
    heddle("compile", decoder, "-t", "cpu:native", "--embed-weights", "-o", whole)
    common = ("generate", whole, "--prompt", "x", "--max-tokens", "4", "--tokenizer")
    texts = [heddle(*common, given).stdout for given in (decoder, decoder / "tokenizer.json")]
    assert texts[0] == texts[1] != ""
    result = heddle(*common, decoder / "config.json", code=1)
    assert "--tokenizer: wanted a folder with tokenizer.json, got the file " in result.stderr


def test_the_model_s_files_say_how_tokens_are_drawn(
    heddle, decoder, decoder_model, tmp_path, monkeypatch
):
    """Where the command line does not; it takes the likeliest ones by itself."""
    drawn = []
    run = StepModel.run
    monkeypatch.setattr(
        StepModel,
        "run",
        lambda self, contexts, *more: (
            drawn.append(contexts[0].sampling_params) or run(self, contexts, *more)
        ),
    )
    command = sys.modules["heddle.pipelines.cli.generate"]
    monkeypatch.setattr(command, "from_artifact", lambda *_: decoder_model)
    shutil.copy(decoder / "tokenizer.json", tmp_path)
    said = {"temperature": 0.5, "top_k": 7, "repetition_penalty": 1.25}
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    (tmp_path / "m").touch()
    common = ("generate", tmp_path / "m", "--tokenizer", tmp_path, "--prompt", "x")
    for arguments, wanted in (
        ((), (0.5, 7, 1.25)),
        (("--top-k", 3), (0.5, 3, 1.25)),
        (("--temperature", 0, "--repetition-penalty", 1), (0, 7, 1)),
        (("--generation-config", "off"), (0, -1, 1)),
    ):
        heddle(*common, *arguments, "--max-tokens", 1)
        found = drawn.pop()
        assert (found.temperature, found.top_k, found.repetition_penalty) == wanted


@pytest.mark.parametrize("kind", ["llamaX", None, ["llama"]])
def test_a_model_of_no_known_kind(heddle, tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    result = heddle("compile", tmp_path, code=1)
    got = re.escape(repr(kind))
    wanted = rf"config\.json: model_type: wanted one of .*llama, .*bert, .*, got {got}\n"
    assert re.search(wanted, result.stderr)


@pytest.mark.parametrize("option", ["--quantize", "--activations"])
def test_only_language_models_are_quantized(heddle, tiny, option):
    result = heddle("compile", tiny, option, "int8", code=1)
    assert f"{option}: wanted a language model, got" in result.stderr


def test_activations_are_rounded_beside_integers(heddle, decoder):
    result = heddle("generate", decoder, "--prompt", "x", "--activations", "int8", code=1)
    assert "activations: wanted weights in integers in" in result.stderr


def test_a_step_is_timed(heddle, decoder, tmp_path):
    """`heddle run` makes offsets and tables that a language model takes."""
    path = tmp_path / "small.heddle"
    heddle("compile", decoder, "-t", "cpu:native", "--embed-weights", "-o", path)
    dims = ("--dim", "rows=2", "--dim", "tokens=6", "--dim", "row_blocks=3")
    report = json.loads(heddle("run", path, *dims, "--repeat", 1, "--profile", "--json").stdout)
    assert report["inputs"]["blocks"] == [2, 3]
    assert report["inputs"]["keys0"] == [6, 16, 2, 16]
    assert report["outputs"]["next_tokens"]["shape"] == [2]
    assert any("paged_attention" in row["label"] for row in report["kernels"])
    result = heddle("run", path, "--dim", "rows=2", "--dim", "tokens=3", code=1)
    wanted = "step: wanted tokens as a multiple of rows, 2, with 1 to 16 for each, got 3\n"
    assert result.stderr == f"error: {wanted}"
    result = heddle("run", path, "--dim", "rows=70000", "--dim", "row_blocks=70000", code=1)
    assert "--dim row_blocks: wanted 1 to 16, got 70000" in result.stderr
    np.save(tmp_path / "lengths.npy", np.array([32, 32]))
    lengths = ("--input", f"lengths={tmp_path}/lengths.npy", "--dim", "row_blocks=2")
    report = json.loads(heddle("run", path, *lengths, "--repeat", 1, "--json").stdout)
    assert report["inputs"]["blocks"] == [2, 2]
    result = heddle("run", path, *lengths, "--dim", "cache_blocks=3", code=1)
    wanted = "--dim cache_blocks: wanted 4 or more for 2 rows of 2 blocks, got 3\n"
    assert result.stderr == f"error: {wanted}"


@pytest.fixture
def no_memory(monkeypatch):
    """A machine on which nothing has room for a cache."""

    def allocate(dtype, shape, device):
        raise DeviceError(f"cpu:0: wanted {shape[0]} bytes of memory, the machine has 9")

    monkeypatch.setattr(inputs, "Buffer", allocate)


def test_a_cache_that_memory_cannot_hold_says_what_it_is_made_of(
    heddle, decoder, tmp_path, no_memory
):
    path = tmp_path / "small.heddle"
    heddle("compile", decoder, "-t", "cpu:native", "--embed-weights", "-o", path)
    result = heddle("run", path, "--dim", "rows=1024", "--dim", "row_blocks=16", code=1)
    layers = "with keys and values of 2 layers, 2 heads of 16, float32; got less memory "
    assert result.stderr == (
        "error: cache: wanted 0.1 GiB for 16384 blocks of 16 tokens (1024 rows of 16 blocks), "
        f"{layers}(cpu:0: wanted 134217728 bytes of memory, the machine has 9); "
        "give fewer with --dim rows or --dim row_blocks\n"
    )
    given = ("--tokenizer", decoder, "--prompt", "x", "--cache-tokens", 2**20)
    result = heddle("generate", path, *given, code=1)
    assert result.stderr == (
        f"error: cache: wanted 0.5 GiB for 1048576 tokens, {layers}(cpu:0: wanted 536870912 bytes "
        "of memory, the machine has 9); give fewer cache_tokens (--cache-tokens)\n"
    )


def test_a_prompt_from_stdin_that_is_no_utf_8_is_refused(heddle, decoder):
    result = heddle("generate", decoder, text=b"warp\xff", code=1)
    assert result.stderr == "error: prompt: wanted a text in UTF-8, got '\\udcff' at 4\n"


def test_a_schema_that_is_no_json_is_named(heddle, decoder, tmp_path):
    (tmp_path / "bad.json").write_text('{"a":\n nope}')
    given = ("--json-schema", tmp_path / "bad.json", "--prompt", "x")
    result = heddle("generate", decoder, *given, code=1)
    wanted = f"error: {tmp_path}/bad.json: wanted a JSON schema: Expecting value, line 2\n"
    assert result.stderr == wanted


def test_the_package_that_is_missing_is_named(heddle, decoder, monkeypatch):
    for name in ("generation.tokenizer", "generation.tokenizer_files", "gguf.tokenizer"):
        monkeypatch.delitem(sys.modules, f"heddle.pipelines.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    sentence = "wanted the package {}, which is not installed; pip install 'heddle[generate]'"
    result = heddle("generate", decoder, "--prompt", "x", code=1)
    assert result.stderr == f"error: {sentence.format('tokenizers')}\n"
    with pytest.raises(ModuleNotFoundError) as error, packages_of_generate():
        importlib.import_module("llguidance")
    assert str(error.value) == sentence.format("llguidance")
