"""`heddle bench tune` as a person sees it; the children's answers are the test's own."""

import os
from dataclasses import replace

import pytest

from heddle.graph.targets import native_level
from heddle.kernels import tuning
from heddle.pipelines.bench import tune
from heddle.pipelines.bench.workloads import WORKLOADS

SIZES = ("--set", "m=64", "--set", "n=64")


@pytest.fixture
def child(monkeypatch):
    """A child in which `fast`, a value of `ahead`, takes half of the others' time."""

    def answer(fast):
        def ask(problem, candidates, seconds, verify, ask, turn=0):
            slow = tuple(100.0 + noise for noise in range(12))
            turns = {fast: tuple(turn / 2 for turn in slow)}
            return [
                tune._result(
                    values, {"status": "ok", "turns_us": turns.get(values["ahead"], slow)}, slow
                )
                if values["ahead"]
                else tune.Result(values, "crashed")
                for values in candidates
            ]

        monkeypatch.setattr(tune, "measure", ask)

    return answer


@pytest.mark.parametrize(("fast", "kept"), [(128, "ahead=128"), (999, "the default stays")])
def test_what_is_found_is_shown_and_kept(heddle, child, tmp_path, fast, kept):
    child(fast)
    text = heddle("bench", "tune", "transpose", *SIZES, "--output", tmp_path).stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "transpose float32, transpose m=64 n=64"
    assert lines[1] == "values time [us] of default"
    assert lines[2] == "ahead=64 105.5 1.000 default"
    assert "ahead=0 crashed" in lines
    assert [line.split()[-1] for line in lines[2:7]] == ["default", *["verified"] * 3, "crashed"]
    path = tmp_path / f"{native_level()}.json"
    assert lines[-2] == f"{kept}; written to {path}"
    (row,) = tuning.Table.read(path).rows
    assert row.values == {"ahead": 128 if fast == 128 else 64}
    assert "No row is stale." in heddle("bench", "tune", "--check", "-o", tmp_path).stdout


def changed(heddle, child, folder, **values):
    """The file of a tuned kernel's table, to which its row is added anew, with other `values`."""
    child(32)
    heddle("bench", "tune", "transpose", *SIZES, "--output", folder)
    path = folder / f"{native_level()}.json"
    table = tuning.Table.read(path)
    path.write_text(table.with_row(replace(table.rows[0], **values)).to_json())
    return path


def test_check_fails_for_a_stale_row(heddle, child, tmp_path):
    path = changed(heddle, child, tmp_path, sources="other")
    for names in ((), ("transpose",)):
        text = heddle("bench", "tune", *names, "--check", "--output", tmp_path, code=1).stdout
        wanted = f"{path.name}: transpose float32 rows=64 columns=64: measured on "
        assert text.startswith(wanted)
        assert text.endswith("with other sources\n")


def test_check_finds_rows_of_kernels_that_are_gone(heddle, child, tmp_path):
    changed(heddle, child, tmp_path, op="gone")
    text = heddle("bench", "tune", "--check", "--output", tmp_path, code=1).stdout
    assert text.endswith(": no kernel of this name has parameters\n")
    named = ("bench", "tune", "transpose", *SIZES, "--check", "--output", tmp_path)
    assert "No row is stale." in heddle(*named).stdout


def test_a_table_of_another_cpu_is_left_alone(heddle, child, tmp_path):
    path = tmp_path / f"{native_level()}.json"
    path.write_text(tuning.Table(path.stem, "pentium4", "Pentium").to_json())
    text = heddle("bench", "tune", "transpose", *SIZES, "-o", tmp_path, code=1).stderr
    assert "tuned on pentium4 (Pentium), this is" in text


def test_bad_input(heddle, tmp_path):
    text = heddle("bench", "tune", code=2).stderr
    assert "wanted the NAME of a kernel, or --check" in text
    text = heddle("bench", "tune", "exp", code=2).stderr
    assert "exp: its kernels have no parameters; those of " in text
    named = text.rpartition("those of ")[2].partition(" have")[0].split(", ")
    assert {"matmul", "transpose"} <= set(named) <= set(WORKLOADS)  # what the command takes
    (tmp_path / "cpu.json").write_text("{}")
    text = heddle("bench", "tune", "--check", "--output", tmp_path, code=1).stderr
    assert "cpu.json: wanted a tuning table of schema 1" in text
    text = heddle("bench", "tune", "--check", "--output", tmp_path / "none", code=1).stderr
    assert "--output: wanted a folder of tuning tables, got '" in text
    text = heddle("bench", "tune", "transpose", "--set", "m=0", "--output", tmp_path, code=2).stderr
    assert "transpose: --set: wanted sizes of 1 or more, got m=0" in text
    for option, value in (("--set", "m=4"), ("--dtype", "float32")):
        text = heddle("bench", "tune", "--check", option, value, code=2).stderr
        assert f"{option}: wanted the NAME of a kernel with it" in text


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_measured(
    heddle, tmp_path, monkeypatch
):
    def measure(*arguments):
        raise AssertionError

    monkeypatch.setattr(tune, "measure", measure)
    monkeypatch.setattr(tune.os, "access", lambda path, how: how != os.W_OK)
    text = heddle("bench", "tune", "transpose", *SIZES, "-o", tmp_path, code=1).stderr
    assert f"{tmp_path}: cannot be written: give another folder with --output" in text
    (tmp_path / "file").touch()
    text = heddle("bench", "tune", "transpose", *SIZES, "-o", tmp_path / "file" / "x", code=1)
    assert "Not a directory" in text.stderr
