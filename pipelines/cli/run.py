"""`heddle run`: an artifact on files or random inputs, with times."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli import profile
from heddle.pipelines.cli.console import listed, print_json, table
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.runtime import Artifact, Device

SEED = 0


@click.command(
    short_help="Run an artifact and time it.",
    epilog=listed(
        "Examples:",
        "heddle run minilm.heddle --dim batch=4 --dim sequence=128",
        "heddle run layer.heddle --weights w.safetensors --input x=x.npy --output y.npz",
        "heddle run minilm.heddle --dim sequence=128 --profile",
    ),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, help="NAME=FILE.npy, or FILE.npz; repeatable.")
@click.option("--dim", "dims", multiple=True, help="NAME=SIZE of a symbol; repeatable.")
@click.option("--weights", type=click.Path(path_type=Path), help="A safetensors file.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, or cuda:INDEX.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads.")
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="FILE.npz")
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

    loaded = Artifact.load(artifact)
    arrays = make_inputs(loaded, read_inputs(inputs), read_dims(dims))
    session = InferenceSession(devices=[parse_device(device)], threads=threads)
    start = time.perf_counter()
    model = load(session, loaded, weights)
    times = {"load_s": time.perf_counter() - start}
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        results = [buffer.to_numpy() for buffer in model.execute(*arrays)]
        seconds.append(time.perf_counter() - start)
    times |= {"first_s": seconds[0], "median_s": statistics.median(seconds[1:])}
    named = {row["name"]: value for row, value in zip(loaded.outputs, results, strict=True)}
    if output:
        with output.open("wb") as file:  # by its path, NumPy would add .npz to the name
            np.savez(file, **named)
    report = {
        "inputs": {
            row["name"]: list(a.shape) for row, a in zip(loaded.inputs, arrays, strict=True)
        },
        "outputs": {name: summary(value) for name, value in named.items()},
        "times": times,
        "memory": {
            name: value
            for name, value in memory_statistics(model.device)._asdict().items()
            if name != "device"
        },
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

    kind, _, index = text.partition(":")
    if text == "cpu":
        return CPU()
    if kind == "cuda" and (index.isdecimal() or text == "cuda"):
        return Accelerator(int(index or 0))
    raise click.UsageError(f"--device: wanted cpu, cuda or cuda:INDEX, got {text!r}")


def read_inputs(items: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The arrays of `NAME=FILE.npy` and `FILE.npz` by name; files with objects are refused."""
    import numpy as np

    found: dict[str, NDArray[Any]] = {}
    for item in items:
        name, equals, path = item.partition("=")
        try:
            if equals:
                found[name] = np.load(path)
            else:
                found.update(np.load(item))
        except (ValueError, EOFError, TypeError) as error:
            raise click.UsageError(f"--input {item}: wanted a .npy or .npz file: {error}") from None
    return found


def read_dims(items: tuple[str, ...]) -> dict[str, int]:
    """The sizes of `NAME=SIZE` by name."""
    sizes = {}
    for item in items:
        name, _, size = item.partition("=")
        if not size.isdecimal():
            raise click.UsageError(f"--dim: wanted NAME=SIZE, got {item!r}")
        sizes[name] = int(size)
    return sizes


def make_inputs(
    artifact: Artifact, given: dict[str, NDArray[Any]], dims: dict[str, int]
) -> list[NDArray[Any]]:
    """One array for each input of `artifact`, random where none is given."""
    import numpy as np

    from heddle.pipelines.generation_inputs import is_language_model, step_inputs

    check_names("--input", given, [row["name"] for row in artifact.inputs])
    check_names("--dim", dims, [row["name"] for row in artifact.symbols])
    if is_language_model(artifact):  # random offsets and tables would be refused
        given = step_inputs(artifact, dims) | given
        dims = {"cache_blocks": given["blocks"].size} | dims
    sizes = {row["name"]: row["minimum"] for row in artifact.symbols}
    for row in artifact.inputs:
        if row["name"] in given:
            known = zip(row["shape"], given[row["name"]].shape, strict=False)
            sizes |= {dim: size for dim, size in known if dim in sizes}
    for row in artifact.symbols:
        size = dims.get(row["name"], row["minimum"])
        if not row["minimum"] <= size <= row["maximum"]:
            raise InputError(
                f"--dim {row['name']}: wanted {row['minimum']} to {row['maximum']}, got {size}"
            )
    sizes |= dims
    generator = np.random.default_rng(SEED)
    arrays = []
    for row in artifact.inputs:
        if row["name"] in given:
            arrays.append(given[row["name"]])
            continue
        unknown = [dim for dim in row["shape"] if isinstance(dim, str) and dim not in sizes]
        if unknown:
            raise click.UsageError(
                f"input {row['name']!r}: its dim {unknown[0]} is computed; give it with --input"
            )
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in row["shape"]]
        if row["dtype"].startswith("float"):
            arrays.append(generator.standard_normal(shape).astype(row["dtype"]))
        else:
            arrays.append(generator.integers(0, 2, shape).astype(row["dtype"]))
    return arrays


def check_names(option: str, given: dict[str, Any], known: list[str]) -> None:
    """Refuses names that the artifact does not have."""
    for name in given:
        if name not in known:
            raise click.UsageError(
                f"{option}: wanted one of {', '.join(known) or 'none'}, got {name!r}"
            )


def summary(value: NDArray[Any]) -> dict[str, Any]:
    """Shape, dtype and the range of an output."""
    result: dict[str, Any] = {"dtype": value.dtype.name, "shape": list(value.shape)}
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
    if "kernels" in report:
        profile.show(report["kernels"])
    if output:
        click.echo(f"outputs saved to {output}")
