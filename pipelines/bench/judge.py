"""A row beside the limits of its machine: rates, their shares of the limit, and what binds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heddle.pipelines.bench.limits import TILES_OF, Limits
from heddle.pipelines.bench.machine import Level
from heddle.pipelines.bench.rows import Row

TILED = ("matmul", "grouped_matmul", "conv", "attention", "ragged_attention", "paged_attention")
"""Ops that multiply float32 in the tiles of AMX, where there are any (`conv` by single pixels)."""

LOW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Computed in float32 by the vector units."""

PRODUCTS = (
    "matmul",
    "grouped_matmul",
    "integer_matmul",
    "float8_matmul",
    "quantized_matmul",
    "quantized_grouped_matmul",
    "conv",
    "attention",
    "ragged_attention",
    "paged_attention",
)
"""Ops that could use dot products, the tiles of AMX or tensor cores, where there are any."""

EIGHT_BITS = ("int8", "uint8")

ABOVE = 1.03
"""The share of a limit from which on it is no limit: it was measured in a worse moment."""


def judged(row: Row, limits: Limits | None, levels: Sequence[Level]) -> Row:
    """`row` with its rates and, of what `limits` knows, the shares and the bound."""
    if "time_us" not in row:
        return row
    seconds = row["time_us"] / 1e6
    moved = row["bytes_read"] + row["bytes_written"]
    row = {**row, "gb_s": moved / seconds / 1e9, "tflop_s": row["operations"] / seconds / 1e12}
    if limits is None:
        return row
    places = places_of(row, levels)
    memory = memory_seconds(row, limits, places)
    peak = peak_tflops(row, limits)
    compute = row["operations"] / (peak * 1e12) if peak else 0.0
    if max(memory, compute) * 1e6 < limits["call_us"]:
        bound = "latency"
    elif peak is None and row["op"] in PRODUCTS:
        bound = ""  # products of integers may take longer than what they read
    else:
        bound = "memory" if memory >= compute else "compute"
    above = max(memory, compute) > ABOVE * seconds
    return {
        **row,
        "flags": [*row["flags"], *["above-limit"] * above],
        "level": list(places)[-1],
        "gb_s_limit": moved / memory / 1e9 if memory else None,
        "gb_s_share": memory / seconds,
        "tflop_s_limit": peak,
        "tflop_s_share": compute / seconds if peak else None,
        "bound": bound,
    }


def places_of(row: Row, levels: Sequence[Level]) -> dict[str, float]:
    """The shares of a case's buffers by where they are, the first cache first.

    They fill one cache after the other, and what is left is in memory; so is all of a cold case,
    whose rotation drops it from the caches, unless that is short. Each thread works on its part of
    them, so that private caches hold more together.
    """
    if row["cache"] == "cold" and "short-rotation" not in row["flags"]:
        return {"memory": 1.0}
    left = held = max(row["rotated_bytes"], 1)
    places = {}
    for level in levels:
        copies = max(1, row["threads"] // max(level.shared, 1))
        here = min(left, level.size * copies)
        places[level.name] = here / held
        left -= here
        if not left:
            return places
    return {**places, "memory": left / held}


def memory_seconds(row: Row, limits: Limits, places: Mapping[str, float]) -> float:
    """The least time to move a case's bytes, of which these shares are in these places.

    What is written is copied from as many bytes that are read; the rest is read alone.
    """
    read, written = row["bytes_read"], row["bytes_written"]
    copied = min(read, written) * 2 if read >= written else read + written
    alone = max(read - written, 0)
    copies, reads = limits["copy_gb_s"], limits["read_gb_s"]
    return sum(
        share * float(copied / copies[place] + alone / reads[place]) / 1e9
        for place, share in places.items()
    )


def peak_tflops(row: Row, limits: Limits) -> float | None:
    """The arithmetic limit for a row's dtype, or None where none is measured (integers)."""
    dtype: str = row.get("products") or row["dtype"]
    wanted = {"float32" if dtype in LOW else dtype}
    if row["op"] in PRODUCTS:
        by_bytes = {"int8"} if dtype in EIGHT_BITS else {dtype}
        wanted |= {"float8", "bfloat16"} if dtype.startswith("float8") else by_bytes
    elif dtype in EIGHT_BITS:
        return None  # Only products have a rate for these.
    measured = limits["tflop_s"]
    rates = [rate for name, rate in measured.items() if dtype_of(name) in wanted]
    if row["op"] in TILED and dtype in TILES_OF and "AMX bfloat16" in measured:
        rates.append(measured["AMX bfloat16"] / TILES_OF[dtype])
    return max(rates, default=None)


def dtype_of(name: str) -> str:
    """The dtype of a rate: `"AMX bfloat16 from L2"` as `"bfloat16"`."""
    return name.split()[1]
