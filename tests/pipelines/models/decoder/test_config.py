"""The configurations of decoders: what is read, and what is refused by name."""

import json
import math

import numpy as np
import pytest
from decoder_sizes import SIZES

from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.families import FAMILIES
from heddle.pipelines.models.rotary import Rope
from heddle.pipelines.models.rotary_scaling import Linear, LongRope, Plain, Yarn
from heddle.runtime.errors import GraphError

BASE = {"model_type": "llama", **SIZES}

MIXTURE = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}

GPT_OSS = {**MIXTURE, "model_type": "gpt_oss"}

GPT_OSS_YARN = Yarn(32.0, 4096, 32.0, 1.0, False, 0.1 * math.log(32.0) + 1)

LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type: wanted one of llama, mistral, .*, got 'mamba'$"),
        ({"hidden_size": None}, "wanted the keys of a llama model, got no hidden_size"),
        (
            {"partial_rotary_factor": 0.2},
            "partial_rotary_factor: wanted an even share of heads of 16, got 0.2$",
        ),
        ({"partial_rotary_factor": 1e308}, "wanted an even share of heads of 16, got 1e\\+308$"),
        ({"partial_rotary_factor": 2}, "wanted an even share of heads of 16, got 2$"),
        ({"model_type": "cohere", "use_qk_norm": True}, "use_qk_norm: wanted False, got True$"),
        ({"is_causal": False}, "is_causal: wanted True, got False$"),
        ({"per_layer_config": {"1": {}}}, r"per_layer_config: wanted none, got {'1': {}}$"),
        (
            {"model_type": "gemma3_text", "attn_logit_softcapping": 50.0},
            "attn_logit_softcapping: wanted none, got 50.0$",
        ),
        (
            {"model_type": "mixtral", "norm_topk_prob": False},
            "norm_topk_prob: wanted True, got False$",
        ),
        ({"model_type": "gemma2", "attn_logit_softcapping": -1}, "attn_logit_softcapping: wanted"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers: wanted 2, got 1$"),
        ({"model_type": "smollm3", "no_rope_layers": 1}, "no_rope_layers: wanted 2, got 1$"),
        ({"model_type": "mixtral"}, "wanted the keys of a mixture of experts, got no num_experts$"),
        (
            {**MIXTURE, "num_experts_per_tok": 9},
            "num_experts_per_tok: wanted at most 8 experts, got 9$",
        ),
        ({**MIXTURE, "mlp_only_layers": 1}, "mlp_only_layers: wanted a list, got 1$"),
        ({**MIXTURE, "decoder_sparse_step": 0}, "decoder_sparse_step: wanted an integer of at"),
        ({"hidden_act": "mish"}, "hidden_act: wanted one of gelu, .*, got 'mish'"),
        ({"hidden_act": ["silu"]}, r"hidden_act: wanted one of gelu, .*, got \['silu'\]"),
        ({"model_type": ["llama"]}, r"model_type: wanted one of llama, .*, got \['llama'\]"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: wanted a divisor of 4 heads, got 3"),
        ({"num_attention_heads": 6, "num_key_value_heads": 6}, "a multiple of 6 heads, got 64"),
        ({"rope_scaling": {"type": "ntk"}}, "wanted default, .* or dynamic, got 'ntk'"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling yarn: wanted factor, got none"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": 1}},
            "rope_scaling yarn: truncate: wanted true or false, got 1$",
        ),
        (
            {"rope_scaling": {**LONG, "short_factor": [1.0]}},
            "rope_scaling longrope: short_factor: wanted 8 numbers, got 1$",
        ),
        (
            {"rope_scaling": {**LONG, "short_factor": [0.0] * 8}},
            "rope_scaling longrope: short_factor: wanted a finite number above 0, got 0.0$",
        ),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling linear: wanted factor, got none"),
        ({"layer_types": ["full_attention"]}, "layer_types: wanted 2, got 1"),
        (
            {"layer_types": ["full_attention", "chunked_attention"]},
            "layer_types: wanted full_attention or sliding_attention, got 'chunked_attention'$",
        ),
        ({"num_hidden_layers": 0}, "num_hidden_layers: wanted an integer of at least 1, got 0$"),
        ({"hidden_size": "64"}, "hidden_size: wanted an integer of at least 1, got '64'$"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: wanted at most 4096, got 1000000000$"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: wanted true or false, got 'yes'$"),
        ({"head_dim": 15}, "head_dim: wanted an even number, which rope turns, got 15$"),
        ({"head_dim": 1 << 40}, f"head_dim: wanted at most {1 << 20}, got {1 << 40}$"),
        ({"head_dim": -16}, "head_dim: wanted an integer of at least 1, got -16$"),
        ({"num_attention_heads": 4.0}, "num_attention_heads: wanted an integer .* 1, got 4.0$"),
        ({"sliding_window": -1}, "sliding_window: wanted an integer of at least 0, got -1$"),
        (
            {"model_type": "gemma2", "sliding_window": None},
            "sliding_window: wanted that of the layers that slide, got none$",
        ),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps: wanted a finite number above 0, got nan$"),
        ({"rope_theta": 10**400}, "rope_theta: wanted a finite number above 1, got 10+$"),
        ({"rope_theta": "x"}, "rope_theta: wanted a finite number above 1, got 'x'$"),
        ({"rope_theta": 1}, "rope_theta: wanted a finite number above 1, got 1$"),
        (
            {"rope_scaling": {**LONG, "original_max_position_embeddings": 1}},
            "original_max_position_embeddings: wanted a finite number above 1, got 1$",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": "x"}},
            "rope_scaling yarn: mscale: wanted a finite number above 0, got 'x'$",
        ),
        ({"rope_scaling": "yarn"}, "rope_scaling: wanted a JSON object, got 'yarn'$"),
        (
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "rope_scaling linear: factor: wanted a finite number above 0, got 0$",
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            },
            "rope_scaling llama3: wanted a high_freq_factor above low_freq_factor, got 4.0 and 4.0",
        ),
    ],
)
def test_a_config_of_another_model_is_refused(tmp_path, change, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BASE | change))
    with pytest.raises(GraphError, match=message) as error:
        DecoderConfig.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(GraphError, match=r"config\.json: wanted a JSON object"):
        DecoderConfig.read(path)


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 7}, (7, 7)),
        ({"model_type": "mistral", "sliding_window": None}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 7}, (0, 0)),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 7,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            (0, 7),
        ),
        ({"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}, (7, 0)),
        ({"sliding_window": 7, "use_sliding_window": True}, (0, 0)),
        ({"model_type": "mistral"}, (4096, 4096)),
        ({"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 1}, (0, 4096)),
        ({"model_type": "qwen3", "use_sliding_window": True, "sliding_window": None}, (0, 0)),
        ({**MIXTURE, "sliding_window": 7}, (0, 0)),
        ({**MIXTURE, "sliding_window": 7, "use_sliding_window": True}, (7, 7)),
    ],
)
def test_windows(change, windows):
    layers = DecoderConfig.of(BASE | change).layers
    assert tuple(layer.window for layer in layers) == windows


def test_windows_of_families_that_have_a_pattern():
    def windows(kind, **change):
        config = DecoderConfig.of(BASE | {"model_type": kind, "num_hidden_layers": 7} | change)
        return [layer.window for layer in config.layers]

    assert windows("gemma2") == [4096, 0] * 3 + [4096]
    assert windows("gemma3_text", sliding_window=8) == [8] * 5 + [0, 8]
    assert windows("gemma3_text", sliding_window=8, sliding_window_pattern=3) == [8, 8, 0] * 2 + [8]
    assert windows("phi3", sliding_window=8) == [8] * 7
    asked = {"sliding_window": 8, "use_sliding_window": True}
    assert windows("smollm3", **asked) == [0, 0, 0, 8, 0, 0, 0]
    mixture = {**MIXTURE, "model_type": "qwen2_moe", **asked}
    assert windows("qwen2_moe", **{**mixture, "max_window_layers": 4}) == [8, 0, 8, 0, 0, 0, 0]


ROPE = {"rope_type": "default", "rope_theta": 5.0}


def ropes(change) -> list[Rope | None]:
    return [layer.rope for layer in DecoderConfig.of(BASE | change).layers]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, [Rope(1e4, 16)] * 2),
        ({"rope_parameters": ROPE}, [Rope(5.0, 16)] * 2),
        ({"rope_theta": 7.0, "partial_rotary_factor": 0.5}, [Rope(7.0, 8)] * 2),
        ({"rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}}, [Rope(5.0, 4)] * 2),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, [Rope(1e4, 16, Plain())] * 2),
        (
            {"rope_scaling": {**ROPE, "partial_rotary_factor": 0.5}, "rope_theta": 7.0},
            [Rope(5.0, 8)] * 2,
        ),
        (
            {
                "rope_scaling": {**LONG, "original_max_position_embeddings": 64},
                "original_max_position_embeddings": 512,
            },
            [Rope(1e4, 16, LongRope((1.0,) * 8, 1.0))] * 2,
        ),
        (GPT_OSS, [Rope(150000.0, 64, GPT_OSS_YARN)] * 2),
        ({**GPT_OSS, "rope_parameters": ROPE}, [Rope(5.0, 64)] * 2),
        ({"model_type": "smollm3", "no_rope_layers": [0, 1]}, [None, Rope(2e6, 16)]),
        (
            {"model_type": "smollm3", "no_rope_layer_interval": 2},
            [Rope(2e6, 16), None],
        ),
        (
            {"model_type": "cohere2", "sliding_window_pattern": 2, "layer_norm_eps": 1e-5},
            [Rope(1e4, 16), None],
        ),
        # Older and newer ways of saying that layers with a window have a rotation of their own.
        (
            {
                "model_type": "gemma3_text",
                "head_dim": 16,
                "sliding_window_pattern": 2,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            [Rope(1e4, 16), Rope(1e6, 16, Linear(8.0))],
        ),
        (
            {
                "model_type": "gemma3_text",
                "head_dim": 16,
                "layer_types": ["sliding_attention", "full_attention"],
                "rope_parameters": {
                    "sliding_attention": ROPE,
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 9.0},
                },
            },
            [Rope(5.0, 16), Rope(9.0, 16, Linear(8.0))],
        ),
    ],
)
def test_rotations(change, wanted):
    assert ropes(change) == wanted


def test_the_magnitudes_of_scalings():
    def scaling(**rows):
        rope = ropes({"rope_scaling": rows})[0]
        assert rope is not None
        return rope.scaling

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    found = scaling(**yarn)
    assert found == Yarn(4.0, 128, 32.0, 1.0, True, found.magnitude)
    assert found.magnitude == pytest.approx(0.1 * math.log(4) + 1)
    assert scaling(**yarn, attention_factor=1.5).magnitude == 1.5
    both = scaling(**yarn, mscale=2.0, mscale_all_dim=1.0)
    ratio = (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)
    assert both.magnitude == pytest.approx(ratio)
    short = scaling(**LONG, original_max_position_embeddings=512)
    assert short == LongRope((1.0,) * 8, 1.0)
    long = scaling(**LONG, original_max_position_embeddings=64)
    assert long == LongRope((2.0,) * 8, math.sqrt(1 + math.log(8) / math.log(64)))


def test_yarn_keeps_pairs_that_turn_often_and_divides_those_that_hardly_do():
    rope = Rope(1e4, 64, Yarn(8.0, 4096, 32.0, 1.0, True, 1.0))
    plain, found = Rope(1e4, 64).frequencies(), rope.frequencies()
    turns = 4096 * plain / (2 * math.pi)
    ratio = plain / found
    np.testing.assert_allclose(ratio[turns > 40], 1, rtol=1e-6)
    np.testing.assert_allclose(ratio[turns < 0.7], 8, rtol=1e-6)
    between = ratio[(turns < 25) & (turns > 1.3)]
    assert len(between) > 5
    assert (np.diff(between) > 0).all()
    assert 1 < between[0] < between[-1] < 8


def test_what_a_family_sets_where_the_file_says_nothing():
    for kind in (name for name, family in FAMILIES.items() if not family.latent):
        more = {"num_experts": 8, "num_experts_per_tok": 2} if FAMILIES[kind].experts else {}
        config = DecoderConfig.of(BASE | {"model_type": kind} | more)
        assert (config.experts is not None) == bool(more)
    gemma = DecoderConfig.of(BASE | {"model_type": "gemma"})
    assert (gemma.head_dim, gemma.embedding_scale) == (256, 8.0)
    assert gemma.hidden_act == "gelu_pytorch_tanh"
    assert DecoderConfig.of(BASE | {"model_type": "gemma", "hidden_act": "gelu"}) == gemma
    assert DecoderConfig.of(BASE | {"model_type": "qwen2"}).qkv_bias
    unbiased = MIXTURE | {"model_type": "qwen2_moe", "qkv_bias": False}
    assert not DecoderConfig.of(BASE | unbiased).qkv_bias
    other = {"model_type": "gemma2", "hidden_act": "silu", "hidden_activation": "relu"}
    assert DecoderConfig.of(BASE | other).hidden_act == "relu"
    assert DecoderConfig.of(BASE | {"model_type": "granite"}).attention_scale == 1
    granite = {"model_type": "granite", "logits_scaling": 8.0, "attention_multiplier": 0.5}
    assert DecoderConfig.of(BASE | granite).logits_scale == 0.125
    assert DecoderConfig.of(BASE | granite).attention_scale == 0.5


def test_a_null_that_says_that_there_is_none():
    kept = DecoderConfig.of(BASE | {"model_type": "gemma2"})
    assert (kept.head_dim, kept.attention_softcap, kept.logits_softcap) == (256, 50.0, 30.0)
    nulls = dict.fromkeys(("head_dim", "attn_logit_softcapping", "final_logit_softcapping"))
    found = DecoderConfig.of(BASE | {"model_type": "gemma2"} | nulls)
    assert (found.head_dim, found.attention_softcap, found.logits_softcap) == (16, 0.0, 0.0)
