"""Run by CI in an editable install: every room must come from the checkout, and compile and run."""

import importlib
from pathlib import Path

import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, ops
from heddle.runtime import InferenceSession

ROOT = Path(__file__).resolve().parents[1]
for room in ("kernels", "graph", "runtime", "contexts", "pipelines"):
    file = importlib.import_module(f"heddle.{room}").__file__
    assert file is not None
    assert Path(file).resolve().parent == ROOT / room, file

with Graph("editable", input_types=[TensorType(DType.float32, ("n",), DeviceRef.CPU())]) as graph:
    graph.output(ops.add(graph.inputs[0].tensor, 1.0))
(result,) = InferenceSession().load(graph).execute(np.arange(5, dtype=np.float32))
assert result.to_numpy().tolist() == [1, 2, 3, 4, 5]
print("editable install: fine")
