"""`heddle compile`: a model or a Python function to one artifact."""

from __future__ import annotations

import time
from pathlib import Path

import click

from heddle.pipelines.cli.console import bytes_text, listed, print_json, progress
from heddle.pipelines.cli.options import (
    Location,
    context_option,
    names_of,
    quantization,
    quantize_options,
    usage_errors,
)


@click.command(
    "compile",
    short_help="Compile a model to one artifact.",
    epilog=listed(
        "Examples:",
        "heddle compile minilm --embed-weights",
        "heddle compile minilm -t cpu -t cuda:sm_90a -o minilm.heddle",
        "heddle compile minilm --dtype bfloat16",
        "heddle compile path/to/llama --quantize int8 --embed-weights",
        "heddle compile qwen.gguf --embed-weights",
        "heddle compile model.onnx --dim batch=1:64 --dim sequence=128",
        "heddle compile model.py:build --weights model.safetensors",
        "heddle compile model.py:build --stop-after fuse",
    ),
)
@click.argument("source")
@click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="cpu, cuda, or one architecture (cpu:x86-64-v4, cuda:sm_90a); may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=Location(dir_okay=False),
    help="The artifact; by default the graph's name with .heddle, here.",
)
@click.option(
    "--weights",
    type=Location(dir_okay=False),
    help="The graph's weights: safetensors, the index of several, or GGUF; checkpoints have them.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="What a model computes in; by default float32, or as a language model is stored.",
)
@quantize_options
@context_option
@click.option(
    "--dim",
    "dims",
    multiple=True,
    help="What a size of an ONNX file may be: NAME=8, NAME=1:64, or NAME=OTHER; repeatable.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    help="The sizes of an ONNX file's input: INPUT=batch,128; repeatable.",
)
@click.option("--embed-weights", is_flag=True, help="Put the weights into the artifact.")
@click.option("--stop-after", metavar="PASS", help="Print the module after this pass and stop.")
@click.option(
    "--dump",
    type=Location(file_okay=False),
    help="Write the module after each pass into this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def compile_command(
    source: str,
    targets: tuple[str, ...],
    output: Path | None,
    weights: Path | None,
    dtype: str | None,
    quantize: str | None,
    group: int,
    activations: str,
    context: int | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    embed_weights: bool,
    stop_after: str | None,
    dump: Path | None,
    as_json: bool,
) -> None:
    """Compile SOURCE to one artifact that needs no compiler to run.

    SOURCE is minilm (all-MiniLM-L6-v2, if its package is installed), a folder with config.json,
    model.safetensors and tokenizer.json of an encoder or a language model, a file MODEL.gguf of a
    language model, a file MODEL.onnx, whose weights go into the artifact, or FILE.py:FUNCTION, a
    function without arguments that returns a Graph.
    """
    from heddle.graph import DType, compile
    from heddle.graph.compiler.pipeline import passes_until
    from heddle.graph.targets import Target
    from heddle.pipelines.cli.onnx_sizes import read_sizes
    from heddle.pipelines.cli.source import load
    from heddle.pipelines.weights import select
    from heddle.runtime import config
    from heddle.runtime.errors import CompileError, InputError

    if stop_after and (output or embed_weights or as_json):
        surplus = "-o" if output else "--embed-weights" if embed_weights else "--json"
        raise click.UsageError(f"{surplus}: wanted no --stop-after, which makes no artifact")
    with usage_errors(CompileError):
        Target.merge(targets)
        passes_until(stop_after)
    if dump:
        config.put("HEDDLE_DUMP", str(dump))
    held = quantization(quantize, group, activations)
    sizes = read_sizes(dims, shapes)
    found = load(source, DType(dtype) if dtype else None, held, sizes, context)
    if stop_after:
        click.echo(compile(found.graph, targets, stop_after=stop_after))
        return
    if weights and found.arrays:
        raise click.UsageError(f"--weights: wanted a source without its own, got {source}")
    file = weights or found.weights
    if embed_weights and file is None and not found.arrays:
        raise click.UsageError(
            f"--embed-weights: wanted --weights with those of {source}, got none"
        )
    output = output or Path(f"{found.graph.name}.heddle")
    start = time.perf_counter()
    arrays = select(file, found.graph.weights) if file else found.arrays or None
    if arrays is not None and (missing := [n for n in found.graph.weights if n not in arrays]):
        raise InputError(f"{file}: wanted {names_of(missing)}, got none of that name")
    with progress("compiling") as report:
        artifact = compile(
            found.graph,
            targets=targets,
            weights=arrays,
            embed_weights=embed_weights or bool(found.arrays),
            output=output,
            progress=report,
        )
    seconds = time.perf_counter() - start
    if as_json:
        row = {"artifact": str(output), "bytes": artifact.nbytes, "seconds": seconds}
        print_json({**row, "targets": artifact.requirements})
        return
    click.secho(f"{output}: {bytes_text(artifact.nbytes)} in {seconds:.1f} s", fg="green")
    for row in artifact.requirements:
        click.echo(f"  {row['target']}: {', '.join(row['any_of'])}")
