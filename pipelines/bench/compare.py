"""Two runs, case by case: is B faster than A, slower, the same, or can it not be said?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from heddle.pipelines.bench.rows import Row, failed, pooled
from heddle.pipelines.bench.statistics import CONFIDENCE, holm, mann_whitney, median_interval

LEAST_TURNS = 8
"""Fewer on a side say nothing (see `mann_whitney`)."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case from A to B.

    `word` is FASTER, SLOWER, SAME, UNSURE; GONE or NEW where one run lacks the case; BROKEN where
    B has an error, or a wrong result, or no figures any more. `change` is B's median over
    A's, with the least and the greatest value that both intervals allow; `p` is adjusted for all
    cases.
    """

    row: Row
    word: str
    a_us: float = 0.0
    b_us: float = 0.0
    change: tuple[float, float, float] = (0.0, 0.0, 0.0)
    p: float = 1.0

    @property
    def bad(self) -> bool:
        """Whether this alone makes a comparison fail."""
        return self.word in ("SLOWER", "BROKEN", "GONE")


def compare(a: Iterable[Row], b: Iterable[Row], tolerance: float, impl: str) -> list[Verdict]:
    """The verdicts on the cases of `impl`, in A's order.

    A case is FASTER or SLOWER where Mann and Whitney's test on the medians of its turns, adjusted
    after Holm for the number of cases, finds a difference at 5%, and the medians differ by more
    than `tolerance`; SAME where the intervals leave no room for more than that; UNSURE otherwise.
    """
    before, after = ({k: r for k, r in pooled(x).items() if r["impl"] == impl} for x in (a, b))
    both = [key for key in before if key in after]
    tested = [key for key in both if _good(before[key]) and _good(after[key])]
    ps = holm([mann_whitney(before[key]["turns_us"], after[key]["turns_us"]) for key in tested])
    found = dict(zip(tested, ps, strict=True))
    verdicts = []
    for key, row in before.items():
        if key not in after:
            verdicts.append(Verdict(row, "GONE"))
        elif key in found:
            verdicts.append(_judge(row, after[key], found[key], tolerance))
        else:
            broken = failed(after[key]) or _good(row)
            verdicts.append(Verdict(after[key], "BROKEN" if broken else "UNSURE"))
    new = [row for key, row in after.items() if key not in before]
    return verdicts + [Verdict(row, "BROKEN" if failed(row) else "NEW") for row in new]


def _good(row: Row) -> bool:
    return "time_us" in row and row["status"] == "ok"


def _judge(a: Row, b: Row, p: float, tolerance: float) -> Verdict:
    sides = [row["turns_us"] for row in (a, b)]
    (a_us, a_low, a_high), (b_us, b_low, b_high) = map(median_interval, sides)
    change = b_us / a_us, b_low / a_high, b_high / a_low
    enough = min(map(len, sides)) >= LEAST_TURNS
    differ = enough and p < 1 - CONFIDENCE
    if differ and abs(change[0] - 1) > tolerance:
        word = "FASTER" if change[0] < 1 else "SLOWER"
    elif enough and max(change[2] - 1, 1 - change[1]) <= tolerance:
        word = "SAME"
    else:
        word = "UNSURE"
    return Verdict(b, word, a_us, b_us, change, p)


def machines_differ(a: list[Row], b: list[Row]) -> str:
    """Why times of the two runs may not be compared, or an empty text."""
    for name in ("host", "cpu", "cores"):
        sides = [sorted({str(row["environment"].get(name)) for row in rows}) for rows in (a, b)]
        if sides[0] != sides[1]:
            return f"A and B are of different machines: {name}: {sides[0]} and {sides[1]}"
    return ""


def overall(verdicts: list[Verdict]) -> float | None:
    """The geometric mean of the changes; None where no case has a time in both."""
    changes = [verdict.change[0] for verdict in verdicts if verdict.change[0]]
    return geometric_mean(changes) if changes else None
