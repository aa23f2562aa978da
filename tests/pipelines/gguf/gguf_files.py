"""Tiny GGUF files, as llama.cpp's converter makes them of a checkpoint."""

import json

import gguf
import numpy as np
from ggml_blocks import dequantized, quantized

METADATA = {
    "max_position_embeddings": ("context_length", "uint32"),
    "hidden_size": ("embedding_length", "uint32"),
    "intermediate_size": ("feed_forward_length", "uint32"),
    "num_hidden_layers": ("block_count", "uint32"),
    "num_attention_heads": ("attention.head_count", "uint32"),
    "num_key_value_heads": ("attention.head_count_kv", "uint32"),
    "head_dim": ("attention.key_length", "uint32"),
    "rms_norm_eps": ("attention.layer_norm_rms_epsilon", "float32"),
    "rope_theta": ("rope.freq_base", "float32"),
    "sliding_window": ("attention.sliding_window", "uint32"),
    "num_experts": ("expert_count", "uint32"),
    "num_local_experts": ("expert_count", "uint32"),
    "num_experts_per_tok": ("expert_used_count", "uint32"),
    "moe_intermediate_size": ("expert_feed_forward_length", "uint32"),
    "shared_expert_intermediate_size": ("expert_shared_feed_forward_length", "uint32"),
    "attn_logit_softcapping": ("attn_logit_softcapping", "float32"),
    "final_logit_softcapping": ("final_logit_softcapping", "float32"),
    "attention_multiplier": ("attention.scale", "float32"),
    "embedding_multiplier": ("embedding_scale", "float32"),
    "residual_multiplier": ("residual_scale", "float32"),
    "logits_scaling": ("logit_scale", "float32"),
    "logit_scale": ("logit_scale", "float32"),
    "layer_norm_eps": ("attention.layer_norm_epsilon", "float32"),
    "norm_eps": ("attention.layer_norm_epsilon", "float32"),
    "norm_epsilon": ("attention.layer_norm_epsilon", "float32"),
    "kv_lora_rank": ("attention.kv_lora_rank", "uint32"),
    "q_lora_rank": ("attention.q_lora_rank", "uint32"),
    "n_routed_experts": ("expert_count", "uint32"),
    "n_shared_experts": ("expert_shared_count", "uint32"),
    "n_group": ("expert_group_count", "uint32"),
    "topk_group": ("expert_group_used_count", "uint32"),
    "routed_scaling_factor": ("expert_weights_scale", "float32"),
    "norm_topk_prob": ("expert_weights_norm", "bool"),
}
"""Keys of a configuration, and those of a file with their types."""

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.final_layernorm": "output_norm",
    "lm_head": "output",
}
"""Tensors outside of layers."""

INSIDE = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.router": "ffn_gate_inp",
    "mlp.gate.wg": "ffn_gate_inp",
    "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
    "mlp.shared_mlp.up_proj": "ffn_up_shexp",
    "mlp.shared_mlp.down_proj": "ffn_down_shexp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.gate_proj": "ffn_gate_exps",
    "block_sparse_moe.up_proj": "ffn_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "self_attn.dense": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Tensors of layers."""

BEHIND = {"post_attention_layernorm": "post_attention_norm"}
"""Those of gemma2, gemma3 and olmo2, which have norms behind their parts."""

CALLED_SO = ("gemma2", "gemma3", "olmo2", "gpt-oss", "glm4moe", "seed_oss", "exaone4")
"""These, and others that call the norm before the feed-forward part so."""

UNENDED = {
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
    "self_attn.sinks": "attn_sinks.weight",
    **{f"mlp.experts.{name}_proj_bias": f"ffn_{name}_exps.bias" for name in ("gate", "up", "down")},
}
"""Tensors of layers with other ends."""

PAIRED = ("llama", "granite", "smollm3", "arcee", "mistral3", "granitemoe", "olmo")
"""Architectures whose queries and keys turn in pairs of neighbours."""


def name_of(ours, architecture):
    """What a tensor of a checkpoint is called in a file."""
    for theirs, called in UNENDED.items():
        if ours.endswith(f".{theirs}"):
            return f"blk.{ours.split('.')[2]}.{called}"
    stem, _, end = ours.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{end}"
    _, _, layer, inside = stem.split(".", 3)
    behind = BEHIND if architecture in CALLED_SO else {}
    return f"blk.{layer}.{behind.get(inside) or INSIDE[inside]}.{end}"


