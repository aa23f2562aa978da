"""GGUF files whose architectures have keys and tensors of their own, beside their checkpoints."""

import numpy as np
import pytest
from decoder_cases import config_of, drawn
from gguf_files import apart, rounded, write

from heddle.pipelines import weights
from heddle.pipelines.checkpoint import GgufCheckpoint
from heddle.pipelines.gguf import config as gguf_config
from heddle.pipelines.gguf.weights import stored
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.rotary_scaling import PLAIN
from heddle.runtime.errors import ArtifactError, GraphError


def yarn(architecture, factor, original, *more):
    at = f"{architecture}.rope.scaling"
    return (
        (f"{at}.type", "yarn", "string"),
        (f"{at}.factor", factor, "float32"),
        (f"{at}.original_context_length", original, "uint32"),
        *((f"{at}.{name}", value, "float32") for name, value in more),
    )


def latents(head, cache=40, turned=8, values=20, gating=2, of="deepseek2"):
    """Keys of a file whose cache has one head of latents."""
    at = f"{of}.attention"
    return (
        (f"{at}.key_length", cache, "uint32"),
        (f"{at}.value_length", cache - turned, "uint32"),
        (f"{at}.key_length_mla", head, "uint32"),
        (f"{at}.value_length_mla", values, "uint32"),
        (f"{of}.rope.dimension_count", turned, "uint32"),
        (f"{of}.expert_gating_func", gating, "uint32"),
    )


def part(architecture, turned):
    return ((f"{architecture}.rope.dimension_count", turned, "uint32"),)


def sigmoid(architecture):
    return ((f"{architecture}.expert_gating_func", 2, "uint32"),)


OSS = (*yarn("gpt-oss", 8.0, 64), ("gpt-oss.rope.freq_base", 150000.0, "float32"))

V2_YARN = yarn("deepseek2", 8.0, 64, ("yarn_log_multiplier", 0.12))

SAME_SPREAD = {
    "n_group": 1,
    "topk_group": 1,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 8.0,
        "mscale": 1.2,
        "mscale_all_dim": 1.2,
        "original_max_position_embeddings": 64,
    },
}
"""What a file has of DeepSeek-V2: groups that count, and one number for both."""

MISTRAL = (
    *yarn("mistral3", 8.0, 8, ("yarn_log_multiplier", 1.0)),
    ("mistral3.attention.temperature_scale", 0.3, "float32"),
    ("mistral3.rope.freq_base", 1e6, "float32"),
)

MISTRAL_4 = (
    *latents(20, gating=1, of="mistral4"),
    *yarn("mistral4", 8.0, 8, ("yarn_log_multiplier", 0.1)),
    ("mistral4.attention.temperature_scale", 0.3, "float32"),
)

MODELS = {
    "ministral3": ("mistral3", MISTRAL, {}),
    "mistral4": ("mistral4", MISTRAL_4, {}),
    "deepseek_v2": ("deepseek2", latents(20, gating=1) + V2_YARN, SAME_SPREAD),
    "deepseek_v2_groups": ("deepseek2", latents(20, gating=1), {}),
    "deepseek_v3": ("deepseek2", latents(20), {"attention_bias": False}),
    "glm4_moe_lite": ("deepseek2", latents(20), {}),
    "gpt_oss": ("gpt-oss", OSS, {}),
    "glm4_moe": (
        "glm4moe",
        (*part("glm4moe", 16), ("glm4moe.expert_gating_func", 2, "uint32")),
        {},
    ),
    "dots1": ("dots1", sigmoid("dots1"), {}),
    "minimax_m2": (
        "minimax-m2",
        (
            *part("minimax-m2", 16),
            *sigmoid("minimax-m2"),
            ("minimax-m2.rope.freq_base", 5e6, "float32"),
        ),
        {},
    ),
    "olmoe": ("olmoe", (), {}),
    "qwen2_vl": ("qwen2vl", (), {"rope_theta": 1e6}),
    "qwen3_vl": ("qwen3vl", (), {"rope_theta": 1e6}),
    "qwen3_vl_moe": ("qwen3vlmoe", (), {"rope_theta": 1e6}),
    "smollm3": ("smollm3", (), {}),
    "seed_oss": ("seed_oss", (), {}),
    "arcee": ("arcee", (), {}),
    "glm4": ("glm4", part("glm4", 16), {}),
    "ernie4_5": ("ernie4_5", (("ernie4_5.rope.freq_base", 5e5, "float32"),), {}),
    "hunyuan": ("hunyuan-dense", (), {"rope_scaling": None}),
    "cohere": ("command-r", (("command-r.rope.freq_base", 5e5, "float32"),), {}),
    "cohere2": ("cohere2", (), {}),
    "exaone4": (
        "exaone4",
        (("exaone4.attention.sliding_window_pattern", [True, True, True, False], "array"),),
        {},
    ),
    "ernie4_5_moe": (
        "ernie4_5-moe",
        (
            ("ernie4_5-moe.rope.freq_base", 5e5, "float32"),
            ("ernie4_5-moe.expert_count", 8, "uint32"),
            ("ernie4_5-moe.expert_used_count", 3, "uint32"),
            ("ernie4_5-moe.expert_shared_count", 2, "uint32"),
            ("ernie4_5-moe.expert_shared_feed_forward_length", 48, "uint32"),
        ),
        {},
    ),
    "hunyuan_moe": (
        "hunyuan-moe",
        (
            ("hunyuan-moe.expert_used_count", 2, "uint32"),
            ("hunyuan-moe.expert_shared_feed_forward_length", 96, "uint32"),
        ),
        {"rope_scaling": None},
    ),
    "granitemoe": ("granitemoe", (), {}),
    "starcoder2": ("starcoder2", (), {}),
    "stablelm": ("stablelm", part("stablelm", 4), {}),
    "nemotron": ("nemotron", part("nemotron", 8), {}),
    "phi": ("phi2", part("phi2", 8), {"num_key_value_heads": 4}),
    "olmo": (
        "olmo",
        (
            ("olmo.attention.layer_norm_epsilon", 1e-5, "float32"),
            ("olmo.attention.clamp_kqv", 1.0, "float32"),
        ),
        {"rms_norm_eps": 1e-5},
    ),
}
"""What files call a model, what more they say, and what a file cannot say otherwise."""

