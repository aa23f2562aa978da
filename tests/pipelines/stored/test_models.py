"""Language models with quantized weights, beside those with the same weights in floats."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from packers import AWQ, FP8, GPTQ, awq, compressed, fp8, named, rounded
from safetensors.numpy import save_file

from heddle.contexts import SamplingParams
from heddle.graph import DType, compile
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.cli import main
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.language_model import build
from heddle.pipelines.models.products import AS_STORED, Quantization
from heddle.runtime import InferenceSession
from heddle.runtime.errors import ArtifactError, GraphError

DOWN = "model.layers.0.mlp.down_proj"


def gptq(weight):
    own = rounded(weight, 4, 32, symmetric=True)
    return own.gptq(), own.floats


def ordered(weight):
    """As GPTQ with `desc_act` stores it: groups are side by side in another order of columns."""
    order = np.random.default_rng(0).permutation(weight.shape[1])
    own, places = rounded(weight[:, order], 4, 32, symmetric=False), np.argsort(order)
    own = replace(own, integers=own.integers[:, places], places=own.places[places])
    return own.gptq(), np.ascontiguousarray(own.floats)


def packed(weight):
    own = rounded(weight, 8, 32, symmetric=True)
    return own.packed(symmetric=True), own.floats


BOTH = (".scales", ".minimums")

WAYS = {
    "gptq": (gptq, GPTQ, {".integers": "uint8", ".scales": "float16"}),
    "gptq in order": (
        ordered,
        GPTQ,
        {".integers": "uint8", ".order": "int64", **dict.fromkeys(BOTH, "float16")},
    ),
    "awq": (awq, AWQ, {".integers": "uint8", **dict.fromkeys(BOTH, "float16")}),
    "compressed-tensors": (
        packed,
        compressed("pack-quantized"),
        {".integers": "int8", ".scales": "float32"},
    ),
    "fp8": (fp8, FP8, {".integers": "float8_e4m3fn", ".scales": "float32"}),
}
"""What makes the tensors of a weight, the configuration, and what a graph has of it."""

PRODUCTS = "proj.weight"
"""How those end that are quantized: all but the embeddings, and the head of 260 tokens."""


def written(folder, name, arrays, settings=None):
    """A folder beside the decoder's with these weights, and its tokenizer and configuration."""
    for file in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (folder / file).write_bytes((name / file).read_bytes())
    if settings:
        config = json.loads((name / "config.json").read_text())
        config["quantization_config"] = settings
        (folder / "config.json").write_text(json.dumps(config))
    save_file(arrays, folder / "model.safetensors")
    return folder


def quantized(decoder, folder, way):
    """The decoder's folder with weights stored so, and the floats that these stand for."""
    store, settings, _ = WAYS[way]
    floats = dict(weights.read(Checkpoint(decoder).weights))
    arrays = dict(floats)
    for name in floats:
        if name.endswith(PRODUCTS):
            parts, floats[name] = store(arrays.pop(name))
            arrays |= named(name.removesuffix(".weight"), parts)
    return written(folder, decoder, arrays, settings), floats


def texts(folder, model):
    generator = TextGenerator(model, TextTokenizer(folder))
    params = SamplingParams(max_new_tokens=24, temperature=0.0, top_k=-1, ignore_eos=True)
    return generator.generate(["Once upon", "a time"], params)


@pytest.mark.parametrize("way", WAYS)
def test_texts_are_those_of_the_same_weights_in_floats(decoder, tmp_path, way):
    (tmp_path / "floats").mkdir()
    folder, floats = quantized(decoder, tmp_path, way)
    found = []
    for each in (folder, written(tmp_path / "floats", decoder, floats)):
        graph = build(Checkpoint(each))
        artifact = compile(graph, "cpu:native")
        model = weights.load(InferenceSession(threads=2), artifact, Checkpoint(each).weights)
        found.append(texts(each, model))
        ends = {n.removeprefix(DOWN): w.dtype.name for n, w in graph.weights.items() if DOWN in n}
        assert ends == (WAYS[way][2] if each == folder else {".weight": "float32"})
    assert found[0] == found[1]


