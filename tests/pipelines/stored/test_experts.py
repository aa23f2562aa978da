"""Mixtures of experts with quantized weights, beside those with the same weights in floats."""

import json

import ml_dtypes
import numpy as np
import pytest
from decoder_cases import drawn
from packers import AWQ, FP8, MXFP4, awq, fp8, named
from safetensors.numpy import save_file

from heddle.contexts import SamplingParams
from heddle.graph import compile
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.language_model import build
from heddle.runtime import InferenceSession

SIZES = {
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 2,
    "eos_token_id": [257],
}

QWEN = {**SIZES, "model_type": "qwen3_moe", "num_experts": 3, "moe_intermediate_size": 32}

OSS = {**SIZES, "model_type": "gpt_oss", "num_local_experts": 3, "layer_types": ["full_attention"]}


def written(folder, decoder, config, arrays, settings=None):
    """A folder of such a model, with the decoder's tokenizer."""
    folder.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((decoder / file).read_bytes())
    config = {**config, "quantization_config": settings} if settings else config
    (folder / "config.json").write_text(json.dumps(config))
    save_file(arrays, folder / "model.safetensors")
    return folder


def text(folder):
    """What the model says, and what holds its experts."""
    graph = build(Checkpoint(folder))
    held = {w.dtype.name for name, w in graph.weights.items() if ".experts." in name}
    artifact = compile(graph, "cpu:native")
    model = weights.load(InferenceSession(threads=2), artifact, Checkpoint(folder).weights)
    params = SamplingParams(max_new_tokens=16, temperature=0.0, top_k=-1, ignore_eos=True)
    generator = TextGenerator(model, TextTokenizer(folder))
    return generator.generate(["Once upon", "a time"], params), held


@pytest.mark.parametrize(
    ("store", "settings", "dtypes"),
    [(awq, AWQ, {"uint8", "float16"}), (fp8, FP8, {"float8_e4m3fn", "float32"})],
)
def test_experts_one_by_one(decoder, tmp_path, store, settings, dtypes):
    floats, small = {}, {}
    for name, array in drawn(QWEN).items():
        before, found, rest = name.partition(".experts.")
        for number, each in enumerate(array) if found else []:
            one = f"{before}.experts.{number}.{rest}"
            parts, floats[one] = store(each)
            small |= named(one.removesuffix(".weight"), parts)
        if not found:
            floats[name] = small[name] = array
    plain, plain_held = text(written(tmp_path / "floats", decoder, QWEN, floats))
    same, held = text(written(tmp_path / "small", decoder, QWEN, small, settings))
    assert same == plain
    assert (plain_held, held) == ({"float32"}, dtypes)


VL = {
    **SIZES,
    "model_type": "qwen3_vl_moe_text",
    "num_experts": 3,
    "moe_intermediate_size": 32,
}


def stacked(weight):
    """The tensors of experts in float8 with one scale for each, and their floats."""
    scales = (np.abs(weight).max((1, 2), keepdims=True) / 448).astype(np.float32)
    values = (weight / scales).astype(ml_dtypes.float8_e4m3fn)
    return {"": values, "_scale_inv": scales}, values.astype(np.float32) * scales


def test_experts_in_one_tensor(decoder, tmp_path):
    """Floats of [experts, n, k] or turned, float8, and gates by themselves one by one."""
    floats, turned, small, apart = {}, {}, {}, {}
    for name, array in drawn(VL).items():
        stem = name.removesuffix(".weight")
        if ".experts." in name:
            parts, floats[stem] = stacked(array)
            small |= named(stem, parts)
            turned[stem] = np.ascontiguousarray(floats[stem].swapaxes(1, 2))
            at, _, last = stem.rpartition(".")
            parts = ("gate", "up") if last == "gate_up_proj" else ("down",)
            halves = np.split(floats[stem], len(parts), axis=1)
            for half, part in zip(halves, parts, strict=True):
                for number, each in enumerate(half):
                    apart[f"{at}.{number}.{part}_proj.weight"] = np.ascontiguousarray(each)
        else:
            floats[name] = turned[name] = small[name] = apart[name] = array
    plain, _ = text(written(tmp_path / "floats", decoder, VL, floats))
    for number, arrays in enumerate((turned, apart)):
        assert text(written(tmp_path / str(number), decoder, VL, arrays)) == (plain, {"float32"})
    settings = {**FP8, "weight_block_size": None}
    same, held = text(written(tmp_path / "small", decoder, VL, small, settings))
    assert (same, held) == (plain, {"float8_e4m3fn", "float32"})


def test_experts_of_gpt_oss(decoder, tmp_path):
    """Floats are stored turned, those of 4 bits as graphs have them."""
    floats, small = {}, {}
    rng = np.random.default_rng(0)
    for name, array in drawn(OSS).items():
        stem = name.removesuffix(".weight")
        if stem.endswith("_proj") and ".experts." in name:
            shape = (*array.shape[:2], array.shape[2] // 32)
            codes = rng.integers(0, 16, (*shape, 32), np.uint8)
            scales = rng.integers(122, 126, shape, np.uint8)
            values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
            turned = (values * np.exp2(scales - 127.0)[..., None]).reshape(array.shape)
            floats[stem] = np.ascontiguousarray(turned.swapaxes(1, 2).astype(np.float32))
            small[f"{stem}_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
            small[f"{stem}_scales"] = scales
        else:
            floats[name] = small[name] = array
    plain, _ = text(written(tmp_path / "floats", decoder, OSS, floats))
    same, held = text(written(tmp_path / "small", decoder, OSS, small, MXFP4))
    assert same == plain
    assert held == {"int8", "float32"}
