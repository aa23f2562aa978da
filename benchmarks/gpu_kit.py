"""What `benchmarks/gpu.py` carries to a machine with a GPU: artifacts, operands, expected results.

    python benchmarks/gpu_kit.py KIT.tar.xz [--target cuda:sm_90a] [--match PATTERN]

Needs the compiler, no GPU; what it makes for one architecture is smaller. A check is an artifact
with small operands and what the reference of its op makes of them in float64. A timing is an
artifact with the shapes that matter. Operands are drawn where the kit runs, from seeds, and NumPy
computes plain products there: the file holds only what it cannot. Checks are also compiled for this
machine's CPU, so that the script can be tried where there is no GPU. What the runtime's build needs
beside this checkout, nanobind, is in the file. It takes some minutes. `--match` makes a small kit:
timings that have the pattern in their name, dtype and sizes, checks of the same ops, and no more.
With `--variant` timings and steps come with other constants, too (`gpu_variants.py`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gpu_decode
import gpu_kit_step
import gpu_operands
import gpu_runtime
import gpu_variants
import numpy as np
from gpu_kit_sizes import LARGER, SMALL, TIMED

from heddle.graph import DType, Graph, TensorType, compile
from heddle.graph.ops.build import build
from heddle.pipelines.bench import data, workloads
from heddle.pipelines.bench.workload import Workload

STEPS = ("float32", "bfloat16", "float16")
"""Dtypes of caches."""

HALVES = ("bfloat16", "float16")
"""Dtypes of products by tensor cores that are computed beside each other."""

TOGETHER = 12
"""Ops of one graph: an artifact for each would take long to make."""


def sizes_of(workload: Workload, small: dict[str, int]) -> dict[str, int]:
    """The sizes of a check of `workload`; whole groups, where it has them."""
    sizes = {name: small.get(name, first[0]) for name, first in workload.sizes.items()}
    if "group" in sizes:
        sizes["k"] = -(-sizes["k"] // sizes["group"]) * sizes["group"]
    return sizes


def described(type: TensorType, weight: bool = False, values: str = "") -> dict[str, Any]:
    """A tensor as plain data: dtype, shape, whether it is a weight, how it is drawn."""
    shape = [int(size) for size in type.shape]
    return {"dtype": type.dtype.name, "shape": shape, "weight": weight, "values": values}


def operands_of(workload: Workload, sizes: dict[str, int], dtype: DType) -> list[dict[str, Any]]:
    """The operands of `workload` as plain data."""
    return [
        described(type, operand.weight, operand.values) | {"below": sizes.get(operand.below or "")}
        for type, operand in zip(workload.types(sizes, dtype), workload.operands, strict=True)
    ]


def case_of(workload: Workload, sizes: dict[str, int], dtype: DType) -> dict[str, Any]:
    """What a check and a timing have in common."""
    result, cost = workload.result(sizes, dtype), workload.cost(sizes, dtype)
    return {
        "name": workload.name,
        "dtype": dtype.name,
        "sizes": sizes,
        "operands": operands_of(workload, sizes, dtype),
        "results": [described(result)],
        "bytes": int(cost.read) + int(cost.written),
        "operations": int(cost.operations),
        "tolerances": [data.allowed(workload, sizes, dtype)],
    }


def checks(names: Collection[str]) -> Iterator[tuple[dict[str, Any], Graph, dict[str, Any]]]:
    """Each check: what it is, its graph, its arrays."""
    for small in SMALL:
        groups: dict[str, list[Workload]] = {}
        for workload in (workloads.WORKLOADS[name] for name in names):
            for name in workload.dtypes():
                if any(operand.weight for operand in workload.operands):
                    yield one_check(workload, sizes_of(workload, small), DType[name])
                else:
                    groups.setdefault(name, []).append(workload)
        for name, group in groups.items():
            for first in range(0, len(group), TOGETHER):
                yield joint_check(group[first : first + TOGETHER], small, DType[name])
    for name, dtype, sizes in LARGER:
        if name in names:
            workload = workloads.WORKLOADS[name]
            yield one_check(workload, sizes_of(workload, sizes), DType[dtype])
    for dtype in STEPS if "paged_write" in names else ():
        yield gpu_kit_step.step(DType[dtype], 128)
    for dtype in HALVES if "matmul" in names else ():
        yield gpu_kit_step.products(DType[dtype])
        yield gpu_kit_step.gated(DType[dtype])


def one_check(
    workload: Workload, sizes: dict[str, int], dtype: DType
) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """One op on its own."""
    case, held = case_of(workload, sizes, dtype), rows_of(workload, sizes, dtype)
    arrays = drawn(case, held)
    if workload.name not in gpu_operands.REFERENCES:
        held["out0"] = expected(workload, sizes, dtype, case, arrays)
    return case, workload.graph(sizes, dtype), held


def drawn(case: dict[str, Any], held: Mapping[str, Any]) -> list[Any]:
    """The operands of a check, of which the case remembers a checksum."""
    arrays = gpu_operands.drawn(case, 0, held)
    case["fingerprint"] = gpu_operands.fingerprint(arrays)
    return arrays


def expected(
    workload: Workload,
    sizes: dict[str, int],
    dtype: DType,
    case: dict[str, Any],
    arrays: list[Any],
) -> Any:
    """What the op's reference makes of `arrays`, in float64 where they are floats."""
    pairs = zip(arrays, case["operands"], strict=True)
    wide = [gpu_operands.wide(array, operand["dtype"]) for array, operand in pairs]
    exact = workload.row.reference(*workload.arguments(wide), **workload.canonical(sizes, dtype))
    if exact.dtype.kind != "f" or dtype is DType.float64:
        return exact
    short = exact.astype(np.float32)
    return coarse(short) if dtype.name in HALVES else short