def down(folder, **options):
    """What a graph of the folder has of one product: dtypes by the ends of names; and the graph."""
    graph = build(Checkpoint(folder), **options)
    ends = {n.removeprefix(DOWN): w.dtype.name for n, w in graph.weights.items() if DOWN in n}
    return ends, graph


INT4, INT8 = Quantization(4, 32), Quantization(8, 32)


@pytest.mark.parametrize(
    ("way", "asked", "made"),
    [
        ("gptq", INT4, ""),
        ("gptq", INT8, ""),
        ("gptq in order", INT4, ""),
        ("awq", INT8, ""),
        ("awq", INT4, ""),
        ("fp8", INT8, ""),
        ("fp8", INT4, "uint8"),
        ("fp8", Quantization(8, 32, "int8"), "int8"),
        ("compressed-tensors", INT4, "uint8"),
    ],
)
def test_what_is_stored_in_as_few_bits_as_are_asked_for_stays(decoder, tmp_path, way, asked, made):
    folder, floats = quantized(decoder, tmp_path, way)
    ends, graph = down(folder, quantization=asked)
    assert ends == ({".integers": made, ".scales": "float32"} if made else WAYS[way][2])
    assert graph.weights["lm_head.integers"].dtype.name == ("uint8" if asked.bits == 4 else "int8")
    found = weights.select(Checkpoint(folder).weights, graph.weights)
    assert found.keys() == graph.weights.keys()
    values = np.asarray(found[f"{DOWN}.integers"])
    if values.dtype == np.uint8:
        values = np.stack([values & 15, values >> 4], -1).reshape(64, 96).astype(np.int8)
        values -= np.int8(0 if ".minimums" in ends else 8)
    sides = [
        np.repeat(found[DOWN + end].astype(np.float32), 32, axis=1) for end in BOTH if end in ends
    ]
    each = values.astype(np.float32) * sides[0] + sum(sides[1:])
    wanted = floats[f"{DOWN}.weight"]
    if ".order" in ends:
        wanted = wanted[:, found[f"{DOWN}.order"]]
    off = np.abs(each - wanted)
    if made:
        assert 0 < off.max() < 0.1
    else:  # float16 has the scales that are stored, and rounds minimums
        assert (off <= 2.0**-11 * sum(map(np.abs, sides[1:]))).all()


@pytest.mark.parametrize("way", WAYS)
def test_floats_where_they_are_asked_for(decoder, tmp_path, way):
    folder, floats = quantized(decoder, tmp_path, way)
    ends, graph = down(folder, quantization="float")
    assert ends == {".weight": "float32"}
    assert not [name for name in graph.weights if name.endswith(".integers")]
    found = weights.select(Checkpoint(folder).weights, graph.weights)
    np.testing.assert_array_equal(found[f"{DOWN}.weight"], floats[f"{DOWN}.weight"])


def test_activations_in_8_bits_beside_stored_integers(decoder, tmp_path):
    folder, _ = quantized(decoder, tmp_path, "gptq")
    for activations in ("float", "int8"):
        _, graph = down(folder, quantization=Quantization(4, 32, activations))
        text = str(graph)
        assert text.count(f'activations = "{activations}"') == text.count("quantized_matmul") == 15


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("way", ["gptq", "compressed-tensors"])
def test_scales_in_float16_stay_so(decoder, tmp_path, way, dtype):
    """Others are in what is computed in."""
    folder, _ = quantized(decoder, tmp_path, way)
    ends, graph = down(folder, dtype=DType(dtype))
    kept = "float16" if way == "gptq" else dtype
    assert ends == {**WAYS[way][2], ".scales": kept}
    found = weights.select(Checkpoint(folder).weights, graph.weights)[f"{DOWN}.scales"]
    plain = dict(weights.read(Checkpoint(decoder).weights))[f"{DOWN}.weight"]
    exact = rounded(plain, 4 if way == "gptq" else 8, 32, True).scales
    kind = getattr(ml_dtypes, kept, kept)
    np.testing.assert_array_equal(np.asarray(found), exact.astype(kind))


