"""`heddle run`: an artifact on files or random inputs, with times."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli import profile
from heddle.pipelines.cli.console import listed, print_json, table
from heddle.pipelines.cli.options import THREADS, Location, check_weights, number_of, weights_option
from heddle.pipelines.cli.run_inputs import make_inputs, read_dims, read_inputs
from heddle.runtime import whole_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.runtime import Device


@click.command(
    short_help="Run an artifact and time it.",
    epilog=listed(
        "Examples:",
        "heddle run minilm.heddle --dim batch=4 --dim sequence=128",
        "heddle run layer.heddle --weights w.safetensors --input x=x.npy --output y.npz",
        "heddle run minilm.heddle --dim sequence=128 --profile",
    ),
)
@click.argument("artifact", type=Location())
@click.option("--input", "inputs", multiple=True, help="NAME=FILE.npy, or FILE.npz; repeatable.")
@click.option("--dim", "dims", multiple=True, help="NAME=SIZE of a symbol; repeatable.")
@weights_option
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, or cuda:INDEX.")
@click.option("--threads", type=THREADS, help="CPU threads.")
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1))
@click.option(
    "--output",
    type=Location(dir_okay=False),
    help="FILE.npz for the outputs; bfloat16 and float8 become float32.",
)
@click.option("--profile", "profiled", is_flag=True, help="Tell what each kernel took (CPU).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    artifact: Path,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    weights: Path | None,
    device: str,
    threads: int | None,
    repeat: int,
    output: Path | None,
    profiled: bool,
    as_json: bool,
) -> None:
    """Run ARTIFACT; inputs that are not given are random, symbols as small as they may be."""
    import numpy as np

    from heddle.pipelines.weights import load
    from heddle.runtime import Artifact, InferenceSession, memory_statistics

    chosen, sizes = parse_device(device), read_dims(dims)
    loaded = Artifact.load(artifact)
    check_weights(artifact, loaded, weights)
    arrays = make_inputs(loaded, read_inputs(inputs), sizes)
    session = InferenceSession(devices=[chosen], threads=threads)
    start = time.perf_counter()
    model = load(session, loaded, weights)
    times = {"load_s": time.perf_counter() - start}
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        results = [(buffer.dtype, buffer.to_numpy()) for buffer in model.execute(*arrays)]
        seconds.append(time.perf_counter() - start)
    times |= {"first_s": seconds[0], "median_s": statistics.median(seconds[1:])}
    names = [row["name"] for row in loaded.outputs]
    values = [readable(value, dtype) for dtype, value in results]
    if output:
        with whole_file.replacing(output) as made, made.open("wb") as file:
            # By its path, NumPy would add .npz to the name.
            np.savez(file, **dict(zip(names, values, strict=True)))
    report = {
        "inputs": {
            row["name"]: list(a.shape) for row, a in zip(loaded.inputs, arrays, strict=True)
        },
        "outputs": {
            name: summary(value, dtype)
            for name, value, (dtype, _) in zip(names, values, results, strict=True)
        },
        "times": times,
        "memory": {
            name: value
            for name, value in memory_statistics(model.device)._asdict().items()
            if name != "device"
        },
        "diagnostics": model.diagnostics,
    }
    if profiled:
        report["kernels"] = profile.by_kernel([model.profile(*arrays) for _ in range(repeat)])
    if as_json:
        print_json(report)
    else:
        show(report, output)


def parse_device(text: str) -> Device:
    """The device called `text`."""
    from heddle.runtime import CPU, Accelerator

    if text == "cpu":
        return CPU()
    kind, colon, digits = text.partition(":")
    index = number_of(digits) if colon else 0
    if kind == "cuda" and index is not None:
        return Accelerator(index)
    raise click.UsageError(f"--device: wanted cpu, cuda or cuda:INDEX, got {text!r}")


def readable(value: NDArray[Any], dtype: str) -> NDArray[Any]:
    """An output of `dtype` as every NumPy reads it: bfloat16 and float8 in float32, exactly."""
    from heddle.runtime import narrow_floats

    bits = narrow_floats.DTYPES.get(dtype)
    return value if bits is None else narrow_floats.widened(value.view(bits), dtype)


def summary(value: NDArray[Any], dtype: str) -> dict[str, Any]:
    """Shape, dtype and the range of an output."""
    result: dict[str, Any] = {"dtype": dtype, "shape": list(value.shape)}
    if value.size:
        numbers = value.astype("float64")
        result |= {
            "min": float(numbers.min()),
            "mean": float(numbers.mean()),
            "max": float(numbers.max()),
        }
    return result


def show(report: dict[str, Any], output: Path | None) -> None:
    """The report for a person."""
    rows = []
    for name, row in report["outputs"].items():
        numbers = [f"{row[key]:.6g}" if key in row else "" for key in ("min", "mean", "max")]
        rows.append((name, f"{row['dtype']} {row['shape']}", *numbers))
    table("Outputs", ("name", "type", "min>", "mean>", "max>"), rows)
    times = [(key.removesuffix("_s"), f"{1e3 * s:.3f}") for key, s in report["times"].items()]
    table("Times", ("step", "ms>"), times)
    memory = [(name, f"{value:,}") for name, value in report["memory"].items() if value]
    table("Memory", ("kind", "bytes>"), memory)
    if report["diagnostics"]:
        click.echo(report["diagnostics"])
    if "kernels" in report:
        profile.show(report["kernels"])
    if output:
        click.echo(f"outputs saved to {output}")
