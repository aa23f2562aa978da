"""MiniLM at steady state, in float32 or bfloat16: Heddle beside its peers, the same threads.

    python benchmarks/minilm.py [--dtype bfloat16] [--peer openvino] [--threads 2] [--save]

All candidates take turns in one process: Heddle into caller-supplied outputs; ONNX Runtime with all
graph optimisations and IO binding, on the two graphs of `onnx_bert.py` (float32 alone, it has no
kernels of bfloat16); OpenVINO for latency, on the first of them; PyTorch (`torch_bert.py`) by
torch.compile and by AOTInductor. Peers are asked for with --peer and are to be installed: `pip
install onnx onnxruntime openvino torch`. The ratio is the least one of any peer's time over
Heddle's, round by round (`measure.ratio`): above 1, Heddle is faster. `cosine` is the least one
between an embedding and the float32 one. All tokens count (no padding).

In turns with them a kernel multiplies in registers alone, as much as products and attention do:
`registers` is its median, and `at most` the ratio of a Heddle that took no longer. A peer that
takes half as long again as another one at its best gets few turns, and no part in the ratio;
torch's are compiled for each shape, which takes most of a run's time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import measure
import numpy as np
import registers

from heddle.graph import DType, compile
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.runtime import InferenceSession

# batch, sequence, rounds, calls in a turn
SHAPES = ((1, 16, 40, 10), (1, 128, 30, 5), (32, 128, 7, 1), (8, 512, 7, 1))

PEERS = ("onnxruntime", "openvino", "torch")

FEW, HOPELESS = 3, 1.5
"""Rounds of a peer whose best call takes `HOPELESS` times as long as the fastest peer's."""

COSINE = {"float32": 0.999999, "bfloat16": 0.999}
"""The least cosine to Heddle's float32 with which a candidate takes part."""

Call = Callable[[], np.ndarray]


def operations(config: EncoderConfig, batch: int, sequence: int) -> int:
    """Multiplications and additions of the products and of attention."""
    size, inner = config.hidden_size, config.intermediate_size
    token = 2 * size * (4 * size + 2 * inner) + 4 * sequence * size
    return config.num_hidden_layers * batch * sequence * token


def heddle_candidate(
    found: checkpoint.Checkpoint, dtype: str, threads: int
) -> Callable[[np.ndarray], Call]:
    config = EncoderConfig.read(found.config)
    graph = sentence_embedder(config, "minilm", dtype=DType(dtype))
    artifact = compile(graph, targets=["cpu"])
    session = InferenceSession(threads=threads)
    model = weights.load(session, artifact, found.weights)

    def prepare(tokens: np.ndarray) -> Call:
        inputs = tokens.astype(np.int32), np.ones(tokens.shape, bool)
        result = np.empty((len(tokens), config.hidden_size), np.float32)

        def call() -> np.ndarray:
            model.execute(*inputs, out=[result])
            return result

        return call

    return prepare


def onnx_candidate(path: Path, threads: int) -> Callable[[np.ndarray], Call]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    def prepare(tokens: np.ndarray) -> Call:
        binding = session.io_binding()
        width = session.get_outputs()[0].shape[1]
        values = {"tokens": tokens.astype(np.int64), "attention_mask": np.ones_like(tokens)}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
        result = np.empty((len(tokens), width), np.float32)
        output = onnxruntime.OrtValue.ortvalue_from_numpy(result)
        binding.bind_ortvalue_output("embeddings", output)

        def call() -> np.ndarray:
            session.run_with_iobinding(binding)
            return output.numpy()

        return call

    return prepare


def openvino_candidate(path: Path, dtype: str, threads: int) -> Callable[[np.ndarray], Call]:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[dtype],
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)

    def prepare(tokens: np.ndarray) -> Call:
        request = compiled.create_infer_request()
        values = {"tokens": tokens.astype(np.int64), "attention_mask": np.ones_like(tokens)}
        for name, value in values.items():
            request.set_tensor(name, openvino.Tensor(value))

        def call() -> np.ndarray:
            request.infer()
            return request.get_output_tensor(0).data

        return call

    return prepare