def test_groups_of_several_sizes_are_rounded_anew(decoder, tmp_path):
    """To 8 bits, unless it is said otherwise."""
    folder, _ = quantized(decoder, tmp_path, "gptq")
    arrays = dict(weights.read(Checkpoint(folder).weights))
    arrays[f"{DOWN}.g_idx"] = np.sort(arrays[f"{DOWN}.g_idx"] * 2 // 3)
    save_file(arrays, folder / "model.safetensors")
    for asked, integers in ((AS_STORED, "int8"), (INT4, "uint8"), (INT8, "int8")):
        ends, _ = down(folder, quantization=asked)
        assert ends == {".integers": integers, ".scales": "float32"}
    ends, graph = down(folder, dtype=DType.bfloat16, quantization="float")
    assert ends == {".weight": "bfloat16"}
    found = weights.select(Checkpoint(folder).weights, graph.weights)
    assert found[f"{DOWN}.weight"].dtype == "bfloat16"


def test_what_quantizers_add_is_left_out(decoder, tmp_path):
    """Biases of zeros, and scales of a cache; a bias of something is another model's."""
    folder, _ = quantized(decoder, tmp_path, "gptq")
    arrays = dict(weights.read(Checkpoint(folder).weights))
    arrays |= {f"{DOWN}.bias": np.zeros(64, np.float16)}
    arrays |= {"model.layers.0.self_attn.k_scale": np.ones(1, np.float32)}
    save_file(arrays, folder / "model.safetensors")
    ends, _ = down(folder)
    assert ends == WAYS["gptq"][2]
    arrays[f"{DOWN}.bias"][3] = 1
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(GraphError, match=rf"got also {DOWN}.bias: see num_hidden_layers, quantiz"):
        build(Checkpoint(folder))


def test_a_folder_that_does_not_say_how_is_refused(decoder, tmp_path):
    folder, _ = quantized(decoder, tmp_path, "gptq")
    (folder / "config.json").write_bytes((decoder / "config.json").read_bytes())
    with pytest.raises(GraphError, match=r"got also .*\.g_idx: see .* quantization_config"):
        build(Checkpoint(folder))


def test_a_damaged_folder_names_the_tensor(decoder, tmp_path):
    folder, _ = quantized(decoder, tmp_path, "gptq")
    arrays = dict(weights.read(Checkpoint(folder).weights))
    del arrays[f"{DOWN}.scales"]
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(ArtifactError, match=rf"model.safetensors: {DOWN}.scales: wanted .* none$"):
        build(Checkpoint(folder))


def call(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_commands(decoder, tmp_path):
    """With the weights beside the artifact, and in it."""
    folder, _ = quantized(decoder, tmp_path, "awq")
    file, bare, whole = (tmp_path / name for name in ("model.safetensors", "bare", "whole"))
    common = ("--prompt", "Once upon", "--max-tokens", 8)
    text = call("generate", folder, *common).stdout
    call("compile", folder, "-t", "cpu:native", "-o", bare)
    call("compile", folder, "-t", "cpu:native", "-o", whole, "--embed-weights")
    given = ("--tokenizer", folder, *common)
    assert call("generate", bare, "--weights", file, *given).stdout == text != ""
    assert call("generate", whole, *given).stdout == text
    assert "weights match" in call("verify", bare, "--weights", file).stdout
    call("run", bare, "--weights", file, "--dim", "rows=1", "--dim", "tokens=1", "--repeat", 1)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["quant_method"] = "bitsandbytes"
    (folder / "config.json").write_text(json.dumps(config))
    for command in (("generate", folder, *common), ("compile", folder)):
        assert "got 'bitsandbytes'; take the model's checkpoint" in call(*command, code=1).stderr
