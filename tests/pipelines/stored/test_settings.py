"""Where a configuration says how weights are stored, and the methods that it may name."""

import json
import re

import numpy as np
import pytest
from packers import AWQ, GPTQ, compressed, drawn, named
from safetensors.numpy import save_file

from heddle.pipelines import weights
from heddle.pipelines.stored.compressed_tensors import CompressedTensors
from heddle.pipelines.stored.gptq import Gptq
from heddle.pipelines.stored.selection import method_in, method_of
from heddle.runtime.errors import GraphError

PACKED = compressed("pack-quantized")


@pytest.mark.parametrize(
    ("values", "method"),
    [
        ({}, type(None)),
        ({"quantization_config": None, "text_config": {}}, type(None)),
        ({"quantization_config": GPTQ}, Gptq),
        ({"text_config": {"quantization_config": GPTQ}}, Gptq),
        ({"text_config": {"quantization_config": GPTQ}, "quantization_config": GPTQ}, Gptq),
        ({"compression_config": PACKED}, CompressedTensors),
        ({"compression_config": {"format": "pack-quantized"}}, CompressedTensors),
        ({"compression_config": PACKED, "quantization_config": PACKED}, CompressedTensors),
    ],
)
def test_where_settings_are(values, method):
    assert type(method_in(values)) is method


def test_places_that_say_different_things():
    values = {"quantization_config": GPTQ, "text_config": {"quantization_config": AWQ}}
    message = "text_config: quantization_config: wanted the same as in quantization_config, got"
    with pytest.raises(GraphError, match=message):
        method_in(values)
    values = {"text_config": {"quantization_config": GPTQ}, "compression_config": PACKED}
    message = "compression_config: wanted the same as in text_config: quantization_config, got"
    with pytest.raises(GraphError, match=message):
        method_in(values)


def test_a_checkpoint_with_settings_in_its_text_config(tmp_path):
    weight = drawn(symmetric=True)
    save_file(named("x", weight.gptq()), tmp_path / "model.safetensors")
    config = {"text_config": {"quantization_config": GPTQ}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    product = weights.stored(tmp_path / "model.safetensors").products["x"]
    np.testing.assert_array_equal(product.floats("float32"), weight.floats)


@pytest.mark.parametrize("method", ["bitsandbytes", "hqq", None, ["gptq"]])
def test_methods_that_are_not_read_are_refused_by_name(tmp_path, method):
    path = tmp_path / "model.safetensors"
    save_file({"x.weight": np.zeros((2, 2), np.uint8)}, path)
    settings = {"quant_method": method}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    wanted = (
        rf"quant_method: wanted one of gptq, .*, got {re.escape(repr(method))}; take the model's"
    )
    with pytest.raises(
        GraphError, match=rf"config\.json: quantization_config: {wanted} checkpoint"
    ):
        weights.select(path, {})


def test_settings_that_are_no_object():
    with pytest.raises(GraphError, match=r"wanted a JSON object, got 4$"):
        method_of(4)
