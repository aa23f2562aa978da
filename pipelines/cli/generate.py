"""`heddle generate`: prompts through a language model."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.console import listed, packages_of_generate, print_json, stdin
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
    usage_errors,
    weights_option,
)
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.contexts import SamplingParams, TextGenerationRequest
    from heddle.pipelines.generation.generator import TextGenerator
    from heddle.pipelines.models.products import Asked
    from heddle.runtime import Model


@click.command(
    short_help="Continue prompts with a language model.",
    epilog=listed(
        "Examples:",
        'heddle generate path/to/llama --prompt "Once upon a time"',
        "heddle generate path/to/qwen --chat --prompt Hello --quantize int4 --temperature 0.7",
        "heddle generate qwen.gguf --chat --prompt Hello",
        'heddle generate llama.heddle --tokenizer path/to/llama --prompt "Once upon a time"',
    ),
)
@click.argument("model", type=Location(exists=True))
@click.option("--prompt", "prompts", multiple=True, help="May be repeated; else stdin is one.")
@click.option("--chat", is_flag=True, help="The prompt is a user's message, by the chat template.")
@click.option("--max-tokens", default=128, show_default=True, type=click.IntRange(1))
@click.option("--temperature", type=float, help="0, the default: the likeliest token.")
@click.option("--top-k", type=int, help="-1, the default: all.")
@click.option("--top-p", type=float)
@click.option("--min-p", type=float)
@click.option("--repetition-penalty", type=float)
@generation_config_option
@click.option("--seed", default=0, show_default=True)
@click.option("--stop", multiple=True, help="A text that ends the output; may be repeated.")
@click.option("--json-schema", type=Location(exists=True, dir_okay=False))
@click.option("--regex", help="What the output matches.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="What the model computes in; by default what it is stored in.",
)
@quantize_options
@context_option
@click.option("--threads", type=THREADS, help="CPU threads.")
@click.option(
    "--cache-tokens", type=click.IntRange(1), help="Room of the cache, 16 or more; default 8192."
)
@click.option("--speculate", default=0, type=SPECULATE, help="Most draft tokens of a text.")
@click.option(
    "--tokenizer",
    type=Location(exists=True),
    help="A folder with tokenizer.json, that file, or a GGUF file: beside an artifact, or in the "
    "place of the model's own.",
)
@weights_option
@click.option("--json", "as_json", is_flag=True, help="Print texts and times as JSON.")
def generate(
    model: Path,
    prompts: tuple[str, ...],
    dtype: str | None,
    quantize: str | None,
    group: int,
    activations: str,
    context: int | None,
    threads: int | None,
    cache_tokens: int | None,
    speculate: int,
    tokenizer: Path | None,
    weights: Path | None,
    as_json: bool,
    chat: bool,
    json_schema: Path | None,
    regex: str | None,
    generation_config: str,
    **chosen: Any,
) -> None:
    """Continue each prompt with MODEL, and print the text as it comes.

    MODEL is the folder of a language model or a GGUF file of one, which is compiled for this CPU,
    or an artifact that `heddle compile` made of it. Several prompts run side by side.
    """
    if json_schema and regex is not None:
        raise click.UsageError("wanted --json-schema or --regex, got both")
    sampling = sampling_of(**chosen)  # first: what is wrong here needs no model
    with packages_of_generate():
        from heddle.pipelines.generation.generator import CACHE_TOKENS, TextGenerator
        from heddle.pipelines.generation.tokenizer import TextTokenizer

    form = response_format(json_schema) if json_schema else None
    is_compiled_here = is_checkpoint(model)
    if is_compiled_here:
        if weights:
            got = "a folder" if model.is_dir() else "a GGUF file"
            raise click.UsageError(f"--weights: wanted an artifact as MODEL, got {got}")
    else:
        refuse_for_artifacts(options_of_checkpoints(dtype, quantize, activations, context))
        if tokenizer is None:
            raise click.UsageError(
                "--tokenizer: wanted the model's folder beside an artifact, got none; a model that "
                "is not compiled is given as its folder"
            )
    held = quantization(quantize, group, activations)
    read = TextTokenizer(tokenizer_folder(tokenizer) if tokenizer else model)
    if is_compiled_here:  # behind all that takes less time
        loaded = from_checkpoint(model, dtype, held, threads, context)
    else:
        loaded = from_artifact(model, weights, threads)
    if generation_config == "auto":
        own = {name: value for name, value in read.sampling().items() if chosen[name] is None}
        sampling = replace(sampling, **own)
    generator = TextGenerator(
        loaded, read, cache_tokens=cache_tokens or CACHE_TOKENS, speculate=speculate
    )
    texts = list(prompts) or [stdin().read()]
    requests = [request(text, number, chat, form, sampling) for number, text in enumerate(texts)]
    report = run(generator, requests, regex, shown=not as_json)
    if as_json:
        print_json(report)
    else:
        click.echo(summary(report), err=True)


def from_checkpoint(
    path: Path, dtype: str | None, held: Asked, threads: int | None, context: int | None
) -> Model:
    """The checkpoint that is the folder or GGUF file `path`, compiled for this CPU."""
    from heddle.graph import DType
    from heddle.pipelines import checkpoint, language_model

    found = checkpoint.of_path(path)
    graph = language_model.build(found, DType(dtype) if dtype else None, held, context)
    return compiled(graph, found.weights, threads)


@usage_errors(ValueError)
def sampling_of(stop: tuple[str, ...], max_tokens: int, **others: Any) -> SamplingParams:
    """How tokens are drawn, the likeliest ones where nothing is said, and when to stop."""
    from heddle.contexts import SamplingParams

    if "" in stop:
        raise InputError("--stop: wanted a text, got ''")
    given = {name: value for name, value in others.items() if value is not None}
    drawn = {"temperature": 0.0, "top_k": -1, **given}
    return SamplingParams(**drawn, max_new_tokens=max_tokens, stop=list(stop))


def response_format(path: Path) -> dict[str, Any]:
    """That of the JSON schema in the file `path`."""
    import json

    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
        return {"type": "json_schema", "json_schema": {"schema": schema}}
    except ValueError as error:
        why = str(error)
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg}, line {error.lineno}"
        raise InputError(f"{path}: wanted a JSON schema: {why}") from None


def request(
    text: str,
    number: int,
    chat: bool,
    form: Any,
    sampling: SamplingParams,
) -> TextGenerationRequest:
    """What is asked for, as a request."""
    from heddle.contexts import TextGenerationRequest

    given: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    return TextGenerationRequest(
        id=f"prompt {number}",
        index=number,
        model_name="",
        response_format=form,
        sampling_params=sampling,
        **(given if chat else {"prompt": text}),
    )


def run(
    generator: TextGenerator,
    requests: list[TextGenerationRequest],
    regex: str | None,
    shown: bool,
) -> dict[str, Any]:
    """Runs the requests to their ends; texts, why they ended, and times of both phases."""
    texts = {generator.submit(each, regex): "" for each in requests}
    counts = dict.fromkeys(texts, 0)
    reasons: dict[str, str] = {}
    prompts: dict[str, int] = {}
    start = time.perf_counter()
    first, early = 0.0, 0
    while len(reasons) < len(texts):
        for delta in generator.step():
            if delta.error:
                raise InputError(f"{delta.request_id}: {delta.error}")
            texts[delta.request_id] += delta.text
            counts[delta.request_id] += len(delta.tokens)
            prompts[delta.request_id] = delta.prompt_tokens
            if delta.finish_reason:
                reasons[delta.request_id] = delta.finish_reason
            if shown and len(texts) == 1:
                click.echo(delta.text, nl=False)
        if not first and all(counts.values()):
            first, early = time.perf_counter() - start, sum(counts.values())
    total = time.perf_counter() - start
    if shown:
        click.echo("" if len(texts) == 1 else "\n\n".join(texts.values()))
    return {
        "texts": [
            {"text": text, "tokens": counts[name], "finish_reason": reasons[name]}
            for name, text in texts.items()
        ],
        "prefill": {"tokens": sum(prompts.values()), "seconds": first},
        "decode": {"tokens": sum(counts.values()) - early, "seconds": total - first},
        "drafts": generator.drafts._asdict(),
    }


def summary(report: dict[str, Any]) -> str:
    """Tokens and tokens a second of both phases, and how drafts have fared."""
    parts = []
    for name in ("prefill", "decode"):
        tokens, seconds = report[name]["tokens"], report[name]["seconds"]
        rate = f", {tokens / seconds:.1f} tokens/s" if tokens and seconds else ""
        parts.append(f"{name}: {tokens} tokens in {seconds:.2f} s{rate}")
    if drafts := report["drafts"]["checked"]:
        parts.append(f"drafts: {report['drafts']['right']} of {drafts} tokens were right")
    return "\n".join(parts)
