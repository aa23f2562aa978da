"""The rows of `heddle bench run` in terminals of several widths, and in a pipe."""

import re

import pytest
from bench_commands import call, timed
from rich.console import Console

from heddle.pipelines.bench.rows import number
from heddle.pipelines.bench.workloads import WORKLOADS
from heddle.pipelines.cli import bench_table


def test_the_table(cases):
    cases.run.answers = lambda case: [
        timed(case, ratio=2.0, max_error=1e-7, tolerance=1e-6, flags=["noisy", "busy"]),
        timed(case, "numpy", 2000.0, ratio=2.0, max_error=1e-3, tolerance=1e-6),
        case.failed(
            "missing", "MissingError", "torch: is not installed; pip install torch", "torch"
        ),
    ]
    text = call("run", "exp", "--threads", 2).stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == (
        "name impl dtype shape device cache time [us] ±ci p95 GB/s %limit TFLOP/s %limit bound "
        "ratio error flags"
    )
    assert lines[1] == (
        "exp heddle float32 m=4096 n=4096 cpux2 cold 1000 10.0 1100 40.0 80% 0.08 16% memory "
        "2.00 1.0e-07 ok noisy, busy"
    )
    assert lines[2].endswith(" 2.00 1.0e-03 wrong")
    assert lines[-1] == "exp, torch: missing: torch: is not installed; pip install torch"


def test_lines_are_not_broken_for_a_program(cases):
    cases.run.answers = lambda case: [timed(case, flags=["noisy"] * 50)]
    assert len(call("run", "exp").stdout.splitlines()) == 2
    starts = [line.split(" ")[0] for line in call("list").stdout.splitlines()]
    assert starts[2 : 2 + len(WORKLOADS)] == list(WORKLOADS)


@pytest.fixture
def terminal(monkeypatch):
    """Makes stdout a terminal of so many columns, without colors."""

    def make(columns):
        monkeypatch.setattr(bench_table, "make_console", lambda: Console(width=columns))

    return make


@pytest.mark.parametrize("columns", [80, 120, 150])
def test_a_terminal_that_is_too_narrow_for_the_table_gets_one_for_each_case(
    cases, terminal, columns
):
    terminal(columns)
    cases.run.answers = lambda case: [
        timed(case, flags=["noisy"], max_error=1e-7, tolerance=1e-6, ratio=100.0, time=123456.0),
        timed(case, "numpy", 12345678.0, flags=["noisy", "reference"], ratio=100.0),
        case.failed("missing", "MissingError", "torch: is not installed", "torch"),
    ]
    lines = call(
        "run", "quantized_matmul_float8", "--set", "m=1,8", "--threads", 2
    ).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert not any("…" in line for line in lines)
    assert lines[0].rstrip() == (
        "quantized_matmul_float8 float32 m=1 k=2048 n=8192 group=32 cpux2 cold"
    )
    words = [line.split() for line in lines]
    assert [line[0] for line in words[1:5]] == ["impl", "heddle", "numpy", "torch"]
    assert words[5:8] == [
        ["heddle:", "1.0e-07", "ok,", "noisy"],
        ["numpy:", "noisy,", "reference"],
        ["torch:", "missing"],
    ]
    assert lines[9].startswith("quantized_matmul_float8 float32 m=8 ")


def test_colors_are_for_terminals(cases, monkeypatch):
    cases.run.answers = lambda case: [timed(case, status="wrong", max_error=0.5, tolerance=1e-6)]
    assert "\x1b" not in call("run", "exp", code=1).stdout

    def colored():
        return Console(width=200, force_terminal=True, color_system="standard", no_color=False)

    monkeypatch.setattr(bench_table, "make_console", colored)
    assert re.search("\x1b\\[1;31m *0?.*wrong", call("run", "exp", code=1).stdout)


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (1234, "1234")]
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text
