"""GGUF files of each architecture, beside the checkpoints that transformers has computed."""

from dataclasses import replace

import numpy as np
import pytest
from decoder_cases import config_of, drawn
from gguf_files import rounded, write

from heddle.pipelines import weights
from heddle.pipelines.checkpoint import GgufCheckpoint
from heddle.pipelines.gguf.config import values_of
from heddle.pipelines.gguf.file import GgufFile
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.runtime.errors import ArtifactError, GraphError


def linear(architecture, factor):
    return (
        (f"{architecture}.rope.scaling.type", "linear", "string"),
        (f"{architecture}.rope.scaling.factor", factor, "float32"),
    )


LONG = {
    f"rope_factors_{name}.weight": np.array(config_of("phi3")["rope_scaling"][f"{name}_factor"])
    for name in ("short", "long")
}

MODELS = {
    "llama_biased": ("llama", linear("llama", 2.0), {}),
    "mistral": ("llama", (), {}),
    "mixtral": ("llama", (("llama.rope.freq_base", 1e6, "float32"),), {}),
    "qwen2": ("qwen2", (), {}),
    "qwen2_moe": ("qwen2moe", (), {}),
    "qwen3": ("qwen3", (), {}),
    "qwen3_moe": ("qwen3moe", (), {}),
    "gemma": ("gemma", (), {}),
    "phi3": (
        "phi3",
        (
            ("phi3.rope.dimension_count", 12, "uint32"),
            ("phi3.rope.scaling.original_context_length", 512, "uint32"),
        ),
        {name: array.astype(np.float32) for name, array in LONG.items()},
    ),
    "olmo2": ("olmo2", (), {}),
    "olmo3": (
        "olmo2",
        (
            ("olmo2.rope.freq_base", 5e5, "float32"),
            ("olmo2.rope.scaling.type", "yarn", "string"),
            ("olmo2.rope.scaling.factor", 8.0, "float32"),
            ("olmo2.rope.scaling.original_context_length", 64, "uint32"),
            ("olmo2.rope.scaling.yarn_attn_factor", 1.2, "float32"),
            ("olmo2.rope.scaling.yarn_beta_fast", 32.0, "float32"),
            ("olmo2.rope.scaling.yarn_beta_slow", 1.0, "float32"),
            ("olmo2.attention.sliding_window_pattern", [True, True, True, False], "array"),
        ),
        {},
    ),
    "granite": ("granite", (), {}),
}
"""What files call a model, and what more they say, where they say all."""

CHANGES = {
    "gemma2": {"query_pre_attn_scalar": 32},
    "gemma3": {
        "query_pre_attn_scalar": 32,
        "layer_types": None,
        "sliding_window_pattern": None,
        "rope_scaling": None,
        "rope_parameters": None,
    },
}
"""What a file cannot say otherwise."""


@pytest.fixture
def make(tmp_path):
    """Writes a model's file; `change` is what its configuration has otherwise."""

    def made(name, change=None, **options):
        architecture, more, extra = MODELS.get(name, (name, (), {}))
        config = config_of(name) | (change or {})
        arrays = drawn(config)
        more = (*more, *options.pop("more", ()))
        extra = extra | options.pop("extra", {})
        path = tmp_path / "model.gguf"
        write(path, architecture, config, arrays, more=more, extra=extra, **options)
        return GgufCheckpoint(path), config, arrays

    return made


@pytest.mark.parametrize("name", [*MODELS, *CHANGES])
def test_a_file_is_the_checkpoint(make, name):
    found, config, arrays = make(name, CHANGES.get(name))
    wanted = DecoderConfig.of(config)
    given = DecoderConfig.of(found.values())
    for field in vars(wanted):
        if field != "layers" or name != "phi3":
            assert getattr(given, field) == getattr(wanted, field), field
    for own, layer in zip(given.layers, wanted.layers, strict=True):
        assert (own.window, own.sparse, own.rope.size) == (
            layer.window,
            layer.sparse,
            layer.rope.size,
        )
        np.testing.assert_allclose(own.rope.frequencies(), layer.rope.frequencies(), rtol=1e-6)
        assert own.rope.scaling.magnitude == layer.rope.scaling.magnitude
    selected = weights.select(found.weights, build(found).weights)
    assert selected.keys() == arrays.keys()
    for key, array in arrays.items():
        # A norm of gemma is stored with one added.
        close = 2e-7 if name.startswith("gemma") and "norm" in key else 0
        np.testing.assert_allclose(np.asarray(selected[key]), array, rtol=0, atol=close)


