"""Decoders of each family beside what transformers computes, and their graphs."""

import json
from pathlib import Path

import numpy as np
import pytest
from decoder_cases import GOLDEN, arguments, check, config_of, drawn
from decoder_models import COMPILED
from safetensors.numpy import save_file

from heddle.graph import DType, compile
from heddle.graph.compiler import assemble
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.sizes import evaluate
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import language_model
from heddle.pipelines.models.products import Quantization
from heddle.pipelines.quantization import quantize
from heddle.pipelines.stored.selection import Stored
from heddle.runtime import Buffer, InferenceSession
from heddle.runtime.errors import GraphError

Q4_K = Quantization(4, 32, minimums=True, scales=DType.float16)


class Decoder:
    """A model on one sequence, from weights that are stored in float32."""

    def __init__(self, values: dict, dtype=DType.float32, quantization=None, arrays=None):
        arrays = arrays or drawn(values)
        self.config = DecoderConfig.of(values)
        stored = dict.fromkeys(arrays, DType.float32)
        graph = language_model(self.config, "tiny", dtype, quantization, stored)
        wanted = {n: (w.dtype.name, tuple(map(int, w.shape))) for n, w in graph.weights.items()}
        session = InferenceSession(threads=2)
        found = Stored(Path("w"), arrays).select(wanted)
        self.model = session.load(compile(graph, "cpu:native"), found)
        self.caches = [
            Buffer(dtype.name, (8, 16, *heads))
            for _ in self.config.layers
            for heads in self.config.caches.values()
        ]

    def step(self, tokens, start: int, places):
        """Next tokens and logits at `places` of `tokens`, of which the first is number `start`."""
        sizes = {"next": (np.int64, ()), "logits": (np.float32, (self.config.vocab_size,))}
        found = [np.empty((len(places), *shape), dtype) for dtype, shape in sizes.values()]
        given = arguments(self.config, tokens, start, places)
        self.model.execute(*given, *self.caches, out=[*found, *self.caches])
        return found


@pytest.mark.parametrize("name", COMPILED)
def test_logits_and_the_likeliest_tokens_are_those_of_transformers(name):
    check(Decoder(config_of(name)), name)


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


@pytest.mark.parametrize("name", ["llama", "qwen3", "glm", "phi3"])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_layer_writes_its_cache_in_one_kernel(name, kind):
    """With the rotation of queries and keys."""
    config = DecoderConfig.of(config_of(name))
    module = lower(language_model(config, dtype=DType.bfloat16).module, kind)
    kernels = [request.spec.op for _, request in assemble.requests(module, kind)]
    assert kernels.count("rotate_and_write") == len(config.layers)
    assert not {"rope", "paged_write"}.intersection(kernels)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
@pytest.mark.parametrize(
    ("quantization", "few"),
    [(None, 64), (Quantization(4, 32), 16), (Q4_K, 16)],
)
def test_queries_keys_and_values_are_one_launch_of_few_tokens_and_so_is_a_gate(
    name, quantization, few
):
    config = DecoderConfig.of(config_of(name))
    module = lower(language_model(config, "", DType.bfloat16, quantization).module, "cuda")
    asked = [request for _, request in assemble.requests(module, "cuda")]
    products = [request for request in asked if request.spec.op.endswith("matmul")]

    def launches(tokens):
        return sum(evaluate(p.condition, dict.fromkeys(p.spec.dims, tokens)) for p in products)

    layers = len(config.layers)
    assert launches(1) == launches(few) == 4 * layers + 1
    assert launches(few + 1) == 7 * layers + 1


def test_minimums_take_no_kernels_of_their_own_on_a_gpu():
    config = DecoderConfig.of(config_of("llama"))
    plain, with_minimums = (
        [request.spec.op for _, request in assemble.requests(module, "cuda")]
        for module in (
            lower(language_model(config, "", DType.bfloat16, held).module, "cuda")
            for held in (Quantization(4, 32), Q4_K)
        )
    )
    assert plain == with_minimums


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


@pytest.mark.parametrize(("change", "own"), [(0, False), (1, True)])
def test_logits_by_a_weight_of_their_own_where_the_config_says_that_they_are_tied(
    tmp_path, change, own
):
    """As training writes it that has changed one of the two."""
    values = config_of("qwen2")
    arrays = drawn(values)
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"] + np.float32(change)
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert ("lm_head.weight" in build(Checkpoint(tmp_path)).weights) == own


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