def coarse(array: np.ndarray) -> np.ndarray:
    """float32 with 15 bits behind the first, far below what 16 bits round: it packs well."""
    bits = array.view(np.uint32)
    rounded = (bits + 0x80 & 0xFFFFFF00).view(np.float32)
    return np.where(np.isfinite(rounded), rounded, array)


def joint_check(
    group: list[Workload], small: dict[str, int], dtype: DType
) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """Ops side by side in one graph; the compiler may fuse some of them."""
    sizes = [sizes_of(workload, small) for workload in group]
    cases = [case_of(w, s, dtype) for w, s in zip(group, sizes, strict=True)]
    types = [t for w, s in zip(group, sizes, strict=True) for t in w.types(s, dtype)]
    held: dict[str, Any] = {}
    with Graph("ops", types) as graph:
        inputs, results = iter(graph.inputs), []
        for workload, own in zip(group, sizes, strict=True):
            values = [next(inputs) for _ in workload.operands]
            arguments = tuple(workload.arguments(values))
            results.append(build(workload.row, arguments, workload.attrs(own, dtype)))
        graph.output(*results)
    joint = {
        "name": " ".join(workload.name for workload in group),
        "dtype": dtype.name,
        "sizes": sizes[0],
        "operands": [operand for case in cases for operand in case["operands"]],
        "results": [result for case in cases for result in case["results"]],
        "tolerances": [tolerance for case in cases for tolerance in case["tolerances"]],
    }
    first = 0
    for workload, own in zip(group, sizes, strict=True):
        rows = rows_of(workload, own, dtype)
        held |= {f"in{first + int(name[2:])}": array for name, array in rows.items()}
        first += len(workload.operands)
    arrays = iter(drawn(joint, held))
    for number, (workload, own, case) in enumerate(zip(group, sizes, cases, strict=True)):
        mine = [next(arrays) for _ in workload.operands]
        held[f"out{number}"] = expected(workload, own, dtype, case, mine)
    return joint, graph, held


def rows_of(workload: Workload, sizes: dict[str, int], dtype: DType) -> dict[str, Any]:
    """The operands of a timing that say which rows there are: offsets, lengths, blocks, ..."""
    rng, types = np.random.default_rng(data.SEED), workload.types(sizes, dtype)
    found = {}
    for i, (operand, type) in enumerate(zip(workload.operands, types, strict=True)):
        if operand.values in data.ROWS:
            drawn = data.ROWS[operand.values](
                rng, tuple(map(int, type.shape)), sizes[operand.below]
            )
            found[f"in{i}"] = drawn.astype(type.dtype.to_numpy())
    return found


