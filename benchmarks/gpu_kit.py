"""What `benchmarks/gpu.py` carries to a machine with a GPU: artifacts, operands, expected results.

    python benchmarks/gpu_kit.py KIT [--target cuda:sm_90a]

Needs the compiler, no GPU; what it makes for one architecture is smaller. A check is an artifact
with small operands and, in float64, what the reference of its op makes of them. A timing is an
artifact with the shapes that matter; its operands are drawn where it runs. Checks are also compiled
for this machine's CPU, so that the script can be tried where there is no GPU. It takes some
minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import gpu_kit_step
import numpy as np

from heddle.graph import DType, Graph, TensorType, compile, rounding
from heddle.graph.ops.build import build
from heddle.pipelines.bench import data, workloads
from heddle.pipelines.bench.workload import Workload

FLOATS = ("float32", "bfloat16", "float16")

SMALL: tuple[dict[str, int], ...] = (
    {
        "m": 19,
        "n": 129,
        "k": 70,
        "b": 2,
        "h": 3,
        "s": 21,
        "t": 45,
        "d": 24,
        "rows": 50,
        "g": 1,
        "block": 9,
        "height": 7,
        "width": 10,
        "c": 13,
    },
    {
        "m": 16,
        "n": 128,
        "k": 128,
        "b": 1,
        "h": 4,
        "s": 32,
        "t": 64,
        "d": 64,
        "rows": 64,
        "g": 2,
        "block": 16,
        "height": 8,
        "width": 12,
        "c": 32,
    },
)
"""Sizes of the checks: odd ones, and such as are read in vectors. Others are a workload's first."""

LARGER: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("matmul", dtype, {"m": 300, "n": 520, "k": 200}) for dtype in ("bfloat16", "float16")),
    *(("matmul", "bfloat16", {"m": m, "n": n, "k": 2048}) for m, n in ((128, 1024), (512, 8704))),
    ("matmul", "bfloat16", {"m": 515, "n": 513, "k": 65}),
    *(
        (name, dtype, {"b": 3, "s": 150, "t": 336, "h": h, "g": 2, "block": 16, "d": d})
        for name in ("ragged_attention", "paged_attention")
        for dtype, h, d in (("bfloat16", 8, 128), ("float16", 6, 64))
    ),
    *(
        (name, "bfloat16", {"b": 1, "h": 3, "s": 200, "t": 333, "d": 128})
        for name in ("attention", "attention_causal")
    ),
)
"""Checks of products with more rows than strips are for: of several tiles, of tiles in pieces, of
single elements. And of attention of prompts: several tiles of queries, the last of them short."""

STEPS = ("float32", "bfloat16", "float16")
"""Dtypes of caches."""

REPEATED, LARGE = 8191, 1 << 20
"""Of operands of more than `LARGE` elements so many are drawn, over and over: files stay small."""

TOGETHER = 12
"""Ops of one graph: an artifact for each would take long to make."""