def peer_candidates(
    peers: Sequence[str], found: checkpoint.Checkpoint, folder: Path, dtype: str, threads: int
) -> dict[str, Callable[[np.ndarray], Call]]:
    arrays, config = weights.read(found.weights), json.loads(found.config.read_text())
    paths = {form: folder / f"{form}.onnx" for form in ("standard", "fused")}
    if set(peers) & {"onnxruntime", "openvino"}:
        import onnx_bert

        for form, path in paths.items():
            onnx_bert.build(arrays, config, form, path)
    candidates = {}
    if "onnxruntime" in peers and dtype == "float32":
        for form, path in paths.items():
            candidates[f"onnxruntime {form}"] = onnx_candidate(path, threads)
    if "openvino" in peers:
        candidates["openvino"] = openvino_candidate(paths["standard"], dtype, threads)
    if "torch" in peers:
        import torch_bert

        for name, package in (("torch.compile", None), ("AOTInductor", folder / "minilm.pt2")):
            candidates[name] = torch_bert.candidate(arrays, config, dtype, threads, package)
    return candidates


def measure_shape(
    candidates: dict[str, Callable[[np.ndarray], Call]],
    exact: Callable[[np.ndarray], Call],
    config: EncoderConfig,
    dtype: str,
    threads: int,
    batch: int,
    sequence: int,
    rounds: int,
    calls: int,
) -> dict[str, Any]:
    tokens = np.random.default_rng(0).integers(1000, 20000, (batch, sequence))
    wanted = exact(tokens)().copy()
    prepared, cosines, once = {}, {}, {}
    for name, prepare in candidates.items():
        call = prepared[name] = prepare(tokens)
        cosines[name] = float(np.sum(call() * wanted, axis=1).min())
        if cosines[name] < COSINE[dtype]:
            raise SystemExit(f"{name}: wanted a cosine of {COSINE[dtype]}, got {cosines[name]}")
        once[name] = min(measure.once(call) for _ in range(FEW))
    limit = HOPELESS * min((once[name] for name in once if name != "heddle"), default=np.inf)
    slow = {name: prepared.pop(name) for name in once if name != "heddle" and once[name] > limit}
    work = operations(config, batch, sequence)
    prepared["registers"] = registers.call(dtype, work, threads)
    times = measure.interleaved(prepared, rounds, calls)
    times |= measure.interleaved(slow, FEW, calls)
    medians = {name: measure.median_ms(times[name]) for name in candidates}
    row: dict[str, Any] = {"batch": batch, "sequence": sequence, "median_ms": medians}
    row["registers_ms"] = measure.median_ms(times["registers"])
    peers = [times[name] for name in prepared if name not in ("heddle", "registers")]
    for name, own in ("ratio", "heddle"), ("at most", "registers"):
        if peers:
            row[name] = round(min(measure.ratio(peer, times[own], calls) for peer in peers), 3)
    row["cosine"] = round(cosines["heddle"], 6)
    return row


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=PEERS, action="append", default=[], dest="peers")
    parser.add_argument("--dtype", choices=list(COSINE), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    found = checkpoint.minilm()
    config = EncoderConfig.read(found.config)
    exact = heddle_candidate(found, "float32", options.threads)
    candidates = {"heddle": heddle_candidate(found, options.dtype, options.threads)}
    with tempfile.TemporaryDirectory() as folder:
        candidates |= peer_candidates(
            options.peers, found, Path(folder), options.dtype, options.threads
        )
        rows = []
        given = candidates, exact, config, options.dtype, options.threads
        for shape in SHAPES:
            rows.append(measure_shape(*given, *shape))
            print(json.dumps(rows[-1]), flush=True)
    if options.save:
        figures: dict[str, Any] = {"threads": options.threads, "rows": rows}
        figures |= {peer: version(peer) for peer in options.peers}
        name = "minilm" if options.dtype == "float32" else f"minilm_{options.dtype}"
        print(measure.save(name, figures))


if __name__ == "__main__":
    main()
