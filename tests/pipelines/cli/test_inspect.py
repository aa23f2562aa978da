"""`heddle inspect`."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, Weight, compile
from heddle.pipelines.cli import main
from heddle.runtime import Artifact

PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()


def test_for_a_person(heddle, tiny_artifact):
    text = heddle("inspect", tiny_artifact).stdout
    for part in (
        "tiny",
        "tokens",
        "int32 [batch, sequence]",
        "1 to 1024",
        "embeddings.word_embeddings.weight",
        "embedded",
        "cpu: kernels",
        "KiB",
        "arena",
        "Runs on",
    ):
        assert part in text, part


def test_json_is_complete(heddle, tiny_artifact):
    everything = json.loads(heddle("inspect", tiny_artifact, "--json").stdout)
    assert everything == Artifact.load(tiny_artifact).describe()
    assert everything["bytes"] == tiny_artifact.stat().st_size
    (program,) = everything["programs"]
    assert all(code["bytes"] for kernel in program["kernels"] for code in kernel["codes"])
    assert all(step["label"] for step in program["main"]["instructions"])


def test_weights_of_a_kind_share_a_row_and_another_keeps_its_name(heddle, tmp_path):
    with Graph("three", [TensorType(DType.float32, (4,))]) as graph:
        total = graph.inputs[0]
        for name in ("layer0.w", "layer1.w", "w2"):
            total = total + graph.add_weight(Weight(name, DType.float32, (4,)))
        graph.output(total)
    path = tmp_path / "three.heddle"
    compile(graph, "cpu:native").save(path)
    rows = [line.split() for line in heddle("inspect", path).stdout.splitlines()]
    assert ["layer*.w", "float32", "[4]", "name", "only", "2", "32", "B"] in rows
    assert ["w2", "float32", "[4]", "name", "only", "1", "16", "B"] in rows


def test_a_hash_that_was_recorded_is_called_so(heddle, tmp_path):
    with Graph("one", [TensorType(DType.float32, (4,))]) as graph:
        graph.output(graph.inputs[0] + graph.add_weight(Weight("w", DType.float32, (4,))))
    path = tmp_path / "one.heddle"
    compile(graph, "cpu:native", weights={"w": np.ones(4, np.float32)}).save(path)
    assert "sha256 recorded" in heddle("inspect", path).stdout


@pytest.mark.parametrize("text", [PAGE, main.commands["inspect"].epilog], ids=["page", "help"])
def test_kernels_of_the_examples_are_there(heddle, tiny_artifact, text):
    names = re.findall(r"heddle inspect minilm\.heddle --kernel (\S+)", text)
    assert names
    kernels = [k["name"] for p in Artifact.load(tiny_artifact).programs for k in p["kernels"]]
    for name in names:
        assert sum(kernel.startswith(name) for kernel in kernels) == 1, (name, kernels)