def test_frequencies_that_a_tensor_divides(make):
    """As the converter has those of Llama 3, whose factors it computes."""
    config = config_of("llama")
    plain = config | {"rope_scaling": None}
    rope = DecoderConfig.of(config).layers[0].rope
    before = DecoderConfig.of(plain).layers[0].rope.frequencies()
    factors = before / rope.frequencies()
    found, *_ = make("llama", extra={"rope_freqs.weight": factors.astype(np.float32)})
    given = DecoderConfig.of(found.values()).layers[0].rope
    np.testing.assert_allclose(given.frequencies(), rope.frequencies(), rtol=1e-6)
    assert given.scaling.magnitude == 1


def test_yarn(make):
    more = (
        ("qwen3.rope.scaling.type", "yarn", "string"),
        ("qwen3.rope.scaling.factor", 4.0, "float32"),
        ("qwen3.rope.scaling.original_context_length", 128, "uint32"),
    )
    found, config, _ = make("qwen3", more=more)
    rows = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    wanted = DecoderConfig.of(config | {"rope_scaling": rows})
    given = DecoderConfig.of(found.values()).layers[0].rope
    np.testing.assert_array_equal(given.frequencies(), wanted.layers[0].rope.frequencies())
    assert given.scaling.magnitude == wanted.layers[0].rope.scaling.magnitude


@pytest.mark.parametrize(("name", "largest"), [("gemma2", 46), ("gemma3", 62)])
def test_scores_of_gemma(make, name, largest):
    """A head's size scales them, but in the largest model, where it is a share of all columns."""
    for layers in (2, largest):
        change = {"num_hidden_layers": layers, "layer_types": None, "query_pre_attn_scalar": None}
        found, config, _ = make(name, change)
        size = 64 / config["num_attention_heads"] if layers == largest else config["head_dim"]
        assert DecoderConfig.of(found.values()).attention_scale == size**-0.5


def test_layers_of_gemma_3(make):
    found, *_ = make(
        "gemma3", {"num_hidden_layers": 7, "layer_types": None}, more=linear("gemma3", 8.0)
    )
    layers = DecoderConfig.of(found.values()).layers
    assert [layer.window > 0 for layer in layers] == [True] * 5 + [False, True]
    assert [layer.rope.theta for layer in layers] == [10000.0] * 5 + [1e6, 10000.0]
    thin = layers[0].rope.frequencies()[0], layers[5].rope.frequencies()[0]
    assert thin == (1, 0.125)
    for pattern in (2, [True, False, True, False, True, False, True]):
        form = "uint32" if isinstance(pattern, int) else "array"
        more = (("gemma3.attention.sliding_window_pattern", pattern, form),)
        found, *_ = make("gemma3", {"num_hidden_layers": 7, "layer_types": None}, more=more)
        layers = DecoderConfig.of(found.values()).layers
        assert [layer.window > 0 for layer in layers] == [True, False] * 3 + [True]


def test_a_head_of_its_own(make):
    for tied in (True, False):
        found, *_ = make("qwen2", {"tie_word_embeddings": tied})
        assert DecoderConfig.of(found.values()).tie_word_embeddings == tied


