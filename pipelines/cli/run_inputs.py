"""What `heddle run` gives a model: arrays from files, and random ones in the sizes of `--dim`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.console import bytes_text
from heddle.pipelines.cli.options import number_of
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.runtime import Artifact, Buffer

SEED = 0


def read_inputs(items: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The arrays of `NAME=FILE.npy` and `FILE.npz` by name; files with objects are refused."""
    found: dict[str, NDArray[Any]] = {}
    for item in items:
        for name, array in _arrays(item).items():
            if name in found:
                raise click.UsageError(f"--input {item}: wanted one array called {name}, got two")
            found[name] = array
    return found


def _arrays(item: str) -> dict[str, NDArray[Any]]:
    """Those of one `--input`."""
    name, equals, path = item.partition("=")
    if equals and not (name and path):
        raise click.UsageError(f"--input: wanted NAME=FILE.npy or FILE.npz, got {item!r}")
    content = read_file(path if equals else item)
    if equals:
        if content is None or isinstance(content, dict):
            raise InputError(
                f"--input {item}: wanted NAME=FILE.npy with an array of numbers, got another file "
                "or a damaged one"
            )
        return {name: content}
    if not isinstance(content, dict):
        raise InputError(
            f"--input {item}: wanted FILE.npz with arrays of numbers, or NAME=FILE.npy, got "
            "another file or a damaged one"
        )
    return content


def read_file(path: str) -> NDArray[Any] | dict[str, NDArray[Any]] | None:
    """The array of a .npy file, those of a .npz file by name, or None of one that is neither."""
    import numpy as np

    with open(path, "rb") as file:
        try:
            content = np.load(file)
            return content if isinstance(content, np.ndarray) else dict(content)
        except Exception:  # NumPy, zipfile and zlib have one each for every kind of damage
            return None


def read_dims(items: tuple[str, ...]) -> dict[str, int]:
    """The sizes of `NAME=SIZE` by name."""
    sizes: dict[str, int] = {}
    for item in items:
        name, _, text = item.partition("=")
        size = number_of(text)
        if size is None:
            raise click.UsageError(f"--dim: wanted NAME=SIZE, got {item!r}")
        if name in sizes:
            raise click.UsageError(f"--dim {name}: wanted one size, got {sizes[name]} and {size}")
        sizes[name] = size
    return sizes


def make_inputs(
    artifact: Artifact, given: dict[str, NDArray[Any]], dims: dict[str, int]
) -> list[NDArray[Any] | Buffer]:
    """One array for each input of `artifact`, random where none is given."""
    import numpy as np

    from heddle.pipelines.generation.inputs import is_language_model, step_inputs
    from heddle.runtime import narrow_floats

    check_names("--input", given, [row["name"] for row in artifact.inputs])
    check_names("--dim", dims, [row["name"] for row in artifact.symbols])
    check_bound(artifact, given, dims)
    if is_language_model(artifact):  # random offsets and tables would be refused
        dims = with_cache(artifact, given, bound(artifact, given) | dims)
        given = step_inputs(artifact, dims) | given
    sizes = sizes_of(artifact, given, dims)
    generator = np.random.default_rng(SEED)
    arrays = []
    for row in artifact.inputs:
        if row["name"] in given:
            arrays.append(rounded(given[row["name"]], row["dtype"]))
            continue
        shape = shape_of(row, sizes)
        try:
            arrays.append(random(generator, shape, row["dtype"]))
        except (MemoryError, ValueError):
            size = narrow_floats.nbytes(row["dtype"], shape)
            raise InputError(
                f"input {row['name']!r}: wanted {bytes_text(size)} for {row['dtype']} {shape}, got "
                "less memory; give smaller sizes with --dim"
            ) from None
    return arrays