TIMED: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("matmul", "bfloat16", {"m": n, "n": n, "k": n}) for n in (4096, 8192)),
    *(
        ("matmul", "bfloat16", {"m": m, "n": n, "k": k})
        for n, k in ((6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 28672))
        for m in (1, 8, 16, 64, 512, 2048, 8192)
    ),
    ("matmul", "float32", {"m": 4096, "n": 4096, "k": 4096}),
    *(
        (f"quantized_matmul_{bits}", "bfloat16", {"m": m, "n": 28672, "k": 4096, "group": 128})
        for bits in (8, 4)
        for m in (1, 16)
    ),
    *(
        ("quantized_matmul_float8", "bfloat16", {"m": m, "n": 28672, "k": 4096, "group": 128})
        for m in (1, 16)
    ),
    ("float8_matmul", "float8_e4m3fn", {"m": 8192, "n": 8192, "k": 8192}),
    *(("float8_matmul", "float8_e4m3fn", {"m": m, "n": 28672, "k": 4096}) for m in (16, 512, 8192)),
    *(("integer_matmul", "int8", {"m": m, "n": 28672, "k": 4096}) for m in (16, 512, 8192)),
    ("grouped_matmul", "bfloat16", {"g": 8, "s": 512, "n": 14336, "k": 4096}),
    *(
        ("conv", "bfloat16", {"b": 32, "height": size, "width": size, "c": c, "n": c, "window": w})
        for size, c, w in ((56, 64, 3), (28, 128, 3), (14, 256, 3), (14, 1024, 1))
    ),
    *(
        (name, "bfloat16", {"b": b, "s": 1, "t": t, "h": 32, "g": 8, "block": 16, "d": 128})
        for name in ("paged_attention", "paged_attention_float8")
        for b, t in ((1, 8192), (64, 8192))
    ),
    *(
        ("paged_attention", "bfloat16", {"b": b, "s": s, "t": t, "h": 32, "g": 8, "d": 128})
        for b, s, t in ((1, 8192, 8192), (8, 1024, 1024), (4, 512, 16384))
    ),
    ("ragged_attention", "bfloat16", {"b": 1, "s": 8192, "t": 8192, "h": 32, "g": 8, "d": 128}),
    ("sample_tokens", "float32", {"m": 64, "n": 131072}),
    *(
        (name, "bfloat16", {"b": 1, "h": 32, "s": s, "t": s, "d": 128})
        for name in ("attention", "attention_causal")
        for s in (2048, 8192)
    ),
    *((name, "bfloat16", {"m": 8192, "n": 8192}) for name in ("rms_norm", "softmax", "layer_norm")),
    *((name, "bfloat16", {"m": 8192, "n": 8192}) for name in ("silu", "add", "transpose", "sum")),
    ("rope", "bfloat16", {"b": 4, "s": 4096, "h": 32, "d": 128}),
)
"""Workload, dtype and sizes; (n, k) of the products are those of models of 8B and 70B."""