def in_pairs(weight, heads):
    """Rows of queries or keys, half a head apart, side by side."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def apart(arrays, in_turns):
    """Weights of experts with gates, and what these are multiplied by, in tensors of their own."""
    found = {}
    for name, array in arrays.items():
        joined = next((each for each in ("gate_up_proj", "input_linear") if each in name), "")
        if joined:
            half = array.shape[1] // 2
            turns, halves = np.s_[0::2, 1::2], np.s_[:half, half:]
            parts = turns if in_turns else halves
            for what, part in zip(("gate", "up"), parts, strict=True):
                found[name.replace(joined, f"{what}_proj")] = array[:, part]
        else:
            found[name] = array
    return found


def of_latents(array, heads, columns):
    """What makes keys and values of latents, as two tensors, of which keys are turned."""
    each = array.reshape(heads, -1, array.shape[-1])
    return np.ascontiguousarray(each[:, :columns].swapaxes(1, 2)), each[:, columns:]


def tensors_of(arrays, config, architecture):
    """The tensors of a file, by name, of the weights of a checkpoint."""
    heads = config["num_attention_heads"]
    counts = {"q_proj": heads, "k_proj": config.get("num_key_value_heads", heads)}
    found = {}
    for ours, array in arrays.items():
        what = ours.split(".")[-2]
        if architecture in PAIRED and what in counts:
            array = in_pairs(array, counts[what])
        more = architecture == "nemotron" and ours.endswith("norm.weight")
        if more or (architecture.startswith("gemma") and what.endswith("norm")):
            array = array + np.float32(1)
        if what == "shared_expert_gate" or "e_score_correction" in ours:
            array = array.reshape(-1)
        name = name_of(ours, architecture)
        if what == "kv_b_proj" and config.get("kv_apart", True):
            both = of_latents(array, heads, config["qk_nope_head_dim"])
            names = (name.replace("_kv_b", f"_{part}_b") for part in "kv")
            found |= dict(zip(names, both, strict=True))
        else:
            found[name] = array
    return found


def write(path, architecture, config, arrays, kind="F32", tokenizer=None, more=(), extra=None):
    """A file of a model with this configuration and weights.

    Args:
        path: Where.
        architecture: What the file calls it.
        config: The keys of a `config.json`.
        arrays: The weights by their names in a checkpoint, float32.
        kind: The type of those that are products, a name or what gives it for a tensor's name.
        tokenizer: Adds one to the writer.
        more: Further keys, their values and types.
        extra: Further tensors by name.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, (name, form) in METADATA.items():
        if config.get(key) is not None:
            getattr(writer, f"add_{form}")(f"{architecture}.{name}", config[key])
    for name, value, form in more:
        getattr(writer, f"add_{form}")(name, value)
    if tokenizer:
        tokenizer(writer)
    choose = kind if callable(kind) else lambda name: kind
    tensors = tensors_of(arrays, config, architecture)
    for name, array in {**tensors, **(extra or {})}.items():
        plain = array.ndim == 1 or "norm" in name or "ffn_gate_inp" in name
        chosen = "F32" if plain else choose(name)
        rows, number = quantized(array, chosen), gguf.GGMLQuantizationType[chosen]
        writer.add_tensor(name, rows, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded(array, kind):
    """What a weight is in a type: float32."""
    return dequantized(kind, quantized(array, kind))


def byte_level(tokenizer, pre="gpt-2", size=0, **ids):
    """Adds a tokenizer of the library `tokenizers` to a writer, as one of byte-level BPE.

    Args:
        tokenizer: That.
        pre: How it cuts texts.
        size: The rows of the embeddings, where they are more than its tokens.
        ids: The numbers of special tokens, such as `eos`.
    """
    content = json.loads(tokenizer.to_str())
    special = {row["id"]: row["special"] for row in content["added_tokens"]}
    count = tokenizer.get_vocab_size()
    texts = [tokenizer.id_to_token(number) for number in range(count)]
    texts += [f"[PAD{number}]" for number in range(count, size)]
    kinds = [{None: 1, True: 3, False: 4}[special.get(number)] for number in range(count)]

    def add(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(texts)
        writer.add_token_types(kinds + [5] * (len(texts) - count))
        writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
        for name, number in ids.items():
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)

    return add
