"""Decoders whose keys and values are latents: sizes, weights, caches, and what is refused."""

import json
import math
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from decoder_cases import Evaluated, config_of, drawn
from safetensors.numpy import save_file

from heddle.graph import DType
from heddle.graph.compiler import assemble
from heddle.graph.compiler.pipeline import lower
from heddle.kernels.cuda.flash import latents
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.generation.inputs import INPUTS
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.latent_config import Latent
from heddle.pipelines.models.decoder.model import language_model
from heddle.pipelines.models.embedder import Head, decoder_embedder
from heddle.pipelines.models.products import Quantization
from heddle.runtime.errors import GraphError

V2, V3 = "deepseek_v2", "deepseek_v3"
MADE = "model.layers.0.self_attn.kv_b_proj"


def config(name=V3, **changes):
    return DecoderConfig.of({**config_of(name), **changes})


def test_a_token_has_one_latent_and_one_turned_key_in_the_cache():
    graph = language_model(config(), block_size=8)
    assert len(graph.inputs) == len(INPUTS) + 2
    assert str(graph.inputs[-1].type) == "float32[cache_blocks, 8, 1, 40] on cpu:0"
    assert config().latent == Latent(32, 24, 12, 8, 20)
    assert config(V2).latent.query == 0


def test_scores_are_scaled_by_the_head_and_by_yarn():
    """As much as `mscale_all_dim` says, once for queries and once for keys."""
    assert config().attention_scale == 20**-0.5
    spread = 0.1 * 1.2 * math.log(8.0) + 1
    assert config(V2).attention_scale == pytest.approx(20**-0.5 * spread**2)


def test_kimi_is_deepseek():
    values = config_of(V3)
    assert DecoderConfig.of(values | {"model_type": "kimi_k2"}) == DecoderConfig.of(values)


def test_layers_with_experts_are_those_that_the_list_says():
    values = config_of("glm4_moe_lite")
    assert [layer.sparse for layer in DecoderConfig.of(values).layers] == [True, False]
    del values["mlp_layer_types"]
    assert [layer.sparse for layer in DecoderConfig.of(values).layers] == [False, True]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (V3, {"kv_lora_rank": None}, "wanted the keys of latent attention, got no kv_lora_rank"),
        (V3, {"q_lora_rank": 0}, "q_lora_rank: wanted an integer of at least 1, got 0"),
        (V3, {"v_head_dim": 1 << 21}, f"v_head_dim: wanted at most {1 << 20}, got {1 << 21}"),
        (
            V3,
            {"qk_rope_head_dim": 7},
            "qk_rope_head_dim: wanted an even number, which rope turns, got 7",
        ),
        (V3, {"rope_interleave": 1}, "rope_interleave: wanted true or false, got 1"),
        (V3, {"topk_method": "greedy"}, "topk_method: wanted one of noaux_tc, got 'greedy'"),
        (V2, {"scoring_func": "sigmoid"}, "scoring_func: wanted softmax, got 'sigmoid'"),
        (V2, {"moe_layer_freq": 2}, "moe_layer_freq: wanted 1, got 2"),
        (V2, {"topk_method": "best"}, "topk_method: wanted one of greedy, group_limited_greedy"),
        (
            "glm4_moe_lite",
            {"mlp_layer_types": ["dense", "thin"]},
            "mlp_layer_types: wanted one of dense, sparse, got 'thin'",
        ),
    ],
)
def test_mistakes(name, changes, message):
    with pytest.raises(GraphError, match=re.escape(message)):
        config(name, **changes)


def test_queries_grow_with_their_position():
    """As if scores were scaled by more, behind as many tokens as the first training had."""
    values = config_of(V3)
    rope = {"rope_type": "default", "original_max_position_embeddings": 8}
    grown, plain = (
        values | {"rope_parameters": rope | more} for more in ({"llama_4_scaling_beta": 0.5}, {})
    )
    scale = config(V3).attention_scale * (1 + 0.5 * math.log(3))
    larger = language_model(replace(DecoderConfig.of(plain), attention_scale=scale))
    models = Evaluated(grown), Evaluated(plain, larger)
    models[0].step(range(16), 0, [15])
    models[1].caches = models[0].caches
    logits = [model.step([3, 5], 16, [0, 1])[1] for model in models]
    assert np.abs(logits[0] - logits[1]).max() < 1e-5


def test_whole_sequences_are_refused():
    message = "latent attention: wanted a step with a cache, got whole sequences"
    with pytest.raises(GraphError, match=message):
        decoder_embedder(config(), Head())


def test_a_gpu_takes_keys_as_values():
    """One cache is both, so that tensor cores take latents as large as those of checkpoints."""
    large = config(kv_lora_rank=512, qk_rope_head_dim=64)
    for sizes, taken in ((large, True), (config(), False)):
        module = lower(language_model(sizes, dtype=DType.bfloat16).module, "cuda")
        asked = [request.spec for _, request in assemble.requests(module, "cuda")]
        attended = [spec for spec in asked if spec.op == "paged_attention"]
        assert len(attended) >= len(sizes.layers)
        assert all(spec.attr("latent") for spec in attended)
        assert [latents.fits(spec) for spec in attended] == [taken] * len(attended)


def test_what_makes_keys_and_values_is_not_quantized():
    small = language_model(
        config(V2, v_head_dim=24, moe_intermediate_size=64), quantization=Quantization(8, 32)
    )
    ends = {name.removeprefix(MADE) for name in small.weights if MADE in name}
    assert ends == {".weight"}
    assert MADE.replace("kv_b", "q") + ".integers" in small.weights


def test_what_is_stored_in_8_bits_becomes_floats(tmp_path):
    """As DeepSeek-V3 is stored, with a layer that guesses later tokens behind the last one."""
    values = config_of(V3)
    arrays = drawn(values)
    wide = arrays[f"{MADE}.weight"].astype(ml_dtypes.float8_e4m3fn)
    arrays[f"{MADE}.weight"] = wide
    arrays[f"{MADE}.weight_scale_inv"] = np.full((1, 1), 0.5, np.float32)
    arrays["model.layers.2.eh_proj.weight"] = np.ones((64, 128), np.float32)
    save_file(arrays, tmp_path / "model.safetensors")
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    more = {"quantization_config": settings, "num_nextn_predict_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(values | more))
    checkpoint = Checkpoint(tmp_path)
    graph = build(checkpoint)
    weight = graph.weights[f"{MADE}.weight"]
    kinds = {f"{MADE}.weight": (weight.dtype.name, tuple(map(int, weight.shape)))}
    (found,) = weights.stored(checkpoint.weights).select(kinds).values()
    np.testing.assert_array_equal(np.asarray(found), wide.astype(np.float32) / 2)
