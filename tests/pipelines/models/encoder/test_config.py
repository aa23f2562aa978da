"""Which configurations of encoders are read, and which are refused by name."""

import json
import math
from dataclasses import replace

import pytest
from encoder_cases import config_of

from heddle.pipelines.models.encoder.config import EncoderConfig, LayerKind
from heddle.pipelines.models.scorer import ScorerConfig
from heddle.runtime.errors import GraphError

OLD_NOMIC = {
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 32,
    "n_head": 2,
    "n_inner": 48,
    "n_layer": 2,
    "n_positions": 40,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 500,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "layer_norm_epsilon": 1e-12,
    "type_vocab_size": 2,
    "vocab_size": 60,
}
"""The keys of nomic-embed-text-v1.5."""


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert", {"model_type": "t5"}, "model_type: wanted one of bert, .*, got 't5'$"),
        ("bert", {"model_type": ["bert"]}, r"model_type: wanted one of bert, .*, got \['bert'\]$"),
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type: wanted absolute, got 'relative_key'$",
        ),
        ("bert", {"is_decoder": True}, "is_decoder: wanted False, got True$"),
        ("bert", {"hidden_act": "mish"}, "hidden_act: wanted one of gelu, .*, got 'mish'$"),
        ("bert", {"hidden_size": None}, "hidden_size: wanted an integer of at least 1, got None$"),
        ("bert", {"hidden_size": "32"}, "hidden_size: wanted an integer of at least 1, got '32'$"),
        ("bert", {"num_attention_heads": 3}, "hidden_size: wanted a multiple of 3 heads, got 32$"),
        ("bert", {"num_hidden_layers": 10**9}, "num_hidden_layers: wanted at most 4096, got 10+$"),
        ("bert", {"layer_norm_eps": math.nan}, "layer_norm_eps: wanted a finite .* 0, got nan$"),
        ("bert", {"type_vocab_size": 0}, "type_vocab_size: wanted an integer of at least 1, got 0"),
        ("bert", {"quantization_config": {"bits": 4}}, "quantization_config: wanted none, got {"),
        ("bert", {"compression_config": {"format": 1}}, "compression_config: wanted none, got {"),
        ("roberta", {"pad_token_id": 39}, "max_position_embeddings: wanted more than 40, got 40$"),
        ("roberta", {"pad_token_id": -1}, "pad_token_id: wanted an integer of at least 0, got -1$"),
        (
            "mpnet",
            {"relative_attention_num_buckets": 64},
            "relative_attention_num_buckets: wanted 32, got 64$",
        ),
        ("distilbert", {"dim": None}, "hidden_size: wanted an integer of at least 1, got None$"),
        ("distilbert", {"activation": "swish"}, "activation: wanted one of gelu, .* got 'swish'$"),
        ("modernbert", {"layer_types": ["full_attention"]}, r"layer_types: wanted a list of 4, "),
        (
            "modernbert",
            {"layer_types": ["full_attention"] * 3 + ["chunked_attention"]},
            "layer_types: wanted full_attention or sliding_attention, got 'chunked_attention'$",
        ),
        ("modernbert", {"local_attention": 1}, "local_attention: wanted an integer of at least 2"),
        ("modernbert", {"sliding_window": 8}, "sliding_window: wanted 4, got 8$"),
        ("modernbert", {"norm_bias": "no"}, "norm_bias: wanted true or false, got 'no'$"),
        ("modernbert", {"rope_scaling": {"factor": 2}}, "rope_scaling: wanted none, got {"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters: full_attention: rope_type: wanted default, got 'yarn'$",
        ),
        ("modernbert", {"rope_parameters": 7}, "rope_parameters: wanted a JSON object, got 7$"),
        (
            "modernbert",
            {"hidden_size": 30, "num_attention_heads": 2},
            "head size: wanted an even number, which rope turns, got 15$",
        ),
        (
            "bert",
            {"hidden_size": 1 << 40},
            f"hidden_size: wanted at most {1 << 20}, got {1 << 40}$",
        ),
        (
            "mpnet",
            {"max_position_embeddings": (1 << 40) + 2},
            f"positions: wanted at most {1 << 20}, got {1 << 40}$",
        ),
        ("nomic_bert", {"head_dim": 8}, "head_dim: wanted 16, got 8$"),
        ("nomic_bert", {"prenorm": True}, "prenorm: wanted False, got True$"),
        ("nomic_bert", {"rotary_scaling_factor": 2}, "rotary_scaling_factor: wanted none, got 2$"),
        ("nomic_bert", {"activation_function": "gelu"}, "activation_function: wanted swiglu, got"),
        ("nomic_bert", {"moe_every_n_layers": 2}, "moe_every_n_layers: wanted 0, got 2$"),
    ],
)
def test_a_config_of_another_model_is_refused(tmp_path, name, change, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_of(name) | change))
    with pytest.raises(GraphError, match=message) as error:
        EncoderConfig.read(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(GraphError, match=r"config\.json: wanted a JSON object"):
        EncoderConfig.read(path)


def test_the_older_keys_of_nomic():
    assert EncoderConfig.of(OLD_NOMIC) == EncoderConfig.of(config_of("nomic_bert"))


def test_the_older_keys_of_modernbert():
    """As ModernBERT-base has them, where every third layer is a global one."""
    values = config_of("modernbert")
    older = {
        name: values[name] for name in values if name not in ("layer_types", "rope_parameters")
    }
    config = EncoderConfig.of({**older, "local_rope_theta": 7.0, "global_rope_theta": 9.0})
    local, everywhere = LayerKind(4, 7.0), LayerKind(0, 9.0)
    assert config.kinds == (everywhere, local, local, everywhere)
    every = EncoderConfig.of({**older, "global_attn_every_n_layers": 2}).kinds
    assert every == (LayerKind(0, 160000.0), LayerKind(4, 10000.0)) * 2


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "distilbert"])
def test_what_older_files_do_not_say(name):
    """As those of the first BERT; it is what transformers takes then."""
    values = config_of(name)
    unsaid = ("layer_norm_eps", "hidden_act", "activation", "type_vocab_size")
    older = EncoderConfig.of({key: values[key] for key in values if key not in unsaid})
    wanted = EncoderConfig.of(values)
    assert older == replace(wanted, layer_norm_eps=1e-12, hidden_act="gelu")
    assert older.type_vocab_size == (2 if "bert" in name and name != "distilbert" else 0)


