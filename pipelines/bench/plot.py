"""What a run looks like: a roofline, a bar chart, and one page that holds both and the rows.

The roofline is that of Williams, Waterman and Patterson (2009): a kernel's operations for each byte
against the rate that it reached, under the roof of bandwidth and arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from heddle.pipelines.bench.rows import Row, failed, number, pooled, shape_text, timed
from heddle.pipelines.bench.svg import COLORS, Chart, bars
from heddle.runtime import whole_file
from heddle.runtime.errors import InputError


def save(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Writes `roofline.svg`, `bars.svg` and `bench.html` to `folder`, which is made where needed.

    Raises:
        InputError: No row has a time, or all are wrong; one that is wrong is on the page alone.
        OSError: The files cannot be written.
    """
    measured = list(timed(pooled(rows).values()))
    right = [row for row in measured if not failed(row)]
    if not right:
        raise InputError("plot: wanted rows with times of right results, found none")
    roof, chart = roofline(right), bar_chart(right)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "roofline.svg": roof,
        "bars.svg": chart,
        "bench.html": page(measured, roof, chart),
    }
    for name, text in contents.items():
        whole_file.save(folder / name, text.encode())
    return [folder / name for name in contents]


def colors(rows: Sequence[Row]) -> dict[str, str]:
    """A color for each implementation."""
    names = dict.fromkeys(row["impl"] for row in rows)
    return {name: COLORS[min(i, len(COLORS) - 1)] for i, name in enumerate(names)}


def label(row: Row) -> str:
    """A row in a few words."""
    sizes = shape_text(row["shape"])
    return f"{row['name']} {sizes} {row['dtype']} {row['cache']} {row['device']}x{row['threads']}"


def roofline(rows: Sequence[Row]) -> str:
    """Rows that compute, under the roofs that their limits make."""
    points = [
        (row["operations"] / moved, 1e3 * row["tflop_s"], row)
        for row in rows
        if row["operations"] and "tflop_s" in row
        if (moved := row["bytes_read"] + row["bytes_written"])
    ]
    roofed = [row for row in rows if row.get("gb_s_limit") and row.get("tflop_s_limit")]
    rates = sorted({row["gb_s_limit"] for row in roofed})
    peaks = sorted({1e3 * row["tflop_s_limit"] for row in roofed})
    # The slowest and the fastest memory in use keep the picture readable.
    rates = rates if len(rates) <= 2 else [rates[0], rates[-1]]
    xs = [x for x, _, _ in points] + [peaks[-1] / rate for rate in rates]
    ys = [y for _, y, _ in points] + peaks
    chart = Chart(
        "Roofline",
        _range(xs),
        _range(ys),
        "operations for each byte",
        "GFLOP/s",
    )
    for peak in peaks:
        chart.line((peak / rates[-1], peak), (chart.x[1], peak), f"{peak:.0f} GFLOP/s")
    for rate in rates:
        start, knee = max(chart.x[0], chart.y[0] / rate), peaks[-1] / rate
        chart.line((start, start * rate), (knee, peaks[-1]), f"{rate:.0f} GB/s")
    paint = colors(rows)
    chart.legend(paint)
    for x, y, row in points:
        chart.point(x, y, paint[row["impl"]], f"{row['impl']}: {label(row)}: {y:.1f} GFLOP/s")
    return chart.render()


def bar_chart(rows: Sequence[Row]) -> str:
    """Each row's share of the limit that binds it; of its fastest peer where none is known."""
    paint, cells = colors(rows), []
    best: dict[str, float] = {}
    for row in rows:
        best[label(row)] = min(row["time_us"], best.get(label(row), math.inf))
    limited = all("bound" in row for row in rows)
    for row in rows:
        share = best[label(row)] / row["time_us"]
        if limited:
            share = max(row["gb_s_share"], row["tflop_s_share"] or 0)
        text = f"{100 * share:.0f}%, {number(row['time_us'])} us"
        sizes = shape_text(row["shape"])
        name = f"{row['impl']}: {row['name']} {sizes} {row['dtype']} {row['cache']}"
        cells.append((name, paint[row["impl"]], share, text))
    unit = "the machine's limit" if limited else "the fastest"
    return bars(f"Share of {unit}", cells, unit)


def page(rows: Sequence[Row], roof: str, chart: str) -> str:
    """One HTML page that needs no other file."""
    columns = ("impl", "case", "time (us)", "GB/s", "TFLOP/s", "bound", "ratio", "flags")
    lines = []
    for row in rows:
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        figures = [number(row.get(name)) for name in ("time_us", "gb_s", "tflop_s")]
        cells = (
            *(row["impl"], label(row), *figures),
            *(row.get("bound", ""), ratio, ", ".join([*["wrong"] * failed(row), *row["flags"]])),
        )
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in columns)
    places = [row["environment"] for row in rows]
    names = [f"{each['cpu']}, {each['cores']} cores, heddle {each['heddle']}" for each in places]
    dates = sorted({each["date"] for each in places})
    about = "; ".join([*dict.fromkeys(names), " to ".join(dict.fromkeys((dates[0], dates[-1])))])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>heddle bench</title><style>
body {{ font-family: system-ui, sans-serif; margin: 2em; color: #0f172a }}
table {{ border-collapse: collapse; font-size: 13px }}
td, th {{ padding: 2px 10px; text-align: left; border-bottom: 1px solid #e2e8f0 }}
svg {{ max-width: 100%; height: auto }}
</style></head><body>
<h1>heddle bench</h1><p>{escape(about)}</p>
{roof}
{chart}
<table><tr>{head}</tr>
{chr(10).join(lines)}
</table></body></html>
"""


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Whole decades around `values`."""
    positive = [value for value in values if value > 0] or [1.0]
    low = 10.0 ** math.floor(math.log10(min(positive)))
    high = 10.0 ** math.ceil(math.log10(max(positive) * 1.2))
    return low, max(high, 10 * low)
