"""Decoders of the Llama family beside what transformers computes, and their configurations."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from decoder_weights import weight
from safetensors.numpy import save_file

from heddle.graph import DType, compile
from heddle.graph.compiler import assemble
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.sizes import evaluate
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder import Quantization, language_model
from heddle.pipelines.models.decoder_config import DecoderConfig
from heddle.pipelines.quantization import fit, quantize
from heddle.runtime import Buffer, InferenceSession
from heddle.runtime.errors import GraphError

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "decoders.npz")

MODELS = sorted({name.partition(".")[0] for name in GOLDEN.files})


def config_of(name: str) -> dict:
    return json.loads(GOLDEN[f"{name}.config"].tobytes())


def drawn(values: dict) -> dict:
    """The float32 weights of a model."""
    graph = language_model(DecoderConfig.of(values))
    return {name: weight(name, tuple(map(int, w.shape))) for name, w in graph.weights.items()}


class Decoder:
    """A model on one sequence, from weights that are stored in float32."""

    def __init__(self, values: dict, dtype=DType.float32, quantization=None, arrays=None):
        arrays = arrays or drawn(values)
        self.config = DecoderConfig.of(values)
        stored = dict.fromkeys(arrays, DType.float32)
        graph = language_model(self.config, "tiny", dtype, quantization, stored)
        wanted = {n: (w.dtype.name, tuple(map(int, w.shape))) for n, w in graph.weights.items()}
        session = InferenceSession(threads=2)
        found = fit(Path("w"), arrays, wanted)
        self.model = session.load(compile(graph, "cpu:native"), found)
        shape = (8, 16, self.config.num_key_value_heads, self.config.head_dim)
        count = 2 * self.config.num_hidden_layers
        self.caches = [Buffer(dtype.name, shape) for _ in range(count)]

    def step(self, tokens, start: int, places):
        """Next tokens and logits at `places` of `tokens`, of which the first is number `start`."""
        count, samples = len(tokens), len(places)
        sizes = {"next": (np.int64, ()), "logits": (np.float32, (self.config.vocab_size,))}
        found = [np.empty((samples, *shape), dtype) for dtype, shape in sizes.values()]
        self.model.execute(
            np.asarray(tokens),
            np.arange(start, start + count),
            np.array([0, count]),
            np.array([start + count]),
            np.array([[3, 1, 7, 2, 0, 5]], np.int32),
            np.asarray(places, np.int64),
            np.zeros((samples, 6), np.float32),
            np.zeros((samples, 2), np.int64),
            np.zeros((0, 2), np.int64),
            np.zeros(samples + 1, np.int64),
            np.full((samples, -(-self.config.vocab_size // 32)), -1, np.int32),
            *self.caches,
            out=[*found, *self.caches],
        )
        return found


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_the_likeliest_tokens_are_those_of_transformers(name):
    decoder = Decoder(config_of(name))
    tokens, wanted = GOLDEN[f"{name}.tokens"], GOLDEN[f"{name}.logits"]
    count, prompt = len(tokens), len(tokens) - 64
    chosen, whole = decoder.step(tokens, 0, range(count))
    np.testing.assert_allclose(whole, wanted, atol=3e-5)
    assert GOLDEN[f"{name}.gap"] > 10 * np.abs(whole - wanted).max()
    np.testing.assert_array_equal(chosen[prompt - 1 : -1], tokens[prompt:])
    # The same in chunks, of which the first wants nothing, and then token by token.
    assert decoder.step(tokens[:9], 0, [])[1].shape == (0, whole.shape[1])
    _, chunk = decoder.step(tokens[9:prompt], 9, range(prompt - 9))
    np.testing.assert_allclose(chunk, whole[9:prompt], atol=3e-5)
    generated = [int(tokens[prompt - 1])]
    for position in range(prompt, count):
        (token,), row = decoder.step(tokens[position : position + 1], position, [0])
        np.testing.assert_allclose(row[0], whole[position], atol=3e-5)
        generated.append(int(token))
    np.testing.assert_array_equal(generated[1:-1], tokens[prompt + 1 :])


@pytest.mark.parametrize(("dtype", "atol"), [(DType.bfloat16, 0.2), (DType.float16, 0.02)])
def test_a_narrow_dtype_stays_near(dtype, atol):
    tokens, wanted = GOLDEN["llama.tokens"], GOLDEN["llama.logits"]
    _, found = Decoder(config_of("llama"), dtype).step(tokens, 0, range(len(tokens)))
    np.testing.assert_allclose(found, wanted, atol=atol)
    assert np.abs(found - wanted).max() > 1e-4


def rounded(array, bits):
    """A weight as it is after quantization."""
    integers, scales = quantize(array, bits, 32)
    if bits == 4:
        pairs = np.stack([integers & 15, integers >> 4], axis=-1).reshape(array.shape)
        integers = pairs.astype(np.int8) - np.int8(8)
    return integers * np.repeat(scales, 32, axis=1)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_products_are_those_of_the_rounded_weights(bits):
    values, tokens = config_of("llama"), GOLDEN["llama.tokens"]
    small = Decoder(values, quantization=Quantization(bits, 32))
    arrays = {
        name: rounded(array, bits) if array.ndim == 2 and "embed" not in name else array
        for name, array in drawn(values).items()
    }
    plain = Decoder(values, arrays=arrays)
    found, wanted = (d.step(tokens, 0, range(len(tokens)))[1] for d in (small, plain))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.abs(found - GOLDEN["llama.logits"]).max() > 1e-3


@pytest.mark.parametrize("bits", [8, 4])
def test_activations_in_8_bits_move_logits_a_little(bits):
    values, tokens = config_of("llama"), GOLDEN["llama.tokens"]
    plain, small = (
        Decoder(values, quantization=Quantization(bits, 32, kind)) for kind in ("float", "int8")
    )
    wanted, found = (d.step(tokens, 0, range(len(tokens)))[1] for d in (plain, small))
    # Rounding a group of 32 moves a product by half a percent, and some twenty lie in a row.
    moved = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert 1e-3 < moved < 0.05


def test_tied_embeddings_are_quantized_for_the_logits_alone():
    graph = language_model(DecoderConfig.of(config_of("qwen2")), quantization=Quantization(4, 32))
    names = [name.rpartition(".")[2] for name in graph.weights if "embed_tokens" in name]
    assert names == ["weight", "integers", "scales"]


def test_weights_of_products_in_whole_groups():
    values = {**config_of("qwen2"), "intermediate_size": 80}
    with pytest.raises(GraphError, match=r"mlp.down_proj: wanted inputs in whole groups of 32, "):
        language_model(DecoderConfig.of(values), quantization=Quantization(8, 32))
    with pytest.raises(GraphError, match="quantization: wanted int8 or int4, got 'int3'"):
        Quantization.parse("int3")


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_layer_writes_its_cache_in_one_kernel(name, kind):
    """With the rotation of queries and keys."""
    config = DecoderConfig.of(config_of(name))
    module = lower(language_model(config, dtype=DType.bfloat16).module, kind)
    kernels = [request.spec.op for _, request in assemble.requests(module, kind)]
    assert kernels.count("rotate_and_write") == config.num_hidden_layers
    assert not {"rope", "paged_write"}.intersection(kernels)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
@pytest.mark.parametrize(("quantization", "few"), [(None, 64), (Quantization(4, 32), 16)])
def test_queries_keys_and_values_are_one_launch_of_few_tokens_and_so_is_a_gate(
    name, quantization, few
):
    config = DecoderConfig.of(config_of(name))
    module = lower(language_model(config, "", DType.bfloat16, quantization).module, "cuda")
    asked = [request for _, request in assemble.requests(module, "cuda")]
    products = [request for request in asked if request.spec.op.endswith("matmul")]

    def launches(tokens):
        return sum(evaluate(p.condition, dict.fromkeys(p.spec.dims, tokens)) for p in products)

    layers = config.num_hidden_layers
    assert launches(1) == launches(few) == 4 * layers + 1
    assert launches(few + 1) == 7 * layers + 1


def test_the_signature():
    graph = language_model(DecoderConfig.of(config_of("qwen3")), block_size=8)
    types = {str(value.type) for value in graph.inputs[-4:]}
    assert types == {"float32[cache_blocks, 8, 2, 32] on cpu:0"}
    assert graph.symbols["row_blocks"] == (1, 64)
    assert graph.symbols["samples"][0] == 0


@pytest.mark.parametrize(("positions", "block", "blocks"), [(10, 10, 1), (16, 16, 1), (37, 16, 2)])
def test_no_row_is_longer_than_the_model_has_positions(positions, block, blocks):
    config = DecoderConfig.of({**config_of("qwen3"), "max_position_embeddings": positions})
    graph = language_model(config)
    assert graph.symbols["row_blocks"] == (1, blocks)
    assert str(graph.inputs[-1].type) == f"float32[cache_blocks, {block}, 2, 32] on cpu:0"


BASE = {"model_type": "llama", **{k: v for k, v in config_of("qwen2").items() if "model" not in k}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma"}, "model_type: wanted one of llama, mistral, .*, got 'gemma'"),
        ({"hidden_size": None}, "wanted the keys of a llama model, got no hidden_size"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: wanted none, got"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: wanted 1.0, got 0.5"),
        ({"hidden_act": "mish"}, "hidden_act: wanted one of silu, .*, got 'mish'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: wanted a divisor of 4 heads, got 3"),
        ({"num_attention_heads": 6, "num_key_value_heads": 6}, "a multiple of 6 heads, got 64"),
        ({"rope_scaling": {"type": "yarn"}}, "wanted default, linear or llama3, got 'yarn'"),
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
        ({"head_dim": -16}, "head_dim: wanted an integer of at least 1, got -16$"),
        ({"num_attention_heads": 4.0}, "num_attention_heads: wanted an integer .* 1, got 4.0$"),
        ({"sliding_window": -1}, "sliding_window: wanted an integer of at least 0, got -1$"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps: wanted a finite number above 0, got nan$"),
        ({"rope_theta": "x"}, "rope_theta: wanted a finite number above 0, got 'x'$"),
        ({"rope_theta": 0}, "rope_theta: wanted a finite number above 0, got 0$"),
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


BIAS = "model.layers.0.self_attn.q_proj.bias"


@pytest.mark.parametrize(
    ("change", "more", "named"),
    [
        ({"num_hidden_layers": 1}, (), r"model\.layers\.1\."),
        ({}, (BIAS,), BIAS),
        ({}, ("model.layers.0.self_attn.rotary_emb.inv_freq",), None),
    ],
)
def test_a_checkpoint_with_weights_of_another_model(decoder, tmp_path, change, more, named):
    """Which the graph would leave out: another model's text would come of it."""
    arrays = dict(weights.read(Checkpoint(decoder).weights))
    arrays |= {name: np.ones(64, np.float32) for name in more}
    save_file(arrays, tmp_path / "model.safetensors")
    config = json.loads((decoder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    if named is None:
        assert build(Checkpoint(tmp_path)).weights
        return
    with pytest.raises(GraphError, match=f"wanted the weights of the model in .* got also {named}"):
        build(Checkpoint(tmp_path))


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(GraphError, match=r"wanted a model's config\.json"):
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
    ],
)
def test_windows(change, windows):
    assert DecoderConfig.of(BASE | change).windows == windows


def test_the_newer_place_of_rope():
    newer = {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}
    config = DecoderConfig.of({k: v for k, v in BASE.items() if "rope" not in k} | newer)
    assert (config.rope_theta, config.rope_scaling) == (5.0, None)