@pytest.mark.parametrize(("first", "longest"), [(0, 39), (1, 38)])
def test_positions_begin_behind_the_padding(first, longest):
    config = EncoderConfig.of(config_of("roberta") | {"pad_token_id": first})
    assert (config.first_position, config.max_position_embeddings) == (first + 1, longest)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert_pairs", {"id2label": {"0": "A", "1": "B"}}, "num_labels: wanted 1, .*, got 2$"),
        ("bert_pairs", {"id2label": None}, "num_labels: wanted 1, which is a pair's score, got 2$"),
        ("bert_pairs", {"model_type": "t5"}, "model_type: wanted one of bert, .*, got 't5'$"),
        (
            "bert_pairs",
            {"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}},
            "sentence_transformers: activation_fn: wanted one of torch.* got 'torch.nn.Tanh'$",
        ),
        (
            "bert_pairs",
            {"sbert_ce_default_activation_function": 3},
            "sbert_ce_default_activation_function: wanted one of torch.* got 3$",
        ),
        (
            "modernbert_pairs",
            {"classifier_pooling": "max"},
            "classifier_pooling: wanted one of cls, mean, got 'max'$",
        ),
        (
            "modernbert_pairs",
            {"classifier_activation": "mish"},
            "classifier_activation: wanted one of gelu, .*, got 'mish'$",
        ),
        (
            "modernbert_pairs",
            {"classifier_bias": 1},
            "classifier_bias: wanted true or false, got 1$",
        ),
    ],
)
def test_a_config_of_another_scorer_is_refused(name, change, message):
    with pytest.raises(GraphError, match=message):
        ScorerConfig.of(config_of(name) | change)
