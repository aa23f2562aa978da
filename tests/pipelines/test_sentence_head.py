"""What folders of sentence-transformers say of what follows the encoder, and of their texts."""

import json

import numpy as np
import pytest
from encoder_weights import weight
from safetensors.numpy import save_file

from heddle.pipelines.sentence_head import read_head
from heddle.pipelines.sentence_settings import Prompts, Reading, read_dimensions
from heddle.runtime.errors import ArtifactError, GraphError, InputError

OLDER = "sentence_transformers.models."
NEWER = "sentence_transformers.sentence_transformer.modules."

DENSE = {
    "in_features": 32,
    "out_features": 20,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}


def write(folder, modules, **configs):
    """`modules.json` of kinds and folders, and the `config.json` of such folders."""
    rows = [{"idx": n, "name": str(n), "path": p, "type": t} for n, (t, p) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(rows))
    for name, config in configs.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    return folder


def with_pooling(folder, config, *more, **configs):
    modules = [(f"{OLDER}Transformer", ""), (f"{OLDER}Pooling", "pooling"), *more]
    return write(folder, modules, pooling=config, **configs)


@pytest.mark.parametrize(
    ("config", "modes"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("max", "mean")),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, ("lasttoken",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({"word_embedding_dimension": 32}, ("mean",)),
        ({"embedding_dimension": 32, "pooling_mode": "cls"}, ("cls",)),
        ({"pooling_mode": ["mean", "mean_sqrt_len_tokens"]}, ("mean", "mean_sqrt_len_tokens")),
    ],
)
def test_poolings(tmp_path, config, modes):
    head = read_head(with_pooling(tmp_path, config))
    assert (head.modes, head.dense, head.normalized) == (modes, (), False)


@pytest.mark.parametrize("place", [OLDER, NEWER, f"{NEWER}normalize."])
def test_normalize(tmp_path, place):
    assert read_head(with_pooling(tmp_path, {}, (f"{place}Normalize", "2_Normalize"))).normalized


def test_a_folder_that_says_nothing(tmp_path):
    assert read_head(tmp_path) is None
    assert read_head(write(tmp_path, [(f"{OLDER}Transformer", "")])) is None


def dense(folder, change=None, dtype="float32", shape=(20, 32)):
    more = (f"{OLDER}Dense", "dense")
    with_pooling(folder, {}, more, dense=DENSE | (change or {}))
    arrays = {"linear.weight": weight("linear.weight", shape), "linear.bias": np.ones(20)}
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    save_file(arrays, folder / "dense" / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_dense_layer(tmp_path, dtype):
    (found,) = read_head(dense(tmp_path, dtype=dtype)).dense
    wanted = weight("linear.weight", (20, 32)).astype(dtype)
    np.testing.assert_array_equal(found.weight, wanted.astype("float32"))
    np.testing.assert_array_equal(found.bias, np.ones(20, "float32"))
    assert (found.weight.dtype, found.activation) == (np.float32, "tanh")


def test_a_dense_layer_without_a_bias_or_an_activation(tmp_path):
    change = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    (found,) = read_head(dense(tmp_path, change)).dense
    assert found.bias is None
    assert found.activation is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "x.Y"}, "activation_function: wanted one of torch.*, got 'x.Y'$"),
        ({"use_residual": True}, "use_residual: wanted False, got True$"),
        ({"module_input_name": "token_embeddings"}, "module_input_name: wanted sentence_embedding"),
        ({"out_features": 21}, r"linear.weight: wanted \[21, 32\], got \[20, 32\]$"),
        ({"bias": "no"}, "bias: wanted true or false, got 'no'$"),
    ],
)
def test_another_dense_layer_is_refused(tmp_path, change, message):
    with pytest.raises(GraphError, match=message):
        read_head(dense(tmp_path, change))


