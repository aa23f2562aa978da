"""`heddle serve`: models behind HTTP, in the wire format of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heddle.pipelines.cli.console import listed, packages_of
from heddle.pipelines.cli.loading import (
    compiled,
    from_artifact,
    is_checkpoint,
    options_of_checkpoints,
    refuse_for_artifacts,
    tokenizer_folder,
)
from heddle.pipelines.cli.options import (
    SPECULATE,
    THREADS,
    Location,
    context_option,
    generation_config_option,
    quantization,
    quantize_options,
    weights_option,
)

if TYPE_CHECKING:
    from heddle.pipelines.models.products import Asked
    from heddle.pipelines.serving.app import ServedModel
    from heddle.runtime import Model


@click.command(
    short_help="Serve models over HTTP, as OpenAI's API.",
    epilog=listed(
        "Examples:",
        "heddle serve path/to/qwen --quantize int4",
        "heddle serve llama.heddle --tokenizer path/to/llama --name llama --port 8080",
        "heddle serve path/to/qwen minilm.heddle --api-key SECRET",
    ),
)
@click.argument("models", type=Location(exists=True), nargs=-1, required=True, metavar="MODEL...")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0: the whole network.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: a free one."
)
@click.option(
    "--name", "names", multiple=True, help="What clients call a model; one for each MODEL."
)
@click.option("--api-key", "api_keys", multiple=True, help="What clients are to send.")
@click.option("--rows", default=16, show_default=True, type=click.IntRange(1), help="Texts a step.")
@click.option(
    "--tokens", default=512, show_default=True, type=click.IntRange(1), help="Tokens a step."
)
@click.option(
    "--cache-tokens", type=click.IntRange(1), help="Room of each cache, 16 or more; default 8192."
)
@click.option("--speculate", default=0, type=SPECULATE, help="Most draft tokens of a text.")
@click.option(
    "--queue",
    default=256,
    show_default=True,
    type=click.IntRange(0),
    help="Texts that may wait for a row; more are refused.",
)
@click.option(
    "--grace",
    default=30,
    show_default=True,
    type=click.IntRange(0),
    help="Seconds that what runs gets at SIGINT or SIGTERM.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="What a model computes in that is compiled; by default as `heddle compile`.",
)
@quantize_options
@context_option
@click.option("--threads", type=THREADS, help="CPU threads of each model.")
@click.option(
    "--tokenizer",
    "tokenizers",
    type=Location(exists=True),
    multiple=True,
    help="A folder with tokenizer.json, that file, or a GGUF file; one for each artifact.",
)
@generation_config_option
@click.option(
    "--tool-calls",
    default="auto",
    show_default=True,
    metavar="FORM",
    help="How models write calls of tools; auto: by their chat templates; text: left as text.",
)
@click.option(
    "--reasoning",
    type=click.Choice(["apart", "text"]),
    default="apart",
    show_default=True,
    help="Whether reasoning is kept apart from the text.",
)
@weights_option
def serve(
    models: tuple[Path, ...],
    host: str,
    port: int,
    names: tuple[str, ...],
    api_keys: tuple[str, ...],
    rows: int,
    tokens: int,
    cache_tokens: int | None,
    speculate: int,
    queue: int,
    grace: int,
    dtype: str | None,
    quantize: str | None,
    group: int,
    activations: str,
    context: int | None,
    threads: int | None,
    tokenizers: tuple[Path, ...],
    generation_config: str,
    tool_calls: str,
    reasoning: str,
    weights: Path | None,
) -> None:
    """Serve each MODEL until SIGINT or SIGTERM, for any client of OpenAI's API.

    MODEL is what `heddle generate`, `embed` or `rank` takes: a folder or a GGUF file, which is
    compiled for this CPU, or an artifact. Its name is that of the folder or file.
    """
    with packages_of("serve"):
        from heddle.pipelines.serving.app import Service, Settings, make_app
        from heddle.pipelines.serving.reading.forms import SIGNS, TEXT
        from heddle.pipelines.serving.server import address, listen
        from heddle.pipelines.serving.server import serve as run

    called = names_of(models, names)
    check_options(
        models,
        options_of_checkpoints(dtype, quantize, activations, context),
        weights,
        tokenizers,
    )
    if "" in api_keys:  # as an unset variable is: it would let everybody in
        raise click.UsageError("--api-key: wanted a key, got an empty one")
    if tool_calls not in ("auto", TEXT, *SIGNS):
        known = ", ".join((TEXT, *SIGNS))
        raise click.UsageError(f"--tool-calls: wanted auto, {known}, got {tool_calls!r}")
    held = quantization(quantize, group, activations)
    with listen(host, port) as listener:  # first: who cannot listen need not compile
        given = iter(tokenizers)
        served: dict[str, ServedModel] = {}
        for name, path in zip(called, models, strict=True):
            tokenizer: Path | None = path
            if is_checkpoint(path):
                model = from_checkpoint(path, dtype, held, threads, context)
            else:
                model, tokenizer = from_artifact(path, weights, threads), next(given, None)
            served[name] = ready_model(
                model, path, tokenizer, rows, tokens, cache_tokens, speculate
            )
        says = f"{', '.join(served)}: {address(listener)}/v1"
        settings = Settings(
            calls=None if tool_calls == "auto" else tool_calls,
            reasoning=reasoning == "apart",
            generation_config=generation_config == "auto",
        )
        app = make_app(Service(served, rows + queue, api_keys, settings))
        run(app, listener, grace, lambda: click.echo(says))


def names_of(models: Sequence[Path], given: Sequence[str]) -> list[str]:
    """What clients call the models: as given, or as their folders and files are called."""
    if given and len(given) != len(models):
        raise click.UsageError(
            f"--name: wanted one for each of {len(models)} models, got {', '.join(given)}"
        )
    names = list(given) or [path.resolve().name if path.is_dir() else path.stem for path in models]
    if len(set(names)) < len(names):
        raise click.UsageError(f"--name: wanted names of their own, got {', '.join(names)}")
    return names


def check_options(
    models: Sequence[Path],
    of_checkpoints: Mapping[str, bool],
    weights: Path | None,
    tokenizers: Sequence[Path],
) -> None:
    """Refuses options that no model takes; `of_checkpoints` says which of theirs are given."""
    checkpoints = [path for path in models if is_checkpoint(path)]
    if not checkpoints:
        refuse_for_artifacts(of_checkpoints)
    if weights and (checkpoints or len(models) > 1):
        raise click.UsageError("--weights: wanted one artifact as MODEL, and nothing else")
    artifacts = len(models) - len(checkpoints)
    if len(tokenizers) > artifacts:
        unused = tokenizers[artifacts]
        raise click.UsageError(f"--tokenizer: wanted one for each artifact, got also {unused}")


def from_checkpoint(
    path: Path, dtype: str | None, held: Asked, threads: int | None, context: int | None
) -> Model:
    """The model in a folder or GGUF file, of language or of sentences, compiled for this CPU."""
    from heddle.graph import DType
    from heddle.pipelines import checkpoint
    from heddle.pipelines.cli.source import of_checkpoint

    found = checkpoint.of_path(path)
    source = of_checkpoint(found, found.name, DType(dtype) if dtype else None, held, context)
    return compiled(source.graph, source.weights, threads)


def ready_model(
    model: Model,
    path: Path,
    tokenizer: Path | None,
    rows: int,
    tokens: int,
    cache_tokens: int | None,
    speculate: int,
) -> ServedModel:
    """A model with its tokenizer; `path` is where it comes from."""
    from heddle.pipelines.cli.texts import TextFiles
    from heddle.pipelines.embedding import SentenceEmbedder
    from heddle.pipelines.generation.generator import CACHE_TOKENS, TextGenerator
    from heddle.pipelines.generation.inputs import is_language_model
    from heddle.pipelines.generation.tokenizer import TextTokenizer
    from heddle.pipelines.ranking import PairScorer

    if not is_language_model(model.artifact):
        files = TextFiles.find(tokenizer, model.artifact.name)
        if [tensor.name for tensor in model.output_metadata] == ["scores"]:
            return PairScorer(model, files.tokenizer, files.reading)
        return SentenceEmbedder(
            model, files.tokenizer, files.reading, files.prompt(None), files.dimensions
        )
    if tokenizer is None:
        raise click.UsageError(
            f"--tokenizer: wanted the model's folder beside the artifact {path}, got none"
        )
    read = TextTokenizer(tokenizer_folder(tokenizer))
    return TextGenerator(
        model, read, rows, tokens, cache_tokens or CACHE_TOKENS, speculate=speculate
    )
