"""What `heddle compile` is given: a model, a checkpoint's folder, an ONNX file, or a function."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from types import ModuleType

import click

from heddle.graph import DType, Graph
from heddle.pipelines import checkpoint, language_model, onnx, sentence_model
from heddle.pipelines.checkpoint import Checkpoint, GgufCheckpoint
from heddle.pipelines.cli.onnx_sizes import Sizes
from heddle.pipelines.models.config_checks import check_choice
from heddle.pipelines.models.decoder.families import FAMILIES
from heddle.pipelines.models.encoder.names import NAMES
from heddle.pipelines.models.products import AS_STORED, Asked, AsStored
from heddle.pipelines.models.text_part import text_part
from heddle.pipelines.weights import Array
from heddle.runtime.errors import CompileError, HeddleError, InputError


@dataclass(frozen=True)
class Source:
    """A graph and, where the source has them, the file with its weights, or these themselves."""

    graph: Graph
    weights: Path | None = None
    arrays: Mapping[str, Array] = field(default_factory=dict)


def load(
    text: str,
    dtype: DType | None = None,
    quantization: Asked = AS_STORED,
    sizes: Sizes | None = None,
    context: int | None = None,
) -> Source:
    """The graph that `text` means: `minilm`, a folder, or one of the files below.

    They are `model.gguf`, `model.onnx` and `model.py:function`. `sizes` are those of an ONNX file.
    `dtype` is what a checkpoint's model computes in, by default float32 for an encoder and what its
    weights are stored in for a language model, whose weights are held as `quantization` says, and
    whose longest text has `context` tokens.
    """
    path, colon, function = text.rpartition(":")
    is_function, is_onnx = bool(colon) and path.endswith(".py"), text.endswith(".onnx")
    given_own = _of_language_models(quantization, context)
    refused = ["--dtype"] if dtype else given_own
    if refused and (is_function or is_onnx):
        raise click.UsageError(f"{refused[0]}: wanted minilm or a model's folder, got {text!r}")
    if is_onnx:
        given = sizes or Sizes()
        found_in = onnx.load(text, dims=given.dims, shapes=given.shapes)
        return Source(found_in.graph, arrays=found_in.weights)
    if sizes is not None:
        raise click.UsageError(f"{sizes.option}: wanted an ONNX file, got {text!r}")
    if is_function:
        return Source(from_function(Path(path), function))
    if text == "minilm" and given_own:  # a folder's files have to be read for that
        raise click.UsageError(_no_language_model(given_own, text))
    found = checkpoint.find(text)
    name = "minilm" if text == "minilm" else found.name
    return of_checkpoint(found, name, dtype, quantization, context)


def of_checkpoint(
    found: Checkpoint | GgufCheckpoint,
    name: str,
    dtype: DType | None,
    quantization: Asked,
    context: int | None,
) -> Source:
    """The graph of a checkpoint's model, as `load` makes it; an encoder's is called `name`."""
    if not isinstance(found, GgufCheckpoint):
        kind = text_part(found.values()).get("model_type")
        check_choice(f"{found.config}: model_type", kind, (*FAMILIES, *NAMES))
        if kind in NAMES:
            if given := _of_language_models(quantization, context):
                raise InputError(_no_language_model(given, str(found.folder)))
            return Source(sentence_model.build(found, name, dtype), found.weights)
    return Source(language_model.build(found, dtype, quantization, context), found.weights)


def _of_language_models(quantization: Asked, context: int | None) -> list[str]:
    """The options that were given for a language model."""
    stored = isinstance(quantization, AsStored)
    given = {
        "--quantize": not stored,
        "--activations": stored and quantization != AS_STORED,
        "--context": context is not None,
    }
    return [option for option, value in given.items() if value]


def _no_language_model(options: list[str], got: str) -> str:
    """Why options that only language models have are refused."""
    return f"{', '.join(options)}: wanted a language model, got {got!r}"


def where(path: Path, error: BaseException) -> str:
    """`path` with the line in it that `error` came through."""
    file = str(path.absolute())
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{path}:{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)


@contextmanager
def placed(path: Path) -> Iterator[None]:
    """What the code of `path` raises inside says its line; Heddle's own errors do already."""
    try:
        yield
    except HeddleError:
        raise
    except (Exception, SystemExit) as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        message = f"{where(path, error)}: {type(error).__name__}: {what}"
        raise CompileError(message.removesuffix(": ")) from error


@contextmanager
def executed(path: Path) -> Iterator[ModuleType]:
    """The file `path` as a module, which until the end can import itself and what lies beside it.

    Dataclasses look it up by its name: the file's own, unless another module has that.
    """
    file, name = path.absolute(), path.stem
    while name in sys.modules:
        name += "_"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    paths = sys.path[:]
    sys.path.insert(0, str(file.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with placed(path):
            spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = paths
        sys.modules.pop(name, None)


def from_function(path: Path, name: str) -> Graph:
    """What the function `name` without arguments in the Python file `path` returns."""
    if not path.is_file():
        raise CompileError(f"{path}: wanted a Python file, found none")
    with executed(path) as module:
        function = getattr(module, name, None)
        if not callable(function):
            raise CompileError(f"{path}: wanted a function named {name!r}, found none")
        try:
            signature(function).bind()
        except TypeError as error:
            raise CompileError(
                f"{path}:{name}: wanted a function without arguments, got {name}"
                f"{signature(function)}: {error}"
            ) from None
        with placed(path):
            graph = function()
    if not isinstance(graph, Graph):
        raise CompileError(
            f"{path}:{name}: wanted a function that returns a Graph, got {type(graph).__name__}"
        )
    return graph
