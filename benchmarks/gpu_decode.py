"""A decoding step of a language model of 8B shape on a GPU, as one graph launch.

`gpu_kit.py` takes its artifacts along and `gpu.py` times them. The shape is that of Llama 3.1 8B in
bfloat16, with int8 and int4 weights in groups of 128, and with 4 bits in groups of 32 that have
minimums, as Q4_K's; weights are random, the same bits over and over. A launch is one CUDA graph of
the whole step, from tokens to the next ones, with caches of 1024 tokens for each row. The bound is
the time in which a copy of 2 GiB moves as many bytes as the step's weights and caches have,
measured in turns. Which kernels a step's time goes to is told of plain launches. On a CPU a tiny
model is tried instead, by plain calls.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_timeline
import numpy as np

LARGE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}

TINY = LARGE | {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}

HELD = {
    "bfloat16": None,
    "int8": (8, 128),
    "int4": (4, 128),
    "q4_k": (4, 32, "float", None, True),  # With minimums.
}

ROWS, LENGTH, COPY = (1, 8, 64), 1024, 1 << 30

TURNS, LAUNCHES = 5, 10


def make(folder: Path, variants: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Compiles the large model for CUDA and the tiny one for this CPU, and the copy for both.

    What it gives are the paths of the large one's `variants`, for each way to hold weights.
    """
    import gpu_variants

    from heddle.graph import DType, Graph, TensorType, compile
    from heddle.pipelines.models.decoder.config import DecoderConfig
    from heddle.pipelines.models.decoder.model import language_model
    from heddle.pipelines.models.products import Quantization

    found = {}
    for values, target in ((LARGE, "cuda:sm_90a"), (TINY, "cpu:native")):
        kind = target.partition(":")[0]
        for held, sizes in HELD.items():
            graph = language_model(
                DecoderConfig.of(values), "decode", DType.bfloat16, sizes and Quantization(*sizes)
            )
            path = f"{kind}_{held}"
            compile(graph, target).save(folder / f"{path}.heddle")
            if kind == "cuda":
                found[held] = gpu_variants.write(folder, path, graph, target, variants)
        with Graph("copy", [TensorType(DType.int32, (COPY // 4,))]) as graph:
            graph.output(-graph.inputs[0])
        compile(graph, target).save(folder / f"{kind}_copy.heddle")
    return found


def weight_of(name: str, dtype: str, shape: Sequence[int], pool: Any) -> Any:
    """Random bits of a plausible size; 1 for norms, small scales."""
    from heddle.runtime import Buffer

    if dtype == "float16":  # scales, or minimums
        return np.full(shape, -0.0019 if name.endswith("minimums") else 0.00024, dtype)
    if dtype != "bfloat16":
        return np.resize(pool.view(np.uint8), shape).view(dtype)
    if name.endswith("norm.weight"):
        bits = np.full(shape, 0x3F80, np.uint16)
    elif name.endswith("minimums"):
        bits = np.full(shape, 0xBAF9, np.uint16)  # -0.0019
    elif name.endswith("scales"):
        bits = np.full(shape, 0x3980, np.uint16)  # 0.00024
    else:
        bits = np.resize(pool, shape)
    return Buffer.from_numpy(bits, dtype="bfloat16")


def step_of(model: Any, rows: int, length: int, device: Any) -> tuple[Any, int]:
    """A call of a step for `replay`, and the bytes of weights and caches that it reads."""
    from heddle.pipelines.generation.inputs import INPUTS, step_inputs
    from heddle.runtime import Buffer

    artifact = model.artifact
    dtype, block = artifact.inputs[-1]["dtype"], artifact.inputs[-1]["shape"][1:]
    dims = {"rows": rows, "row_blocks": length // block[0]}
    given = step_inputs(artifact, dims)
    caches = []
    for _ in artifact.inputs[len(INPUTS) :]:
        cache = Buffer(dtype, (given["blocks"].size, *block))
        cache.to_numpy().view(np.uint16)[...] = 0x3C3C  # 0.0115
        caches.append(cache.to(device))
    inputs = [Buffer.from_numpy(given[name]).to(device) for name in INPUTS]
    vocabulary = artifact.outputs[1]["shape"][1]
    unwritten = np.full(rows, -1), np.full((rows, vocabulary), np.nan, np.float32)
    outputs = [Buffer.from_numpy(array).to(device) for array in unwritten]
    sizes = {"bfloat16": 2, "int8": 1, "uint8": 1}
    nbytes = sum(
        math.prod(row["shape"]) * sizes[row["dtype"]]
        for row in artifact.weights
        if row["name"] != "model.embed_tokens.weight"  # of which a step reads a few rows
    )
    nbytes += sum(cache.nbytes for cache in caches)
    return (model, (*inputs, *caches), (*outputs, *caches)), nbytes


def launches(call: Any, count: int, device: Any) -> list[float]:
    """Seconds of each of `count` launches; where there is no GPU, of plain calls."""
    from heddle.runtime import replay

    if device.kind == "cuda":
        return replay([call], 1, count)
    model, inputs, outputs = call
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        model.execute(*inputs, out=outputs)
        seconds.append(time.perf_counter() - start)
    return seconds


def time_held(kit: Any, held: str) -> list[dict[str, Any]]:
    """The figures of one way to hold weights of a `gpu.Kit`, for each number of rows."""
    from heddle.runtime import Artifact, Buffer

    session, device = kit.session, kit.device
    artifact = Artifact.load(kit.folder / f"{device.kind}_{held}.heddle")
    values = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32) * 0.02
    pool = (values.view(np.uint32) >> 16).astype(np.uint16)
    weights = {
        row["name"]: weight_of(row["name"], row["dtype"], row["shape"], pool)
        for row in artifact.weights
    }
    others = kit.content["decode"].get(held, {}) if device.kind == "cuda" else {}
    models = {"": session.load(artifact, weights)}  # What ships has no name.
    for variant, path in others.items():
        models[variant] = session.load(kit.folder / f"{path}.heddle", weights)
    copy = session.load(kit.folder / f"{device.kind}_copy.heddle")
    source = Buffer.from_numpy(np.ones(COPY // 4, np.int32)).to(device)
    moved = (copy, (source,), (Buffer("int32", (COPY // 4,), device),))
    found = []
    for rows in ROWS:
        row = {"name": f"decode, {held}", "rows": rows}
        try:
            row |= time_rows(models, moved, rows, device)
        except Exception as error:  # The rows before it stay.
            row["failed"] = [f"{type(error).__name__}: {error}"]
        print(row, flush=True)
        found.append(row)
    return found


def time_rows(models: dict[str, Any], moved: Any, rows: int, device: Any) -> dict[str, Any]:
    """The figures of steps of so many `rows`, in turns with variants and with the copy `moved`."""
    calls = {name: step_of(model, rows, LENGTH, device) for name, model in models.items()}
    call, nbytes = calls[""]
    order = [(name, own) for name, (own, _) in calls.items()] + [("copy", moved)]
    times: dict[str, list[float]] = {name: [] for name, _ in order}
    for turn in range(TURNS):
        for name, own in order[:: 1 if turn % 2 == 0 else -1]:
            times[name] += launches(own, LAUNCHES, device)
    medians = {name: statistics.median(found) for name, found in times.items()}
    step, rate = medians[""], 2 * COPY / medians["copy"]
    row = {"us": round(1e6 * step, 1), "gb": round(nbytes / 1e9, 3)}
    row |= {"copy_gb_s": round(rate / 1e9, 1), "of_the_bound": round(nbytes / rate / step, 3)}
    if device.kind == "cuda":
        row["kernels"] = gpu_timeline.of_call(lambda: call[0].execute(*call[1], out=call[2]))
    if len(models) > 1:
        row["variants"] = {name: round(step / medians[name], 3) for name in models if name}
    tokens, logits = (buffer.to_numpy() for buffer in call[2][:2])
    if (tokens < 0).any() or not np.isfinite(logits).all():
        row["failed"] = [f"wanted tokens and finite logits, got {tokens.tolist()}"]
    return row