def with_cache(
    artifact: Artifact, given: dict[str, NDArray[Any]], dims: dict[str, int]
) -> dict[str, int]:
    """`dims` with the `cache_blocks` of a step, for which there is memory."""
    from heddle.pipelines.generation.inputs import check_cache
    from heddle.runtime import CPU

    sizes = sizes_of(artifact, given, dims)
    rows, row_blocks = sizes["rows"], sizes["row_blocks"]
    dims = {"cache_blocks": rows * row_blocks} | dims
    blocks = sizes_of(artifact, given, dims)["cache_blocks"]
    if blocks < rows * row_blocks and "blocks" not in given:
        raise InputError(
            f"--dim cache_blocks: wanted {rows * row_blocks} or more for {rows} rows of "
            f"{row_blocks} blocks, got {blocks}"
        )
    size = artifact.inputs[-1]["shape"][1]
    made_of = f"{blocks} blocks of {size} tokens ({rows} rows of {row_blocks} blocks)"
    remedy = "give fewer with --dim rows or --dim row_blocks"
    check_cache(artifact, blocks, CPU(), made_of, remedy)
    return dims


def check_bound(artifact: Artifact, given: dict[str, NDArray[Any]], dims: dict[str, int]) -> None:
    """Refuses sizes of `--dim` that an input file contradicts."""
    for row in artifact.inputs:
        if row["name"] in given:
            for dim, size in zip(row["shape"], given[row["name"]].shape, strict=False):
                if dim in dims and dims[dim] != size:
                    raise InputError(
                        f"--dim {dim}: wanted {size}, as input {row['name']!r} has, got {dims[dim]}"
                    )


def sizes_of(
    artifact: Artifact, given: dict[str, NDArray[Any]], dims: dict[str, int]
) -> dict[str, int]:
    """The size of each symbol: as `dims` or an input file says, else as small as it may be."""
    sizes = {row["name"]: row["minimum"] for row in artifact.symbols} | bound(artifact, given)
    for row in artifact.symbols:
        size = dims.get(row["name"], row["minimum"])
        if not row["minimum"] <= size <= row["maximum"]:
            raise InputError(
                f"--dim {row['name']}: wanted {row['minimum']} to {row['maximum']}, got {size}"
            )
    return sizes | dims


def bound(artifact: Artifact, given: dict[str, NDArray[Any]]) -> dict[str, int]:
    """The sizes of the symbols that the dims of input files are."""
    symbols = {row["name"] for row in artifact.symbols}
    rows = (row for row in artifact.inputs if row["name"] in given)
    known = (zip(row["shape"], given[row["name"]].shape, strict=False) for row in rows)
    return {dim: size for row in known for dim, size in row if dim in symbols}


def shape_of(row: dict[str, Any], sizes: dict[str, int]) -> list[int]:
    """The shape of an input."""
    unknown = [dim for dim in row["shape"] if isinstance(dim, str) and dim not in sizes]
    if unknown:
        raise InputError(
            f"input {row['name']!r}: its dim {unknown[0]} is computed; give it with --input"
        )
    return [dim if isinstance(dim, int) else sizes[dim] for dim in row["shape"]]


def random(generator: Any, shape: list[int], dtype: str) -> NDArray[Any] | Buffer:
    """Numbers of a normal distribution for floats, else 0 and 1."""
    if "float" not in dtype:
        integers: NDArray[Any] = generator.integers(0, 2, shape).astype(dtype)
        return integers
    if dtype == "float64":
        doubles: NDArray[Any] = generator.standard_normal(shape)
        return doubles
    values = generator.standard_normal(shape, "float32")
    return rounded(values, dtype) if dtype != "float16" else values.astype(dtype)


def rounded(array: NDArray[Any], dtype: str) -> NDArray[Any] | Buffer:
    """`array`; float32 for an input of bfloat16 or float8, which no file has, rounded to it."""
    from heddle.runtime import Buffer, narrow_floats

    if array.dtype != "float32" or dtype not in narrow_floats.DTYPES:
        return array
    return Buffer.from_numpy(narrow_floats.narrowed(array, dtype), dtype=dtype)


def check_names(option: str, given: dict[str, Any], known: list[str]) -> None:
    """Refuses names that the artifact does not have."""
    for name in given:
        if name not in known:
            raise InputError(f"{option}: wanted one of {', '.join(known) or 'none'}, got {name!r}")