IN_TURNS = {"gpt_oss": True, "qwen3_vl_moe": False, "granitemoe": False}
"""Those with gates and what they are multiplied by in one tensor, which files have apart."""


@pytest.fixture
def make(tmp_path):
    """Writes a model's file; `change` is what its configuration has otherwise."""

    def made(name, change=None, **options):
        architecture, more, same = MODELS[name]
        values = config_of(name)
        values = values.get("text_config", values) | same | (change or {})
        arrays = drawn(values)
        given = apart(arrays, IN_TURNS[name]) if name in IN_TURNS else arrays
        more = (*more, *options.pop("more", ()))
        path = tmp_path / "model.gguf"
        write(path, architecture, values, given, more=more, **options)
        return GgufCheckpoint(path), values, given

    return made


@pytest.mark.parametrize("name", MODELS)
def test_a_file_is_the_checkpoint(make, name):
    found, values, arrays = make(name)
    wanted, given = DecoderConfig.of(values), DecoderConfig.of(found.values())
    assert given.family.latent == wanted.family.latent
    for field in vars(wanted):
        if field not in ("layers", "family", "more_layers"):
            assert getattr(given, field) == getattr(wanted, field), field
    for own, layer in zip(given.layers, wanted.layers, strict=True):
        assert (own.window, own.sparse) == (layer.window, layer.sparse)
        assert (own.rope is None) == (layer.rope is None)
        assert own.growth == layer.growth
        if own.rope and layer.rope:
            np.testing.assert_allclose(own.rope.frequencies(), layer.rope.frequencies(), rtol=1e-6)
            assert own.rope.scaling.magnitude == layer.rope.scaling.magnitude
    selected = weights.select(found.weights, build(found).weights)
    assert selected.keys() == arrays.keys()
    for key, array in arrays.items():
        # A norm of nemotron is stored with one added.
        close = 2e-7 if name == "nemotron" and "norm" in key else 0
        np.testing.assert_allclose(np.asarray(selected[key]), array, rtol=0, atol=close)


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
def test_latents_in_other_types(make, kind):
    """What makes keys and values of them becomes floats, rounded as it is stored."""
    sizes = {"qk_nope_head_dim": 32, "kv_lora_rank": 32, "v_head_dim": 24, "attention_bias": False}
    more = latents(40, values=24)
    for apart_ in (True, False):
        change = sizes | {"q_lora_rank": 32, "moe_intermediate_size": 64, "kv_apart": apart_}
        found, values, arrays = make("deepseek_v3", change, kind=kind, more=more)
        graph = build(found, quantization="float")
        name = "model.layers.0.self_attn.kv_b_proj.weight"
        each = arrays[name].reshape(values["num_attention_heads"], 56, 32)
        turned = each[:, :32].swapaxes(1, 2)
        both = [
            rounded(np.ascontiguousarray(turned), kind).swapaxes(1, 2),
            rounded(each[:, 32:], kind),
        ]
        wanted = np.concatenate(both, axis=1) if apart_ else rounded(each, kind)
        selected = np.asarray(weights.select(found.weights, graph.weights)[name])
        np.testing.assert_array_equal(selected.astype(np.float32), wanted.reshape(-1, 32))


