"""Two runs, case by case; no kernel runs here."""

import pytest
from bench_cases import MACHINE, row

from heddle.pipelines.bench.compare import compare, machines_differ, overall


def turns(middle, spread=0.002, count=20):
    return [middle * (1 + spread * ((i * 7) % 11 - 5) / 5) for i in range(count)]


def skewed(low, high, count=20):
    """Half of them about `low`, half up to `high`."""
    upper = [low + (high - low) * i / count for i in range(count)]
    return [low + i / 1000 for i in range(count)] + upper


def word(a, b, tolerance=0.03):
    (verdict,) = compare([row(turns_us=a)], [row(turns_us=b)], tolerance, "heddle")
    return verdict.word


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (turns(100), turns(80), "FASTER"),
        (turns(100), turns(120), "SLOWER"),
        (turns(100), turns(100), "SAME"),
        (turns(100), turns(101), "SAME"),  # found, but too small to matter
        (turns(100, 0.5), turns(102, 0.5), "UNSURE"),
        (skewed(100, 100.5), skewed(102, 110), "UNSURE"),  # found, and may be too large
        (turns(100, count=5), turns(50, count=5), "UNSURE"),
    ],
)
def test_verdicts(a, b, wanted):
    assert word(a, b) == wanted


def test_the_tolerance_is_a_matter_of_choice():
    assert word(turns(100), turns(101), tolerance=0.001) == "SLOWER"


def test_many_cases_need_more_evidence():
    a, b = turns(100, 0.1, 12), [value * 1.07 for value in turns(100, 0.1, 12)]
    assert word(a, b) == "SLOWER"
    names = [f"case {i}" for i in range(50)]
    before = [row(name="exp", turns_us=a), *(row(name=name, turns_us=a) for name in names)]
    after = [row(name="exp", turns_us=b), *(row(name=name, turns_us=a) for name in names)]
    assert compare(before, after, 0.03, "heddle")[0].word != "SLOWER"


def test_cases_that_are_gone_new_or_broken():
    broken = {**row(name="log"), "status": "wrong"}
    before = [row(name="abs"), row(name="log"), row(name="neg", status="error")]
    before += [row(name="tan", status="wrong")]
    after = [broken, row(name="neg"), row(name="sin"), row(name="abs", impl="numpy")]
    after += [row(name="cos", status="wrong"), row(name="tan", status="wrong")]
    verdicts = compare(before, after, 0.03, "heddle")
    words = {verdict.row["name"]: (verdict.word, verdict.bad) for verdict in verdicts}
    assert words == {
        "abs": ("GONE", True),
        "log": ("BROKEN", True),
        "neg": ("UNSURE", False),
        "tan": ("BROKEN", True),
        "sin": ("NEW", False),
        "cos": ("BROKEN", True),
    }
    assert overall(verdicts) is None


def test_overall_is_the_geometric_mean():
    before = [row(turns_us=[100.0] * 9), row(name="log", turns_us=[100.0] * 9)]
    after = [row(turns_us=[50.0] * 9), row(name="log", turns_us=[800.0] * 9)]
    assert overall(compare(before, after, 0.03, "heddle")) == pytest.approx(2)


def test_other_machines_are_named():
    there = row(environment={**MACHINE, "cpu": "Y"})
    assert machines_differ([row()], [row()]) == ""
    wanted = "A and B are of different machines: cpu: ['X'] and ['Y']"
    assert machines_differ([row()], [there]) == wanted
