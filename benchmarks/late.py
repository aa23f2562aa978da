"""Products of float32 by a right side that is not known before the call: Heddle beside torch.

    python benchmarks/late.py [--threads 1 2] [--form "a @ b" ...] [--rounds 9] [--save]

Sizes are those that fill no tile and no panel, and some that do. torch's `matmul` is MKL's where
the CPU is Intel's (`pip install torch`), NumPy's is OpenBLAS's. All take turns in one process, a
child for each number of threads, and are given where to write. Times are those of the median call;
the ratio is the least one of any peer's time over Heddle's, round by round (`measure.ratio`): above
1, Heddle is faster. The results' file has a row for each size: form and threads, time and ratio.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from math import prod
from statistics import geometric_mean, median
from typing import Any

import measure
import numpy as np

from heddle.graph import DType, Graph, TensorType, compile
from heddle.runtime import Buffer, InferenceSession

FORMS = ("a @ b", "a @ b.T", "a.T @ b")

ROWS, SIDES = (2, 8, 13, 17, 33, 64, 129, 500), ((64, 64), (65, 65), (512, 512), (513, 129))

SIZES = (
    *((m, *side) for m, side in product(ROWS, SIDES)),
    *((m, 512, n) for m, n in product((64, 1000), (2, 8, 16, 24, 48))),
    *((64, k, 512) for k in (1, 4, 16, 33)),
    *((64, k, n) for k, n in product((4, 33), (4, 33))),
    *((17, 1025, 65), (64, 1025, 65), (500, 1025, 65), (33, 256, 1000), (2048, 64, 64)),
    *((size, size, size) for size in (7, 31, 48, 127, 257)),
)
"""m, k and n."""

TURN_S = 0.002
"""About how long a candidate's turn takes."""

Call = Callable[[], object]


def heddle_candidate(
    session: InferenceSession, form: str, a: np.ndarray, b: np.ndarray, shape: tuple[int, int]
) -> Call:
    """A call of the product, with the result's buffer given."""
    sides = [TensorType(DType.float32, side.shape) for side in (a, b)]
    with Graph("product", sides) as graph:
        left, right = (side.tensor for side in graph.inputs)
        left = left.T if form == "a.T @ b" else left
        graph.output(left @ (right.T if form == "a @ b.T" else right))
    model = session.load(compile(graph, "cpu:native"))
    given, out = [Buffer.from_numpy(side) for side in (a, b)], Buffer("float32", shape)
    return lambda: model.execute(*given, out=[out])


def candidates(session: InferenceSession, form: str, size: tuple[int, int, int]) -> dict[str, Call]:
    """What takes turns, by name."""
    m, k, n = size
    rng = np.random.default_rng(0)
    shapes = ((k, m) if form == "a.T @ b" else (m, k), (n, k) if form == "a @ b.T" else (k, n))
    a, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
    left, right = (a.T if form == "a.T @ b" else a), (b.T if form == "a @ b.T" else b)
    out = np.empty((m, n), np.float32)
    calls = {
        "heddle": heddle_candidate(session, form, a, b, (m, n)),
        "openblas": lambda: np.matmul(left, right, out=out),
    }
    if find_spec("torch"):
        import torch

        sides = [torch.from_numpy(side) for side in (left, right)]
        into = torch.empty(m, n)
        calls["torch"] = lambda: torch.matmul(*sides, out=into)
    return calls


def child(forms: list[str], threads: int, rounds: int) -> None:
    """Measures with so many threads and prints a row for each case."""
    session = InferenceSession(threads=threads)
    if find_spec("torch"):
        import torch

        torch.set_num_threads(threads)
    for form, size in product(forms, SIZES):
        taking_turns = candidates(session, form, size)
        once = min(measure.once(taking_turns["heddle"]) for _ in range(3))
        calls = max(3, int(TURN_S / once))
        times = measure.interleaved(taking_turns, rounds, calls)
        row: dict[str, Any] = {"form": form, **dict(zip("mkn", size, strict=True))}
        row |= {"threads": threads}
        row |= {f"{name} us": round(1e6 * median(times[name]), 2) for name in times}
        row["GFLOP/s"] = round(2e-9 * prod(size) / median(times["heddle"]), 1)
        peers = [times[name] for name in times if name != "heddle"]
        row["ratio"] = round(min(measure.ratio(each, times["heddle"], calls) for each in peers), 2)
        print(json.dumps(row), flush=True)


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--form", choices=FORMS, nargs="+", default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.form, options.threads[0], options.rounds)
        return
    given = ["--rounds", str(options.rounds), "--form", *options.form]
    rows = [row for n in options.threads for row in measure.of_child(__file__, n, *given)]
    figures: dict[str, Any] = {"torch": version("torch")} if find_spec("torch") else {}
    sizes: dict[tuple[int, ...], dict[str, Any]] = {}
    for form, threads in product(options.form, options.threads):
        case = f"{form}, {threads}"
        own = [row for row in rows if (row["form"], row["threads"]) == (form, threads)]
        ratios = [row["ratio"] for row in own]
        figures[f"geometric mean of {case}"] = round(geometric_mean(ratios), 2)
        figures[f"at 1 or more of {case}"] = f"{sum(each >= 1 for each in ratios)} of {len(own)}"
        for row in own:
            size = {name: row[name] for name in "mkn"}
            found = sizes.setdefault(tuple(size.values()), size)
            found |= {f"{case}: us": row["heddle us"], f"{case}: ratio": row["ratio"]}
    print(json.dumps(figures, indent=2))
    if options.save:
        print(measure.save("late", {**figures, "rows": list(sizes.values())}))


if __name__ == "__main__":
    main()