def test_a_dense_layer_without_its_weights(tmp_path):
    folder = dense(tmp_path)
    (folder / "dense" / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"dense/model\.safetensors"):
        read_head(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pooling_mode": "median"}, "pooling_mode: wanted one of cls, max, .*, got 'median'$"),
        ({"pooling_mode": []}, r"pooling_mode: wanted one of cls, max, .*, got \[\]$"),
        ({"pooling_mode_cls_token": 1}, "pooling_mode_cls_token: wanted true or false, got 1$"),
        ({"include_prompt": False}, "include_prompt: wanted True, got False$"),
    ],
)
def test_another_pooling_is_refused(tmp_path, config, message):
    with pytest.raises(GraphError, match=message) as error:
        read_head(with_pooling(tmp_path, config))
    assert str(error.value).startswith(f"{tmp_path}/pooling/config.json: ")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([("Pooling", "pooling"), ("Transformer", "")], "wanted a Transformer .* got Pooling in"),
        (
            [("Transformer", "0_T"), ("Pooling", "pooling")],
            "got Transformer in '0_T' and Pool",
        ),
        (
            [("Transformer", ""), ("Pooling", "pooling"), ("LSTM", "l")],
            "wanted Dense or Normalize behind Pooling, got LSTM$",
        ),
        (
            [("Transformer", ""), ("Pooling", "pooling"), ("Normalize", "n"), ("Dense", "d")],
            "wanted Normalize as the last module, got Dense behind it$",
        ),
        ([("Transformer", ""), ("Pooling", "../p")], r"wanted a folder inside, got '\.\./p'$"),
        ([("Pooling", "pooling")], "wanted a Transformer .*, got Pooling in 'pooling'$"),
        ([("MLMTransformer", ""), ("SpladePooling", "pooling")], "got MLMTransformer in .* and Sp"),
        ([("Transformer", ""), ("Dense", "d")], "got Transformer in '.*' and Dense in 'd'$"),
        ([("Transformer", "0_T")], "got Transformer in '0_T'$"),
        ([], "wanted a Transformer in the folder itself and a Pooling, got none$"),
    ],
)
def test_other_modules_are_refused(tmp_path, modules, message):
    with pytest.raises(GraphError, match=message):
        read_head(write(tmp_path, [(OLDER + kind, path) for kind, path in modules], pooling={}))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{", "a JSON list, got no JSON"),
        ("7", "a JSON list, got int$"),
        ("[7]", "modules with a type and a path, got TypeError"),
        ('[{"type": "a.b"}]', r"modules with a type and a path, got KeyError\('path'\)$"),
    ],
)
def test_a_list_of_modules_that_is_none(tmp_path, text, wanted):
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(GraphError, match=rf"modules\.json: wanted {wanted}"):
        read_head(tmp_path)


def prompts(folder, **values):
    (folder / "config_sentence_transformers.json").write_text(json.dumps(values))
    return Prompts.read(folder)


def test_prompts(tmp_path):
    texts = {"query": "query: ", "passage": None}
    found = prompts(tmp_path, prompts=texts, default_prompt_name=None)
    assert [found.choose(name) for name in (None, "query", "passage")] == ["", "query: ", ""]
    with pytest.raises(InputError, match=r"prompt: wanted query, passage, got 'code'$"):
        found.choose("code")
    assert prompts(tmp_path, prompts=texts, default_prompt_name="query").choose(None) == "query: "


def test_no_prompts(tmp_path):
    assert Prompts.read(tmp_path).choose(None) == ""
    with pytest.raises(InputError, match=r"wanted no name, as there are no prompts, got 'query'$"):
        prompts(tmp_path, prompts={}).choose("query")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompts": ["query"]}, r"prompts: wanted a JSON object, got \['query'\]$"),
        ({"prompts": {"query": 7}}, "prompts: query: wanted a text, got 7$"),
        ({"default_prompt_name": "query"}, "default_prompt_name: wanted one of , got 'query'$"),
    ],
)
def test_other_prompts_are_refused(tmp_path, values, message):
    with pytest.raises(GraphError, match=message):
        prompts(tmp_path, **values)


@pytest.mark.parametrize(
    ("sentence", "tokenizer", "wanted"),
    [
        (None, None, None),
        ({"max_seq_length": 256}, {"model_max_length": 512}, 256),
        ({"max_seq_length": None}, {"model_max_length": 512}, 512),
        (None, {"model_max_length": 1e30}, 1 << 30),
        (None, {"model_max_length": 1000000000000000019884624838656}, 1 << 30),
    ],
)
def test_how_much_of_a_text_is_looked_at(tmp_path, sentence, tokenizer, wanted):
    for name, values in (("sentence_bert_config", sentence), ("tokenizer_config", tokenizer)):
        if values is not None:
            (tmp_path / f"{name}.json").write_text(json.dumps(values))
    assert Reading.read(tmp_path).maximum == wanted


def test_a_length_that_is_none_is_refused(tmp_path):
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": "all"}')
    with pytest.raises(GraphError, match=r"max_seq_length: wanted an integer .* 1, got 'all'$"):
        Reading.read(tmp_path)


def test_a_side_that_is_none_is_refused(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"truncation_side": "both"}')
    with pytest.raises(GraphError, match=r"truncation_side: wanted .*right.*left.*, got 'both'$"):
        Reading.read(tmp_path)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, None),
        ({"matryoshka_dimensions": [64, 128]}, [64, 128]),
        ({"is_matryoshka": True}, None),
        ({"is_matryoshka": False}, ()),
    ],
)
def test_what_embeddings_may_be_cut_to(tmp_path, values, wanted):
    assert read_dimensions(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert read_dimensions(tmp_path) == wanted


def test_sizes_that_are_none_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"matryoshka_dimensions": "all"}')
    with pytest.raises(GraphError, match=r"matryoshka_dimensions: wanted a list of integers"):
        read_dimensions(tmp_path)
