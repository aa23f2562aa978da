"""The same sentence embedder as an ONNX file, for the comparison with ONNX Runtime.

Two forms, both built from the weights with `onnx.helper`, so that no other framework is needed:

- `standard`: the nodes that an export of BERT from PyTorch has (MatMul, Add, Reshape, Transpose,
  Softmax, LayerNormalization, Gelu; linear weights transposed), for ONNX Runtime to optimise.
- `fused`: the contrib nodes that ONNX Runtime's transformer optimizer makes of them (Attention with
  one product for query, key and value; SkipLayerNormalization; BiasGelu).

The benchmark measures both and compares with the faster one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Builder:
    """Collects nodes and initializers; every method returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: Any, name: str) -> str:
        if name not in self.initializers:
            array = np.ascontiguousarray(value)
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64), "ints_" + "_".join(map(str, values)))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32), f"number_{value}")


PARTS = ("weight", "bias")
CONTRIB = {"domain": "com.microsoft"}


def build(weights: dict[str, np.ndarray], config: dict[str, Any], form: str, path: Path) -> None:
    """Writes the embedder (tokens and attention_mask, int64 -> unit embeddings) to `path`."""
    b = _Builder()
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    size = hidden // heads

    def linear(x: str, name: str) -> str:
        product = b.op("MatMul", x, b.constant(weights[f"{name}.weight"].T, f"{name}.weight"))
        return b.op("Add", product, b.constant(weights[f"{name}.bias"], f"{name}.bias"))

    def norm(x: str, name: str) -> str:
        parts = [b.constant(weights[f"{name}.{part}"], f"{name}.{part}") for part in PARTS]
        return b.op("LayerNormalization", x, *parts, axis=-1, epsilon=config["layer_norm_eps"])

    def split(x: str, permutation: tuple[int, ...]) -> str:
        return b.op("Transpose", b.op("Reshape", x, b.ints(0, 0, heads, size)), perm=permutation)

    embeddings = "embeddings"
    words = b.constant(weights[f"{embeddings}.word_embeddings.weight"], "words")
    positions = b.constant(weights[f"{embeddings}.position_embeddings.weight"], "positions")
    types = b.constant(weights[f"{embeddings}.token_type_embeddings.weight"][0], "type")
    length = b.op("Gather", b.op("Shape", "tokens"), b.ints(1))
    position = b.op("Slice", positions, b.ints(0), length, b.ints(0))
    x = b.op("Add", b.op("Add", b.op("Gather", words, "tokens"), types), position)
    x = norm(x, f"{embeddings}.LayerNorm")

    def standard(x: str, at: str) -> str:
        query = split(linear(x, f"{at}.attention.self.query"), (0, 2, 1, 3))
        key = split(linear(x, f"{at}.attention.self.key"), (0, 2, 3, 1))
        value = split(linear(x, f"{at}.attention.self.value"), (0, 2, 1, 3))
        scores = b.op("Div", b.op("MatMul", query, key), b.number(size**0.5))
        share = b.op("Softmax", b.op("Add", scores, mask), axis=-1)
        mixed = b.op("Transpose", b.op("MatMul", share, value), perm=(0, 2, 1, 3))
        out = linear(b.op("Reshape", mixed, b.ints(0, 0, hidden)), f"{at}.attention.output.dense")
        x = norm(b.op("Add", out, x), f"{at}.attention.output.LayerNorm")
        out = linear(b.op("Gelu", linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense")
        return norm(b.op("Add", out, x), f"{at}.output.LayerNorm")

    def skip_norm(x: str, skip: str, dense: str, name: str) -> str:
        product = b.op("MatMul", x, b.constant(weights[f"{dense}.weight"].T, f"{dense}.weight"))
        parts = [b.constant(weights[f"{name}.{part}"], f"{name}.{part}") for part in PARTS]
        bias = b.constant(weights[f"{dense}.bias"], f"{dense}.bias")
        epsilon = config["layer_norm_eps"]
        inputs = (product, skip, *parts, bias)
        return b.op("SkipLayerNormalization", *inputs, epsilon=epsilon, **CONTRIB)

    def fused(x: str, at: str) -> str:
        names = [f"{at}.attention.self.{name}" for name in ("query", "key", "value")]
        weight = np.concatenate([weights[f"{name}.weight"].T for name in names], axis=1)
        bias = np.concatenate([weights[f"{name}.bias"] for name in names])
        weight, bias = b.constant(weight, f"{at}.qkv"), b.constant(bias, f"{at}.qkv.bias")
        mixed = b.op("Attention", x, weight, bias, short, num_heads=heads, **CONTRIB)
        at_output = f"{at}.attention.output"
        x = skip_norm(mixed, x, f"{at_output}.dense", f"{at_output}.LayerNorm")
        dense = f"{at}.intermediate.dense"
        inner = b.op("MatMul", x, b.constant(weights[f"{dense}.weight"].T, f"{dense}.weight"))
        bias = b.constant(weights[f"{dense}.bias"], f"{dense}.bias")
        inner = b.op("BiasGelu", inner, bias, **CONTRIB)
        return skip_norm(inner, x, f"{at}.output.dense", f"{at}.output.LayerNorm")

    floats = b.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    if form == "standard":
        mask = b.op("Cast", b.op("Unsqueeze", "attention_mask", b.ints(1, 2)), to=TensorProto.FLOAT)
        mask = b.op("Mul", b.op("Sub", b.number(1.0), mask), b.number(-10000.0))
    else:
        short = b.op("Cast", "attention_mask", to=TensorProto.INT32)
    for layer in range(config["num_hidden_layers"]):
        x = (standard if form == "standard" else fused)(x, f"encoder.layer.{layer}")

    share = b.op("Unsqueeze", floats, b.ints(2))
    total = b.op("ReduceSum", b.op("Mul", x, share), b.ints(1), keepdims=0)
    count = b.op("ReduceSum", share, b.ints(1), keepdims=0)
    mean = b.op("Div", total, count)
    length = b.op("Sqrt", b.op("ReduceSum", b.op("Mul", mean, mean), b.ints(1), keepdims=1))
    b.nodes.append(helper.make_node("Div", [mean, length], ["embeddings"], name="normalize"))

    shape = ["batch", "sequence"]
    graph = helper.make_graph(
        b.nodes,
        "embedder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("tokens", "attention_mask")
        ],
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", hidden])],
        list(b.initializers.values()),
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    )
    model.ir_version = 10
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
