"""The lines at the head of docs/performance.md: of which figures they are made."""

import json

import pytest


@pytest.fixture
def summary(script, tmp_path, monkeypatch):
    """The module, with results in an empty folder."""
    module = script("summary")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def write(summary, name, rows, key="rows"):
    (summary.RESULTS / f"{name}.json").write_text(json.dumps({key: rows}))


def test_a_line_has_the_rows_that_it_asks_for(summary):
    """16 rows are not 1 row; groups of any size are of their kind; who has no peer is no row."""
    rows = [
        {"weights": "int8, groups of 128", "rows": 1, "share": 0.5},
        {"weights": "int8, groups of 32", "rows": 1, "share": 2.0},
        {"weights": "int8, groups of 32", "rows": 16, "share": 9.0},
        {"weights": "int4, groups of 32", "rows": 1, "share": 9.0},
        {"weights": "int8, one group", "rows": 1, "share": ""},
        {"weights": "int8, no group", "rows": 1},
    ]
    write(summary, "skinny_zen4", rows)
    wanted = summary._of(weights="int8", rows=1)
    work = summary.Work("1 row, int8", "reading", "skinny", "share", wanted)
    columns, (line,) = summary._on_cpus("limit", [work])
    assert columns == ["work", "limit", *summary.CPUS]
    found = dict(zip(columns, line, strict=True))
    assert found.pop("Zen 4") == "1.00 (0.50 to 2.00)"
    assert set(found.values()) == {"1 row, int8", "reading", ""}


def test_one_figure_is_no_range(summary):
    assert summary.cell([0.941]) == "0.94"


def test_what_a_gpu_said_is_a_line_for_each_op(summary):
    timing = {"name": "matmul", "dtype": "bfloat16"}
    rows = [timing | {"ratio": 0.5}, timing | {"ratio": 2.0}, timing, timing | {"dtype": "int8"}]
    write(summary, "gpu", rows, "timings")
    assert summary._on_gpu("gpu")[1] == [["matmul", "bfloat16", "2", "1.00 (0.50 to 2.00)"]]