def make(
    folder: Path,
    names: Collection[str],
    timed: Sequence[Any],
    gpu: str | None,
    share: tuple[int, int] = (0, 1),
    variants: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes artifacts and arrays of a kit: checks of the workloads `names`, the timings `timed`.

    Both are compiled for the target `gpu`; checks are for this machine's CPU as well, and without
    a `gpu` for that alone. `share` (i, n): every n-th of them, from the i-th on. What it gives is
    the kit's content, each with its number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = ("cpu:native", gpu) if gpu else ("cpu:native",)
    first, step = share

    def written(
        path: str, case: dict[str, Any], graph: Graph, held: dict[str, Any], *targets: str
    ) -> dict[str, Any]:
        compile(graph, targets).save(folder / f"{path}.heddle")
        if held:
            np.savez(folder / f"{path}.npz", **held)
        return {**case, "path": path}

    listed: dict[str, Any] = {"checks": {}, "timings": {}}
    for number, made in islice(enumerate(checks(names)), first, None, step):
        listed["checks"][number] = written(f"check{number}", *made, *targets)
    for number, (name, dtype, sizes) in islice(enumerate(timed), first, None, step):
        workload = workloads.WORKLOADS[name]
        sizes = sizes_of(workload, sizes)
        case, rows = (make(workload, sizes, DType[dtype]) for make in (case_of, rows_of))
        graph = workload.graph(sizes, DType[dtype])
        row = written(f"time{number}", case, graph, rows, targets[-1])
        row["variants"] = gpu_variants.write(folder, row["path"], graph, targets[-1], variants)
        listed["timings"][number] = row
    return listed


def finish(
    folder: Path,
    shares: Iterable[dict[str, Any]],
    decode: Mapping[str, dict[str, str]] | None = None,
) -> None:
    """Writes what is in a kit: the content of all `shares`, in the order of their numbers.

    And of `decode`, the variants of steps.
    """
    content: dict[str, Any] = {"numpy": np.__version__, "decode": dict(decode or {})}
    for part in ("checks", "timings"):
        rows = {number: row for share in shares for number, row in share[part].items()}
        content[part] = [rows[number] for number in sorted(rows)]
    (folder / "kit.json").write_text(json.dumps(content, indent=1))


def pack(folder: Path, kit: Path) -> None:
    """Makes one file of a kit's, with the sources of nanobind."""
    (nanobind,) = importlib.util.find_spec("nanobind").submodule_search_locations or ()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(nanobind, folder / "nanobind", ignore=ignored, dirs_exist_ok=True)
    made = shutil.make_archive(str(kit.with_suffix("").with_suffix("")), "xztar", folder)
    Path(made).replace(kit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--match", default="", help="only timings that have this pattern")
    parser.add_argument("--variant", action="append", default=[], help="MODULE.CONSTANT=VALUE,...")
    options = parser.parse_args()
    timed = [one for one in TIMED if re.search(options.match, " ".join(map(str, one)))]
    if not timed:
        parser.error(
            f"--match: wanted a pattern of a timing, as 'matmul bfloat16'; {options.match!r}"
        )
    names = list(dict.fromkeys(name for name, *_ in timed))  # Each op is checked once.
    if not options.match:
        names = list(workloads.WORKLOADS)
    with tempfile.TemporaryDirectory() as made:
        folder, count = Path(made), os.cpu_count() or 1
        with ProcessPoolExecutor(count, get_context("spawn")) as children:
            decode = None
            if not options.match:
                decode = children.submit(gpu_decode.make, folder, options.variant)
            shares = [
                children.submit(
                    make, folder, names, timed, options.target, (number, count), options.variant
                )
                for number in range(count)
            ]
            steps = decode.result() if decode else {}
            finish(folder, [share.result() for share in shares], steps)
            if decode:
                gpu_runtime.make(folder, options.target)
        pack(folder, options.kit)
    print(f"{options.kit}: {options.kit.stat().st_size / 2**20:.1f} MiB")
