"""ONNX files at steady state: Heddle beside ONNX Runtime and OpenVINO on the very same file.

    python benchmarks/onnx_models.py [--vision] [--model ViT] [--peer openvino] [--save]

The files are the models of pictures that the package onnx carries (224 x 224, batch 1), with normal
numbers, scaled as layers are when they are new, in the place of their constant weights; and the
sentence embedder of `onnx_bert.py`, as exporters write it; with `--vision` those of
`vision_models.py`. All candidates take turns in one process (`pip install onnxruntime openvino`):
Heddle into caller-supplied outputs, ONNX Runtime with all graph optimisations, OpenVINO for
latency, both in float32, on `--threads` threads. The ratio is the least one of a peer's time over
Heddle's, round by round (`measure.ratio`): above 1, Heddle is faster. `error` is the largest
difference from ONNX Runtime's result, relative to its largest number. `import` is what reading the
file takes, `kernels` how many calls a run makes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import measure
import numpy as np
import onnx
import onnx_bert
import vision_models
from minilm import FEW, HOPELESS
from onnx import numpy_helper

from heddle.graph import compile
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.onnx import load
from heddle.runtime import InferenceSession

PEERS = ("onnxruntime", "openvino")

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PICTURES = ("resnet50", "densenet121", "inception_v1", "inception_v2", "shufflenet", "squeezenet")
ENCODER = {"minilm 1 x 16": (1, 16), "minilm 1 x 128": (1, 128), "minilm 8 x 128": (8, 128)}

TURN_S = 0.5
"""About what the calls of a turn take together."""

Call = Callable[[], list[np.ndarray]]


def picture(name: str, path: Path) -> dict[str, np.ndarray]:
    """Writes the model of pictures `name` with numbers for weights; returns its inputs."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    rng = np.random.default_rng(0)
    shapes = {row.name: numpy_helper.to_array(row) for row in model.graph.initializer}
    model.ir_version = max(model.ir_version, 4)  # since then a weight is no input
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type != "ConstantOfShape":
            model.graph.node.append(node)
            continue
        array = numbers(rng, shapes[node.input[0]].tolist())
        model.graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    held = {row.name for row in model.graph.initializer}
    (given,) = [row for row in model.graph.input if row.name not in held]
    del model.graph.input[:]  # where older files list weights, too, so that no peer knows them
    model.graph.input.append(given)
    onnx.save(model, path)
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    return {given.name: rng.standard_normal(shape, np.float32)}


def numbers(rng: np.random.Generator, shape: list[int]) -> np.ndarray:
    """Weights that keep the scale of what they multiply; factors and variances near 1."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.standard_normal(shape, np.float32) / np.float32(np.prod(shape[1:])) ** 0.5


def encoder(name: str, path: Path) -> dict[str, np.ndarray]:
    """Writes the sentence embedder; returns its inputs."""
    found = checkpoint.minilm()
    arrays = {key: np.asarray(value) for key, value in weights.read(found.weights).items()}
    onnx_bert.build(arrays, json.loads(found.config.read_text()), "standard", path)
    tokens = np.random.default_rng(0).integers(1000, 20000, ENCODER[name])
    return {"tokens": tokens, "attention_mask": np.ones_like(tokens)}


def own(path: Path, inputs: dict[str, np.ndarray], threads: int) -> tuple[Call, dict[str, Any]]:
    start = time.perf_counter()
    found = load(path)
    figures: dict[str, Any] = {"import_s": round(time.perf_counter() - start, 2)}
    artifact = compile(found.graph, "cpu:native", weights=found.weights, embed_weights=True)
    model = InferenceSession(threads=threads).load(artifact)
    figures["kernels"] = len(model.profile(*inputs.values()))
    outputs = [np.empty_like(each.to_numpy()) for each in model.execute(*inputs.values())]

    def call() -> list[np.ndarray]:
        model.execute(*inputs.values(), out=outputs)
        return outputs

    return call, figures


def onnxruntime_call(path: Path, inputs: dict[str, np.ndarray], threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return partial(session.run, None, inputs)


def openvino_call(path: Path, inputs: dict[str, np.ndarray], threads: int) -> Call:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()

    def call() -> list[np.ndarray]:
        request.infer(inputs, share_inputs=True, share_outputs=True)
        return [request.get_output_tensor(n).data for n in range(len(compiled.outputs))]

    return call


def measured(name: str, peers: list[str], threads: int, rounds: int) -> dict[str, Any]:
    """The row of one model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        own_files = encoder if name in ENCODER else picture
        write = vision_models.write if name in vision_models.NETWORKS else own_files
        inputs = write(name, path)
        call, figures = own(path, inputs, threads)
        make = {"onnxruntime": onnxruntime_call, "openvino": openvino_call}
        candidates = {"heddle": call} | {peer: make[peer](path, inputs, threads) for peer in peers}
        results = {
            key: [np.array(each) for each in each_call()] for key, each_call in candidates.items()
        }
        once = {
            key: min(measure.once(each) for _ in range(FEW)) for key, each in candidates.items()
        }
        least = min([once[peer] for peer in peers], default=np.inf)
        slow = {key: candidates.pop(key) for key in peers if once[key] > HOPELESS * least}
        calls = max(1, int(TURN_S / max(once[key] for key in candidates)))
        times = measure.interleaved(candidates, rounds, calls)
        times |= measure.interleaved(slow, FEW, calls)
    row: dict[str, Any] = {"model": name}
    row["median_ms"] = {key: measure.median_ms(each) for key, each in times.items()}
    if peers:
        ratios = [
            measure.ratio(times[key], times["heddle"], calls)
            for key in candidates
            if key != "heddle"
        ]
        row["ratio"] = round(min(ratios), 3)
        wanted = results[peers[0]]
        pairs = zip(results["heddle"], wanted, strict=True)
        row["error"] = float(
            f"{max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs):.1e}"
        )
    return row | figures


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*PICTURES, *ENCODER, *vision_models.NETWORKS]
    parser.add_argument("--vision", action="store_true")
    parser.add_argument("--model", choices=names, action="append", dest="models")
    parser.add_argument("--peer", choices=PEERS, action="append", default=[], dest="peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    rows = []
    held = vision_models.NETWORKS if options.vision else (*PICTURES, *ENCODER)
    for name in options.models or held:
        rows.append(measured(name, options.peers, options.threads, options.rounds))
        print(json.dumps(rows[-1]), flush=True)
    if options.save:
        figures: dict[str, Any] = {"threads": options.threads, "rows": rows}
        figures |= {peer: version(peer) for peer in options.peers}
        print(measure.save("vision_models" if options.vision else "onnx_models", figures))


if __name__ == "__main__":
    main()
