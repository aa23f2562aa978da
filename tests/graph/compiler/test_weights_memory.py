"""How much memory embedded weights take while they are compiled in."""

import json
import subprocess
import sys

import pytest

COUNT, MIB = 8, 8
"""Weights, and the size of each."""

CHILD = """
import json, sys
import numpy as np
from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops

count, mib, targets, output = json.loads(sys.argv[1])
width = 1024

with Graph("products", [TensorType(DType.float32, (Dim("rows", 1, 64), width))]) as graph:
    (x,) = graph.inputs
    for number in range(count):
        x = x @ graph.add_weight(Weight(f"w{number}", DType.float32, (256 * mib, width))).T
        x = ops.sum(ops.reshape(x, (x.shape[0], width, -1)), axis=2)[..., 0]
    graph.output(x)

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

compile(graph, targets)  # what is imported, and the kernels
rows = np.arange(256 * mib, dtype=np.float32)[:, None]
weights = {
    name: rows + np.full(width, number, np.float32) for number, name in enumerate(graph.weights)
}
before = peak()
artifact = compile(graph, targets, weights=weights, embed_weights=True, output=output)
print(json.dumps([peak() - before, artifact.nbytes / 2**20, artifact.weights[0]["settled"]]))
"""


@pytest.mark.parametrize("targets", [["cpu"], ["cpu", "cuda:sm_80"]], ids=["settled", "plain"])
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_weights_are_held_once_or_not_at_all(tmp_path, kind, targets):
    """In a process of its own, by its own high-water mark; NumPy's arrays are there before."""
    output = str(tmp_path / "m.heddle") if kind == "file" else None
    argument = json.dumps([COUNT, MIB, targets, output])
    run = [sys.executable, "-c", CHILD, argument]
    found = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    grown, size, settled = json.loads(found.stdout)
    assert size > COUNT * MIB
    assert settled == (len(targets) == 1)
    held = COUNT * MIB if kind == "memory" else 0
    assert grown < held + 3 * MIB
