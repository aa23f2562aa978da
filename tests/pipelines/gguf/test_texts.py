"""Texts of GGUF files, beside those of the same weights in a folder."""

import json

import pytest
from click.testing import CliRunner
from gguf_files import byte_level, rounded, write
from safetensors.numpy import save_file

from heddle.graph import DType
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint, GgufCheckpoint
from heddle.pipelines.cli import main
from heddle.pipelines.language_model import build
from heddle.pipelines.models.products import Quantization
from heddle.runtime import Artifact

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ bos_token }}"


def is_product(name):
    """Whether a tensor of a file is a weight that these files have in another type."""
    return name.startswith("blk.") and "norm" not in name


@pytest.fixture(scope="module")
def floats(decoder):
    return dict(weights.read(Checkpoint(decoder).weights))


@pytest.fixture(scope="module")
def config(decoder):
    return json.loads((decoder / "config.json").read_text())


@pytest.fixture
def make(tmp_path, config, floats, tokenizer):
    """Writes the decoder as a file whose products are of this type."""
    add = byte_level(tokenizer, size=config["vocab_size"], bos=256, eos=257)

    def made(kind="F32", rest="F32"):
        return write(
            tmp_path / "decoder.gguf",
            "llama",
            config,
            floats,
            lambda name: kind if is_product(name) else rest,
            add,
            [("tokenizer.chat_template", CHAT, "string")],
        )

    return made


def folder_of(path, config, tokenizer, floats, kind):
    """A folder of the decoder with the floats that its products are in a type."""
    (path / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(path / "tokenizer.json"))
    arrays = {
        name: rounded(array, kind) if name.endswith("proj.weight") else array
        for name, array in floats.items()
    }
    save_file(arrays, path / "model.safetensors")
    return path


def heddle(*arguments):
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def texts(*arguments):
    common = ("--prompt", "Once upon", "--prompt", "a time", "--max-tokens", 24, "--json")
    return json.loads(heddle("generate", *arguments, *common))["texts"]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, ()) for kind in ("F32", "Q8_0", "Q4_0", "Q4_1", "Q5_1")),
        ("Q5_0", ("--quantize", "float")),
    ],
)
def test_texts_are_those_of_the_floats(make, tmp_path, config, tokenizer, floats, kind, options):
    folder = folder_of(tmp_path, config, tokenizer, floats, kind)
    assert texts(make(kind), *options) == texts(folder)


@pytest.mark.parametrize(("kind", "held"), [("Q8_0", "int8"), ("Q4_0", "uint8")])
def test_integers_in_a_file_stay_integers(make, kind, held):
    found = GgufCheckpoint(make(kind, "Q8_0"))
    graph = build(found, DType.float16)
    kinds = {name: w.dtype.name for name, w in graph.weights.items()}
    name = "model.layers.1.mlp.down_proj"
    assert (kinds[f"{name}.integers"], kinds[f"{name}.scales"]) == (held, "float16")
    assert kinds["lm_head.integers"] == "int8"
    assert kinds["model.embed_tokens.integers"] == "int8"
    assert kinds["model.norm.weight"] == "float32"
    assert build(found).inputs[-1].tensor.type.dtype == DType.float32


def test_what_is_asked_for(make):
    """More bits are rounded to fewer, and floats are to be had."""
    name = "model.layers.0.self_attn.q_proj"
    for kind in ("Q8_0", "F16"):
        graph = build(GgufCheckpoint(make(kind)), quantization=Quantization(4, 32))
        assert graph.weights[f"{name}.integers"].dtype == DType.uint8
    found = GgufCheckpoint(make("Q4_1", "Q8_0"))
    graph = build(found, quantization=Quantization(8, 32, "int8"))
    assert graph.weights[f"{name}.integers"].shape[1] == 32
    assert 'activations = "float"' not in str(graph)
    graph = build(found, DType.bfloat16, "float")
    kinds = {name: w.dtype for name, w in graph.weights.items() if len(w.shape) == 2}
    assert set(kinds.values()) == {DType.bfloat16}
    assert {*kinds} >= {f"{name}.weight", "model.embed_tokens.weight", "lm_head.weight"}


def test_floats_are_computed_in_what_they_are_stored_in(make):
    found = GgufCheckpoint(make("BF16", "BF16"))
    graph = build(found)
    assert graph.weights["model.layers.0.self_attn.q_proj.weight"].dtype == DType.bfloat16
    assert graph.inputs[-1].tensor.type.dtype == DType.bfloat16
    selected = weights.select(found.weights, graph.weights)
    assert selected["lm_head.weight"].dtype == "bfloat16"


def test_a_chat_and_a_grammar(make):
    path = make()
    report = json.loads(
        heddle("generate", path, "--chat", "--prompt", "Hi", "--regex", "(ab){2}!", "--json")
    )
    assert report["texts"][0]["text"] == "abab!"
    assert report["prefill"]["tokens"] == len("<user>Hi") + 1


def test_an_artifact_of_a_file(make, tmp_path):
    path, out = make("Q8_0"), tmp_path / "small.heddle"
    heddle("compile", path, "-t", "cpu:native", "--embed-weights", "-o", out)
    assert Artifact.load(out).name == "decoder"
    assert texts(out, "--tokenizer", path) == texts(path)
    heddle("verify", out, "--weights", path)
    bare = tmp_path / "bare.heddle"
    heddle("compile", path, "-t", "cpu:native", "-o", bare)
    assert texts(bare, "--tokenizer", path, "--weights", path) == texts(path)


def test_options_of_other_models(make):
    path = make()
    arguments = ["generate", str(path), "--weights", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "--weights: wanted an artifact as MODEL, got a GGUF file" in result.output


def test_a_damaged_file(make):
    path = make()
    path.write_bytes(path.read_bytes()[:-100])
    result = CliRunner().invoke(main, ["generate", str(path), "--prompt", "a"])
    assert result.exit_code == 1
    assert "got the end of the file" in result.output
