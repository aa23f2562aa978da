"""From process start to the first result, and what a loaded model keeps, in fresh processes.

    python benchmarks/startup.py [--peer iree] [--runs 15] [--save]

Processes (`startup_child.py`) take turns: one that imports NumPy and ends; Heddle with weights
embedded in the artifact, with the artifact beside the checkpoint's safetensors file, and from a
sentence on (the tokenizer's import among it); the peers that are asked for with --peer, each with
what it has compiled before: ONNX Runtime its ONNX file, OpenVINO its model cache, IREE a module for
this CPU. They are to be installed: `pip install onnx onnxruntime openvino iree-base-compiler
iree-base-runtime`. All but the sentence are 1 x 16 tokens.

Times are medians over processes with warm file caches and with bytecode, as `pip install` writes it
(here into a folder of this run, because an editable install may have none); `over_numpy` is what
comes on top of NumPy's process, `resident` VmRSS at the end, pages of mapped files that were
touched included. `run` is the growth from a process with NumPy and its random numbers alone to the
peak (VmHWM) of one that has loaded the model and embedded 32 rows of 128 tokens from all over the
vocabulary.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import measure

from heddle.graph import compile
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig

PEERS = {"onnxruntime": "onnxruntime", "openvino": "openvino", "iree": "iree-base-runtime"}
"""The package whose version is that of a peer."""

CHILD = Path(__file__).with_name("startup_child.py")

MEMORY = """
import sys
from pathlib import Path
import numpy as np

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

rows, tokens, vocabulary = 32, 128, 30522
given = np.random.default_rng(0).integers(0, vocabulary, (rows, tokens), np.int32)
present = np.ones((rows, tokens), bool)
before = resident("VmRSS")
from heddle.runtime import Artifact, InferenceSession
from heddle.pipelines.weights import load

path, weights = sys.argv[1:]
model = load(InferenceSession(), Artifact.load(path), Path(weights) if weights else None)
model.execute(given, present)
print((resident("VmHWM") - before) / 1024)
"""

STAGES = ("import", "load", "tokenizer", "first")


def output(bytecode: Path, *arguments: object) -> str:
    """What a Python process prints that keeps its bytecode in the folder `bytecode`."""
    settings = os.environ | {"PYTHONPYCACHEPREFIX": str(bytecode)}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *map(str, arguments)]
    made = subprocess.run(command, check=True, capture_output=True, text=True, env=settings)
    return made.stdout


def warm(arguments: tuple[object, ...]) -> None:
    """Reads the files that a process is given: the system may have dropped them since they were."""
    for path in (Path(str(argument)) for argument in arguments if argument):
        for file in (path, *path.rglob("*")):
            if file.is_file():
                file.read_bytes()


def child(bytecode: Path, runtime: str, *arguments: object) -> dict[str, float]:
    """Milliseconds from the start to the end of each stage, and resident KiB."""
    words = output(bytecode, CHILD, runtime, time.monotonic(), *arguments).split()
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


def heddle_processes(found: checkpoint.Checkpoint, folder: Path) -> dict[str, tuple[object, ...]]:
    graph = sentence_embedder(EncoderConfig.read(found.config), "minilm")
    embedded, beside = folder / "embedded.heddle", folder / "beside.heddle"
    arrays = weights.select(found.weights, graph.weights)
    compile(graph, targets=["cpu"], weights=arrays, embed_weights=True).save(embedded)
    compile(graph, targets=["cpu"]).save(beside)
    return {
        "heddle, weights embedded": ("heddle", embedded),
        "heddle, weights beside": ("heddle", beside, found.weights),
        "heddle, from a sentence": ("heddle", embedded, "", found.tokenizer),
    }


def peer_processes(
    peers: list[str], found: checkpoint.Checkpoint, folder: Path
) -> dict[str, tuple[object, ...]]:
    if not peers:
        return {}
    import onnx_bert

    path = folder / "embedder.onnx"
    onnx_bert.build(
        weights.read(found.weights), json.loads(found.config.read_text()), "standard", path
    )
    module = folder / "embedder.vmfb"
    if "iree" in peers:
        tools, imported = Path(sys.executable).parent, folder / "embedder.mlir"
        subprocess.run([tools / "iree-import-onnx", path, "-o", imported], check=True)
        flags = ("device=local", "local-target-device-backends=llvm-cpu")
        target = [f"--iree-hal-target-{flags[0]}", f"--iree-hal-{flags[1]}"]
        target.append("--iree-llvmcpu-target-cpu=host")
        subprocess.run([tools / "iree-compile", imported, "-o", module, *target], check=True)
    files = {
        "onnxruntime": (path,),
        "openvino": (path, folder / "cache"),
        "iree": (module,),
    }
    return {peer: (peer, *files[peer]) for peer in peers}


def row(name: str, runs: list[dict[str, float]], numpy_ms: float) -> dict[str, Any]:
    """Medians of a process: each stage alone, then the whole."""
    found: dict[str, Any] = {"process": name}
    median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    before = 0.0
    for stage in STAGES:
        if stage in median:
            found[f"{stage}_ms"] = round(median[stage] - before, 1)
            before = median[stage]
    found |= {"total_ms": round(before, 1), "over_numpy_ms": round(before - numpy_ms, 1)}
    return found | {"resident_mib": round(median["resident"] / 1024, 1)}


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=list(PEERS), action="append", default=[], dest="peers")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    found = checkpoint.minilm()
    with tempfile.TemporaryDirectory() as folder:
        processes: dict[str, tuple[object, ...]] = {"numpy alone": ("numpy",)}
        processes |= heddle_processes(found, Path(folder))
        processes |= peer_processes(options.peers, found, Path(folder))
        bytecode = Path(folder) / "bytecode"
        os.sync()  # Files that are still being written to the disk are read slowly.
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in processes}
        for number in range(options.runs + 1):
            for name, (runtime, *arguments) in processes.items():
                warm(arguments)
                sample = child(bytecode, str(runtime), *arguments)
                if number:  # the first run fills the bytecode's folder
                    samples[name].append(sample)
        numpy_ms = statistics.median(run["import"] for run in samples["numpy alone"])
        rows = [row(name, runs, numpy_ms) for name, runs in samples.items()]
        for line in rows[1:3]:
            _, artifact, *rest = processes[line["process"]]
            peak = output(bytecode, "-c", MEMORY, artifact, rest[0] if rest else "")
            line["run_mib"] = round(float(peak), 1)
    for line in rows:
        print(json.dumps(line))
    if options.save:
        figures = {"weights_mib": round(found.weights.stat().st_size / 2**20, 1), "rows": rows}
        print(measure.save("startup", figures | {p: version(PEERS[p]) for p in options.peers}))


if __name__ == "__main__":
    main()
