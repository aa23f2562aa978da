"""Families of decoders whose norms are layer norms with biases, as in `families`."""

from __future__ import annotations

from heddle.pipelines.models.decoder import variants
from heddle.pipelines.models.decoder.traits import (
    AttentionNames,
    Family,
    MlpNames,
    ModelNames,
    NormNames,
)

LAYER_NORM = {"layer_norm_eps": "rms_norm_eps"}
"""What configurations of models with layer norms call a key, and its name here."""

WITH_LAYER_NORMS: dict[str, Family] = {
    # arXiv:2402.16819
    "nemotron": Family(
        {"hidden_act": "relu2", "partial_rotary_factor": 0.5},
        {"norm_eps": "rms_norm_eps"},
        mlp=MlpNames(gate=""),
        centred=True,
        norm_bias=True,
        offset=1.0,
    ),
    # arXiv:2402.19173
    "starcoder2": Family(
        {
            "hidden_act": "gelu_pytorch_tanh",
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
        {"norm_epsilon": "rms_norm_eps"},
        mlp=MlpNames(gate="", up="c_fc", down="c_proj"),
        centred=True,
        norm_bias=True,
        refused={"use_bias": True},
        windows="all",
    ),
    # arXiv:2402.17834
    "stablelm": Family(
        {"partial_rotary_factor": 0.25},
        {**LAYER_NORM, "use_qkv_bias": "attention_bias"},
        centred=True,
        norm_bias=True,
        output_bias=False,
        refused={"use_parallel_residual": False, "qk_layernorm": False},
    ),
    # arXiv:2309.05463
    "phi": Family(
        {
            "hidden_act": "gelu_new",
            "partial_rotary_factor": 0.5,
            "attention_bias": True,
            "mlp_bias": True,
        },
        LAYER_NORM,
        names=ModelNames(norm="final_layernorm"),
        norms=NormNames(before_mlp=""),
        attention=AttentionNames(out="dense"),
        mlp=MlpNames(gate="", up="fc1", down="fc2"),
        parallel=True,
        centred=True,
        norm_bias=True,
        head_bias=True,
        refused={"qk_layernorm": False},
    ),
    # arXiv:2204.06745, arXiv:2304.01373
    "gpt_neox": Family(
        {
            "hidden_act": "gelu",
            "attention_bias": True,
            "mlp_bias": True,
            "partial_rotary_factor": 0.25,
        },
        {
            **LAYER_NORM,
            "rotary_pct": "partial_rotary_factor",
            "rotary_emb_base": "rope_theta",
        },
        names=ModelNames("gpt_neox.", "embed_in", norm="final_layer_norm", head="embed_out"),
        attention=AttentionNames("attention", joined="query_key_value", grouped=True, out="dense"),
        mlp=MlpNames(gate="", up="dense_h_to_4h", down="dense_4h_to_h"),
        parallel=True,
        centred=True,
        norm_bias=True,
    ),
    # https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
    "gpt2": Family(
        {
            "hidden_act": "gelu_new",
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-5,
        },
        {
            "n_embd": "hidden_size",
            "n_head": "num_attention_heads",
            "n_inner": "intermediate_size",
            "n_layer": "num_hidden_layers",
            "n_positions": "max_position_embeddings",
            "activation_function": "hidden_act",
            "layer_norm_epsilon": "rms_norm_eps",
        },
        names=ModelNames("transformer.", "wte", "h", "ln_f", positions="wpe"),
        norms=NormNames("ln_1", before_mlp="ln_2"),
        attention=AttentionNames("attn", joined="c_attn", out="c_proj"),
        mlp=MlpNames(gate="", up="c_fc", down="c_proj"),
        centred=True,
        norm_bias=True,
        refused={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        turned="",
        variant=variants.gpt2,
    ),
    # arXiv:2311.16867
    "falcon": Family(
        {
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-5,
        },
        {
            "activation": "hidden_act",
            "ffn_hidden_size": "intermediate_size",
            "layer_norm_epsilon": "rms_norm_eps",
            "num_kv_heads": "num_key_value_heads",
        },
        names=ModelNames("transformer.", "word_embeddings", "h", "ln_f"),
        attention=AttentionNames(
            "self_attention", joined="query_key_value", grouped=True, out="dense"
        ),
        mlp=MlpNames(gate="", up="dense_h_to_4h", down="dense_4h_to_h"),
        centred=True,
        norm_bias=True,
        refused={"alibi": False},
        variant=variants.falcon,
    ),
}
"""Each family by its `model_type`."""
