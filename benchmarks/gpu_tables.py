"""The parts of what `benchmarks/gpu.py` has measured, as tables of docs/performance/gpu.md.

A results' file holds all that one GPU said; a part of it has rows of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

Figures = dict[str, Any]
Rows = list[dict[str, Any]]

PRODUCTS = ("matmul", "float8_matmul", "integer_matmul", "grouped_matmul", "conv")
QUANTIZED = tuple(
    f"quantized_matmul_{kind}" for kind in ("8", "4", "float8", "8_minimums", "4_minimums")
)
ATTENTION = (
    "attention",
    "attention_causal",
    "attention_capped",
    "ragged_attention",
    "paged_attention",
    "paged_attention_capped",
    "paged_attention_sinks",
    "paged_attention_float8",
    "paged_attention_latents",
)
MOVED = (
    *("rms_norm", "layer_norm", "softmax", "silu", "add", "sum", "transpose", "rope"),
    "sample_tokens",
)


def _timings(figures: Figures, names: tuple[str, ...], rate: str) -> Rows:
    """A row for each timing, with its sizes in one cell; `rate` is what it is to be judged by."""
    found = [row for row in figures["timings"] if row["name"] in names and "us" in row]
    return [
        {
            "op": row["name"],
            "dtype": row["dtype"],
            "sizes": ", ".join(f"{key} {value}" for key, value in row["sizes"].items()),
            "heddle_us": row["us"],
            rate: row[rate],
            "peer": row.get("peer", "").partition(", ")[2],
            "peer_us": row.get("peer_us", ""),
            "ratio": row.get("ratio", ""),
        }
        for row in sorted(found, key=lambda row: names.index(row["name"]))
    ]


def _decode(figures: Figures) -> Rows:
    """A row for each decoding step, and the kernels that take most of it."""
    return [
        {
            "weights": row["name"].removeprefix("decode, "),
            "rows": row["rows"],
            "step_us": row["us"],
            "GB": row["gb"],
            "of the bound": row["of_the_bound"],
            "longest kernels (µs)": ", ".join(
                f"{name.removeprefix('heddle_')} {part['us']:.0f}"
                for name, part in list(row.get("kernels", {}).items())[:4]
            ),
        }
        for row in figures["decode"]
        if "us" in row
    ]


PARTS: dict[str, Callable[[Figures], Rows]] = {
    "products": lambda figures: _timings(figures, PRODUCTS, "tflop_s"),
    "quantized": lambda figures: _timings(figures, QUANTIZED, "gb_s"),
    "attention": lambda figures: _timings(figures, ATTENTION, "tflop_s"),
    "moved": lambda figures: _timings(figures, MOVED, "gb_s"),
    "decode": _decode,
}


def part_of(figures: Figures, name: str) -> Figures:
    """The rows of a part, where they were measured, and its limits, as a results' file has them."""
    device = figures["cuda"]["devices"][0]
    limits = next(row for row in figures["timings"] if row["name"] == "limits")
    found: Figures = {
        "rows": PARTS[name](figures),
        "machine": {"gpu": device["name"], "driver": figures["cuda"]["driver"]},
        "date": figures["date"],
    }
    if name == "decode":
        rates = [row["copy_gb_s"] for row in figures["decode"] if "us" in row]
        found["copy, GB/s"] = round(statistics.median(rates))
    elif name in ("products", "attention"):
        found["torch's product of 8192, TFLOP/s"] = limits["tflop_s"]
    else:
        found["torch's copy, GB/s"] = limits["copy_gb_s"]
    ratios = [
        row["ratio"]
        for row in found["rows"]
        if row.get("op") == "matmul" and row["dtype"] == "bfloat16" and row["ratio"]
    ]
    if ratios:
        found["matmul in bfloat16, geometric mean"] = round(statistics.geometric_mean(ratios), 3)
        found["least"] = min(ratios)
    return found
