"""llama.cpp beside `decode.py`: a GGUF file with random weights, and its steps as calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np

PROMPT, BATCH, LENGTH, CONTEXT = 512, 8, 128, 8192

KINDS = {
    "bfloat16": gguf.GGMLQuantizationType.BF16,
    "int8": gguf.GGMLQuantizationType.Q8_0,
    "int4": gguf.GGMLQuantizationType.Q4_0,
    "q4_k": gguf.GGMLQuantizationType.Q4_K,
}

SCALES = {"int8": [0.0003], "int4": [0.0003], "q4_k": [0.00001, 0.00007]}
"""What a block of a kind begins with, in float16."""


def write(path: Path, config: dict[str, Any], held: str) -> None:
    """Writes a model of the sizes in `config`; it has no vocabulary, only its size."""
    writer = gguf.GGUFWriter(path, "llama")
    heads, size = config["num_attention_heads"], config["head_dim"]
    width, inner = config["hidden_size"], config["intermediate_size"]
    keys = config["num_key_value_heads"] * size
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    matrices = {"token_embd": (config["vocab_size"], width)}
    norms = ["output_norm"]
    for layer in range(config["num_hidden_layers"]):
        at = f"blk.{layer}"
        norms += [f"{at}.attn_norm", f"{at}.ffn_norm"]
        matrices |= {
            f"{at}.attn_q": (heads * size, width),
            f"{at}.attn_k": (keys, width),
            f"{at}.attn_v": (keys, width),
            f"{at}.attn_output": (width, heads * size),
            f"{at}.ffn_gate": (inner, width),
            f"{at}.ffn_up": (inner, width),
            f"{at}.ffn_down": (width, inner),
        }
    for name, (n, k) in matrices.items():
        writer.add_tensor(f"{name}.weight", data(n, k, held), raw_dtype=KINDS[held])
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def data(n: int, k: int, held: str) -> Any:
    """Random values of a weight [n, k] in the bytes of its kind: blocks of scales and integers."""
    generator = np.random.default_rng(0)
    if held == "bfloat16":
        values = generator.standard_normal(1 << 20).astype(np.float32) * 0.02
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return np.resize(bits, (n, k)).view(np.uint8)
    elements, size = gguf.GGML_QUANT_SIZES[KINDS[held]]
    blocks = np.empty((n, k // elements, size), np.uint8)
    scales = np.array(SCALES[held], np.float16).view(np.uint8)
    blocks[..., : len(scales)] = scales
    random = generator.integers(0, 256, 1 << 20, np.uint8)
    blocks[..., len(scales) :] = np.resize(random, blocks[..., len(scales) :].shape)
    return blocks.reshape(n, -1)


def calls(
    path: Path, config: dict[str, Any], threads: int, phases: Iterable[str]
) -> dict[str, Callable[[], object]]:
    """A call for each of `phases` of the model in `path`."""
    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(_quiet, None)
    options = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_load_model_from_file(str(path).encode(), options)
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = CONTEXT, PROMPT, PROMPT
    settings.n_seq_max = BATCH + 1
    settings.n_threads = settings.n_threads_batch = threads
    settings.kv_unified = True
    context = llama_cpp.llama_new_context_with_model(model, settings)
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(PROMPT, 0, 1)
    ids = np.random.default_rng(0).integers(0, config["vocab_size"], PROMPT)
    places = [0] * BATCH

    def decode(rows: list[tuple[int, int]]) -> None:
        """Processes a token of each (sequence, position); logits of each sequence's last one."""
        batch.n_tokens = len(rows)
        for i, (sequence, place) in enumerate(rows):
            batch.token[i], batch.pos[i] = int(ids[i]), place
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = i + 1 == len(rows) or rows[i + 1][0] != sequence
        if llama_cpp.llama_decode(context, batch):
            raise SystemExit("llama.cpp: a step failed")
        llama_cpp.llama_synchronize(context)

    def prompt() -> None:
        llama_cpp.llama_memory_seq_rm(memory, BATCH, -1, -1)
        decode([(BATCH, place) for place in range(PROMPT)])

    def step(rows: int) -> Callable[[], object]:
        def run() -> None:
            decode([(row, places[row]) for row in range(rows)])
            for row in range(rows):
                places[row] += 1

        return run

    for row in range(BATCH):
        decode([(row, place) for place in range(LENGTH)])
        places[row] = LENGTH
    made = {"prompt": prompt, "decode": step(1), f"decode of {BATCH}": step(BATCH)}
    return {phase: made[phase] for phase in phases}


@llama_cpp.llama_log_callback
def _quiet(level: int, text: bytes, data: Any) -> None:
    """Drops what the library says."""
