"""A decoding step of a language model of 8B shape on a GPU, as one graph launch.

    python benchmarks/gpu_decode.py make KIT     # where the compiler is: artifacts into a folder
    python benchmarks/gpu_decode.py run KIT      # where a GPU is: builds the runtime, then times

The shape is that of Llama 3.1 8B in bfloat16, and with int8 and int4 weights in groups of 128;
weights are random, the same bits over and over. A launch is one CUDA graph of the whole step, from
tokens to the next ones, with caches of 1024 tokens for each row. The bound is the time in which a
copy of 2 GiB moves as many bytes as the step's weights and caches have, measured in turns. `run`
with --device cpu tries a tiny model instead, by plain calls.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

HELD = {"bfloat16": None, "int8": (8, 128), "int4": (4, 128)}

ROWS, LENGTH, COPY = (1, 8, 64), 1024, 1 << 30

TURNS, LAUNCHES = 5, 10


def make(kit: Path) -> None:
    """Compiles the large model for CUDA and the tiny one for this CPU, and the copy for both."""
    from heddle.graph import DType, Graph, TensorType, compile
    from heddle.pipelines.models.llama import Quantization, language_model
    from heddle.pipelines.models.llama_config import LlamaConfig

    kit.mkdir(parents=True, exist_ok=True)
    for values, target in ((LARGE, "cuda:sm_90a"), (TINY, "cpu:native")):
        kind = target.partition(":")[0]
        for held, sizes in HELD.items():
            graph = language_model(
                LlamaConfig.of(values), "decode", DType.bfloat16, sizes and Quantization(*sizes)
            )
            compile(graph, target).save(kit / f"{kind}_{held}.heddle")
        with Graph("copy", [TensorType(DType.int32, (COPY // 4,))]) as graph:
            graph.output(-graph.inputs[0])
        compile(graph, target).save(kit / f"{kind}_copy.heddle")


def weight_of(row: dict[str, Any], pool: Any) -> Any:
    """Random bits of a plausible size; 1 for norms, small scales."""
    from heddle.runtime import Buffer

    shape = tuple(row["shape"])
    if row["dtype"] != "bfloat16":
        return np.resize(pool.view(np.uint8), shape).view(row["dtype"])
    if row["name"].endswith("norm.weight"):
        bits = np.full(shape, 0x3F80, np.uint16)
    elif row["name"].endswith("scales"):
        bits = np.full(shape, 0x3980, np.uint16)  # 0.00024
    else:
        bits = np.resize(pool, shape)
    return Buffer.from_numpy(bits, dtype="bfloat16")


def step_of(model: Any, rows: int, length: int, device: Any) -> tuple[Any, int]:
    """A call of a step for `replay`, and the bytes of weights and caches that it reads."""
    from heddle.pipelines.generation_inputs import INPUTS, step_inputs
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
    outputs = [Buffer("int64", (rows,), device), Buffer("float32", (rows, vocabulary), device)]
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


def time_held(kit: Path, held: str, session: Any, device: Any) -> list[dict[str, Any]]:
    """The figures of one way to hold weights, for each number of rows."""
    from heddle.runtime import Artifact, Buffer

    artifact = Artifact.load(kit / f"{device.kind}_{held}.heddle")
    values = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32) * 0.02
    pool = (values.view(np.uint32) >> 16).astype(np.uint16)
    model = session.load(artifact, {row["name"]: weight_of(row, pool) for row in artifact.weights})
    copy = session.load(kit / f"{device.kind}_copy.heddle")
    source = Buffer.from_numpy(np.ones(COPY // 4, np.int32)).to(device)
    moved = (copy, (source,), (Buffer("int32", (COPY // 4,), device),))
    found = []
    for rows in ROWS:
        call, nbytes = step_of(model, rows, LENGTH, device)
        order: list[tuple[list[float], Callable[[], list[float]]]] = [
            (steps := [], lambda call=call: launches(call, LAUNCHES, device)),
            (copies := [], lambda: launches(moved, LAUNCHES, device)),
        ]
        for turn in range(TURNS):
            for seconds, run in order[:: 1 if turn % 2 == 0 else -1]:
                seconds += run()
        step, rate = statistics.median(steps), 2 * COPY / statistics.median(copies)
        tokens = call[2][0].to_numpy()
        if (tokens < 0).any():
            raise SystemExit(f"{held}, {rows} rows: wanted tokens, got {tokens.tolist()}")
        row = {"weights": held, "rows": rows, "us": round(1e6 * step, 1)}
        row |= {"gb": round(nbytes / 1e9, 3), "copy_gb_s": round(rate / 1e9, 1)}
        row["of_the_bound"] = round(nbytes / rate / step, 3)
        print(row, flush=True)
        found.append(row)
    return found


def main() -> None:
    """Makes the kit, or times what is in it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("kit", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--held", choices=list(HELD), action="append")
    parser.add_argument("--build", type=Path, default=Path("build/gpu"))
    parser.add_argument("--out", type=Path, default=Path("gpu_decode.json"))
    options = parser.parse_args()
    if options.what == "make":
        make(options.kit)
        return
    if options.device == "cuda":
        import gpu

        gpu.build(options.build.resolve())
    from heddle.runtime import CPU, Accelerator, InferenceSession

    device = Accelerator() if options.device == "cuda" else CPU()
    session = InferenceSession([device])
    rows = []
    for held in options.held or HELD:
        rows += time_held(options.kit, held, session, device)
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
