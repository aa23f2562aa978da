"""What `heddle compile` is given: a known model, a checkpoint's folder, or a Python function."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import click

from heddle.graph import DType, Graph
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.models import bert


@dataclass(frozen=True)
class Source:
    """A graph and, where the source has one, the file with its weights."""

    graph: Graph
    weights: Path | None = None


def load(text: str, dtype: DType | None = None) -> Source:
    """The graph that `text` means: `minilm`, a folder, or `model.py:function`.

    `dtype` is what a checkpoint's model computes in, by default float32.
    """
    path, colon, function = text.rpartition(":")
    if colon and path.endswith(".py"):
        if dtype is not None:
            raise click.UsageError(f"--dtype: wanted minilm or a model's folder, got {text!r}")
        return Source(from_function(Path(path), function))
    found = checkpoint.find(text)
    config = bert.BertConfig.read(found.config)
    prefix = weights.prefix(weights.read(found.weights))
    name = "minilm" if text == "minilm" else found.folder.resolve().name
    graph = bert.sentence_embedder(config, name, prefix, dtype=dtype or DType.float32)
    return Source(graph, found.weights)


def from_function(path: Path, name: str) -> Graph:
    """What the function `name` without arguments in the Python file `path` returns."""
    if not path.is_file():
        raise click.UsageError(f"{path}: wanted a Python file, found none")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise click.UsageError(f"{path}: wanted a function named {name!r}, found none")
    graph = function()
    if not isinstance(graph, Graph):
        raise click.UsageError(
            f"{path}:{name}: wanted a function that returns a Graph, got {type(graph).__name__}"
        )
    return graph