def test_files_without_yarn_have_none(make):
    """Though their families have it unless a configuration says otherwise."""
    none = (("mistral3.rope.scaling.type", "none", "string"),)
    found, *_ = make(
        "ministral3", more=(*none, ("mistral3.attention.temperature_scale", 0.0, "float32"))
    )
    rope = DecoderConfig.of(found.values()).layers[0].rope
    assert (rope.theta, rope.scaling, rope.growth) == (1e6, PLAIN, None)


def test_layers_that_guess_later_tokens(make):
    found, _, arrays = make(
        "glm4_moe",
        more=(("glm4moe.nextn_predict_layers", 1, "uint32"), ("glm4moe.block_count", 3, "uint32")),
        extra={
            "blk.2.nextn.eh_proj.weight": np.ones((2, 2), np.float32),
            "blk.2.attn_q.weight": np.ones((2, 2), np.float32),
        },
    )
    config = DecoderConfig.of(found.values())
    assert (len(config.layers), config.more_layers) == (2, 1)
    assert weights.select(found.weights, build(found).weights).keys() == arrays.keys()


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "glm4_moe",
            (("glm4moe.expert_gating_func", 1, "uint32"),),
            "glm4moe.expert_gating_func: wanted 2, got 1$",
        ),
        (
            "deepseek_v3",
            (("deepseek2.expert_gating_func", 3, "uint32"),),
            "expert_gating_func: wanted 1 or 2, got 3$",
        ),
        (
            "deepseek_v3",
            yarn("deepseek2", 8.0, 64),
            r"rope.scaling.yarn_log_multiplier: wanted that of a model with YaRN, got none$",
        ),
        (
            "ministral3",
            (("mistral3.rope.scaling.type", "none", "string"),),
            "attention.temperature_scale: wanted YaRN beside it, got none$",
        ),
        (
            "deepseek_v3",
            (("deepseek2.attention.temperature_scale", 0.1, "float32"),),
            "attention.temperature_scale: wanted 0.0, got 0.1$",
        ),
    ],
)
def test_what_is_not_computed(make, name, more, message):
    found, *_ = make(name, more=more)
    with pytest.raises(GraphError, match=message):
        found.values()


def test_scores_of_experts_that_a_file_does_not_name(make):
    """They are those of softmax, as in DeepSeek-V2, to which nothing is added."""
    found, *_ = make(
        "deepseek_v3",
        {"attention_bias": False, "norm_topk_prob": False},
        more=(("deepseek2.expert_gating_func", 0, "uint32"),),
    )
    with pytest.raises(GraphError, match=r"tensors of a deepseek_v2 model, got blk.1.exp_probs_b"):
        build(found)


def test_groups_of_experts_that_a_file_does_not_name(make):
    """Older files have none of these keys, and llama.cpp no groups there."""
    found, *_ = make("deepseek_v3")
    file = weights.GgufFile.read(found.file)
    for key in ("expert_group_count", "expert_group_used_count", "expert_weights_scale"):
        del file.values[f"deepseek2.{key}"]
    experts = DecoderConfig.of(gguf_config.values_of(file)).experts
    assert (experts.groups, experts.chosen_groups, experts.scale) == (1, 1, 1.0)


@pytest.mark.parametrize("sections", [(8, 12, 12, 0), (0, 0, 0, 0)])
def test_pairs_of_positions_in_sections(make, sections):
    """GLM-4V's files have the rows that turn together in halves."""
    more = (("glm4.rope.dimension_sections", list(sections), "array"),)
    found, *_ = make("glm4", more=more)
    assert DecoderConfig.of(found.values()).interleaved == (not any(sections))


def test_what_a_parallel_layer_says(make):
    """The converter says it of every StableLM whose configuration does not: tensors tell."""
    found, _, arrays = make("stablelm", more=(("stablelm.use_parallel_residual", True, "bool"),))
    assert weights.select(found.weights, build(found).weights).keys() == arrays.keys()


def test_keys_of_latents_without_values(make):
    found, *_ = make("deepseek_v3", {"attention_bias": False, "v_head_dim": 20})
    file = weights.GgufFile.read(found.file)
    del file.tensors["blk.0.attn_v_b.weight"]
    text = r"kv_b_proj\.values: wanted one tensor \[heads, any, any\], got 0$"
    with pytest.raises(ArtifactError, match=text):
        stored(file)