def test_embeddings_in_blocks_that_a_head_shares(make):
    """Tokens are looked up in the integers that the head multiplies."""
    found, _, arrays = make("qwen2", {"tie_word_embeddings": True}, kind="Q8_0")
    name = "model.embed_tokens"
    wanted = rounded(arrays[f"{name}.weight"], "Q8_0")
    selected = weights.select(found.weights, build(found).weights)
    assert f"{name}.weight" not in selected
    scales = np.repeat(selected[f"{name}.scales"].astype(np.float32), 32, axis=1)
    np.testing.assert_array_equal(selected[f"{name}.integers"] * scales, wanted)
    selected = weights.select(found.weights, build(found, quantization="float").weights)
    np.testing.assert_array_equal(selected[f"{name}.weight"], wanted)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "qwen2",
            (("qwen2.attention.causal", False, "bool"),),
            "qwen2.attention.causal: wanted True, got False",
        ),
        (
            "qwen3_moe",
            (("qwen3moe.expert_gating_func", 2, "uint32"),),
            "qwen3moe.expert_gating_func: wanted 1, got 2",
        ),
        (
            "qwen3_moe",
            (("qwen3moe.expert_weights_scale", 2.5, "float32"),),
            "qwen3moe.expert_weights_scale: wanted 1.0, got 2.5",
        ),
        (
            "qwen2",
            (("qwen2.rope.scaling.type", "longrope", "string"),),
            "rope.scaling.type: wanted none, linear or yarn, got 'longrope'",
        ),
        (
            "qwen2",
            (("qwen2.attention.value_length", 8, "uint32"),),
            "attention.value_length: wanted 16 as for keys, got 8",
        ),
        (
            "qwen2",
            (("qwen2.attention.sliding_window", 8, "uint32"),),
            "attention.sliding_window: wanted none of a qwen2 model, got 8",
        ),
        (
            "qwen2",
            (("qwen2.logit_scale", "1", "string"),),
            "qwen2.logit_scale: wanted one number for all layers, got '1'",
        ),
        (
            "qwen3",
            (*linear("qwen3", 2.0), ("qwen3.rope.scaling.attn_factor", 2.0, "float32")),
            "attn_factor: wanted 1 beside linear, got 2.0",
        ),
    ],
)
def test_what_is_not_computed(make, name, more, message):
    found, *_ = make(name, more=more)
    with pytest.raises(GraphError, match=message):
        found.values()


@pytest.mark.parametrize(
    ("name", "key", "ours"),
    [
        ("gemma3", "attention.key_length", "head_dim"),
        ("qwen2", "attention.head_count", "num_attention_heads"),
    ],
)
def test_sizes_of_nothing(make, name, key, ours):
    """Which nothing is divided by."""
    file = GgufFile.read(make(name)[0].file)
    more = {f"{name}.rope.dimension_count": 8, f"{name}.{key}": 0}
    given = values_of(replace(file, values=file.values | more))
    with pytest.raises(GraphError, match=f"{ours}: wanted an integer of at least 1, got 0"):
        DecoderConfig.of(given)


def test_no_experts(make):
    found, *_ = make("llama", more=(("llama.expert_count", 0, "uint32"),))
    assert DecoderConfig.of(found.values()).experts is None


def test_tensors_of_another_model(make):
    found, *_ = make("qwen2", extra={"blk.0.ssm_in.weight": np.ones((2, 2), np.float32)})
    with pytest.raises(GraphError, match="wanted the tensors of a qwen2 model, got blk"):
        build(found)
    found, *_ = make("qwen2", extra={"blk.0.attn_output.bias": np.ones(64, np.float32)})
    with pytest.raises(GraphError, match=r"got also model\.layers\.0\.self_attn\.o_proj\.bias"):
        build(found)


def test_an_unknown_architecture(tmp_path):
    path = write(tmp_path / "m.gguf", "rwkv7", config_of("qwen2"), {})
    with pytest.raises(GraphError, match=r"general\.architecture: wanted one of llama, .*'rwkv7'"):
        GgufCheckpoint(path).values()


def test_something_that_is_missing(tmp_path):
    config = config_of("qwen2")
    del config["rms_norm_eps"]
    path = write(tmp_path / "m.gguf", "qwen2", config, {})
    with pytest.raises(
        ArtifactError, match=r"wanted qwen2\.attention\.layer_norm_rms_eps.*, got no"
    ):
        GgufCheckpoint(path).values()
    path = write(tmp_path / "m.gguf", "qwen2", config_of("qwen2"), {})
    with pytest.raises(ArtifactError, match=r"wanted the tensor token_embd\.weight, got no"):
        GgufCheckpoint(path).values()
