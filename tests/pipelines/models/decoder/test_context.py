"""Language models for texts of at most so many tokens: `heddle compile --context`."""

import math

import pytest
from click.testing import CliRunner

from heddle.pipelines.cli import main
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.rotary_scaling import LongRope, Yarn
from heddle.runtime import Artifact
from heddle.runtime.errors import GraphError

CONFIG = {
    "model_type": "phi3",
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 64,
}


def scaling(context, **rows):
    (layer,) = DecoderConfig.of(CONFIG | {"rope_scaling": rows}, context=context).layers
    return layer.rope.scaling


def test_short_texts_have_the_factors_for_short_ones():
    """What scores are multiplied by is the model's all the same."""
    magnitude = math.sqrt(1 + math.log(8) / math.log(64))
    assert scaling(64, **LONG) == LongRope((1.0,) * 8, magnitude)
    for context in (65, 512, None):
        assert scaling(context, **LONG) == LongRope((2.0,) * 8, magnitude)


def test_other_scalings_stay_as_the_model_says():
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert isinstance(scaling(None, **yarn), Yarn)
    assert scaling(64, **yarn) == scaling(None, **yarn)


@pytest.mark.parametrize("context", [0, 513])
def test_a_context_that_the_model_has_not_is_refused(context):
    with pytest.raises(GraphError, match=f"^context: wanted 1 to 512 tokens, got {context}$"):
        DecoderConfig.of(CONFIG, context=context)


def test_an_artifact_for_short_texts(decoder, tiny, tmp_path):
    heddle = CliRunner()

    def compile_with(source, *arguments):
        given = ["compile", source, "-t", "cpu:native", *arguments, "-o", tmp_path / "a.heddle"]
        return heddle.invoke(main, list(map(str, given)))

    assert compile_with(decoder, "--context", 64).exit_code == 0
    found = {row["name"]: row["maximum"] for row in Artifact.load(tmp_path / "a.heddle").symbols}
    assert found["row_blocks"] * 16 == 64
    result = compile_with(decoder, "--context", 257)
    assert result.stderr.endswith("config.json: context: wanted 1 to 256 tokens, got 257\n")
    result = compile_with(tiny, "--context", 8)
    assert "--context: wanted a language model, got " in result.stderr
    result = compile_with("minilm", "--context", 8)
    assert (
        result.exit_code,
        "--context: wanted a language model, got 'minilm'" in result.stderr,
    ) == (2, True)