def sizes_of(workload: Workload, small: dict[str, int]) -> dict[str, int]:
    """The sizes of a check of `workload`; whole groups, where it has them."""
    sizes = {name: small.get(name, first[0]) for name, first in workload.sizes.items()}
    if "group" in sizes:
        sizes["k"] = -(-sizes["k"] // sizes["group"]) * sizes["group"]
    return sizes


def stored(array: Any, dtype: DType) -> Any:
    """`array` as it lies in a buffer."""
    return rounding.stored(array, dtype)


def described(operands: list[tuple[TensorType, bool, str]]) -> list[dict[str, Any]]:
    """Operands as plain data: dtype, shape, whether it is a weight, how it is drawn."""
    return [
        {
            "dtype": type.dtype.name,
            "shape": [int(size) for size in type.shape],
            "weight": weight,
            "values": values,
        }
        for type, weight, values in operands
    ]


def operands_of(workload: Workload, sizes: dict[str, int], dtype: DType) -> list[dict[str, Any]]:
    """The operands of `workload` as plain data."""
    types = workload.types(sizes, dtype)
    return described(
        [(t, o.weight, o.values) for t, o in zip(types, workload.operands, strict=True)]
    )


def case_of(workload: Workload, sizes: dict[str, int], dtype: DType) -> dict[str, Any]:
    """What a check and a timing have in common."""
    result, cost = workload.result(sizes, dtype), workload.cost(sizes, dtype)
    return {
        "name": workload.name,
        "dtype": dtype.name,
        "sizes": sizes,
        "operands": operands_of(workload, sizes, dtype),
        "results": described([(result, False, "")]),
        "bytes": int(cost.read) + int(cost.written),
        "operations": int(cost.operations),
        "tolerances": [
            data.tolerance(result.dtype, int(cost.operations), int(result.shape.elements))
        ],
        "below": {o.below: sizes[o.below] for o in workload.operands if o.below},
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
            yield one_check(workloads.WORKLOADS[name], sizes, DType[dtype])
    for dtype in STEPS if "paged_write" in names else ():
        yield gpu_kit_step.step(DType[dtype], 128)


def one_check(
    workload: Workload, sizes: dict[str, int], dtype: DType
) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """One op on its own."""
    types = workload.types(sizes, dtype)
    arrays = [
        np.resize(array.ravel()[:REPEATED], array.shape) if array.size > LARGE else array
        for array in data.draw(workload, sizes, dtype, "normal")
    ]
    kept = {
        f"in{i}": stored(a, t.dtype) for i, (a, t) in enumerate(zip(arrays, types, strict=True))
    }
    kept["out0"] = expected(workload, sizes, dtype, arrays)
    return case_of(workload, sizes, dtype), workload.graph(sizes, dtype), kept


def expected(workload: Workload, sizes: dict[str, int], dtype: DType, arrays: list[Any]) -> Any:
    """What the op's reference makes of `arrays`, in float64 where they are floats."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    exact = workload.row.reference(*wide, **workload.canonical(sizes, dtype))
    short = exact.dtype.kind == "f" and dtype is not DType.float64
    return exact.astype(np.float32) if short else exact


def joint_check(
    group: list[Workload], small: dict[str, int], dtype: DType
) -> tuple[dict[str, Any], Graph, dict[str, Any]]:
    """Ops side by side in one graph; the compiler may fuse some of them."""
    sizes = [sizes_of(workload, small) for workload in group]
    cases = [case_of(w, s, dtype) for w, s in zip(group, sizes, strict=True)]
    types = [t for w, s in zip(group, sizes, strict=True) for t in w.types(s, dtype)]
    kept: dict[str, Any] = {}
    with Graph("ops", types) as graph:
        inputs, results = iter(graph.inputs), []
        for number, (workload, own) in enumerate(zip(group, sizes, strict=True)):
            arrays = data.draw(workload, own, dtype, "normal")
            for array, type in zip(arrays, workload.types(own, dtype), strict=True):
                kept[f"in{len(kept)}"] = stored(array, type.dtype)
            values = tuple(next(inputs) for _ in arrays)
            results.append(build(workload.row, values, workload.attrs(own, dtype)))
            cases[number]["expected"] = expected(workload, own, dtype, arrays)
        graph.output(*results)
    kept |= {f"out{number}": case.pop("expected") for number, case in enumerate(cases)}
    joint = {
        "name": " ".join(workload.name for workload in group),
        "dtype": dtype.name,
        "sizes": sizes[0],
        "operands": [operand for case in cases for operand in case["operands"]],
        "results": [result for case in cases for result in case["results"]],
        "tolerances": [tolerance for case in cases for tolerance in case["tolerances"]],
    }
    return joint, graph, kept


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


def make(kit: Path, names: Collection[str], timed: Collection[Any], gpu: str | None) -> None:
    """Writes the kit: checks of the workloads `names`, and the timings `timed`.

    Both are compiled for the target `gpu`; checks are for this machine's CPU as well, and without
    a `gpu` for that alone.
    """
    kit.mkdir(parents=True, exist_ok=True)
    targets = ("cpu:native", gpu) if gpu else ("cpu:native",)

    def written(
        path: str, case: dict[str, Any], graph: Graph, arrays: dict[str, Any], *targets: str
    ) -> dict[str, Any]:
        compile(graph, targets).save(kit / f"{path}.heddle")
        if arrays:
            np.savez_compressed(kit / f"{path}.npz", **arrays)
        return {**case, "path": path}

    listed: dict[str, Any] = {"checks": [], "timings": []}
    for number, (case, graph, arrays) in enumerate(checks(names)):
        listed["checks"].append(written(f"check{number}", case, graph, arrays, *targets))
    for number, (name, dtype, sizes) in enumerate(timed):
        workload = workloads.WORKLOADS[name]
        sizes = sizes_of(workload, sizes)
        case, rows = (make(workload, sizes, DType[dtype]) for make in (case_of, rows_of))
        graph = workload.graph(sizes, DType[dtype])
        listed["timings"].append(written(f"time{number}", case, graph, rows, targets[-1]))
    (kit / "kit.json").write_text(json.dumps(listed, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--target", default="cuda")
    options = parser.parse_args()
    make(options.kit, workloads.WORKLOADS, TIMED, options.target)
