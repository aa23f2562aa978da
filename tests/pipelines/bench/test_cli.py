"""`heddle bench` as a person and a script see it; the children's answers are the test's own."""

import json
import re
import shlex
import signal
from pathlib import Path

import pytest
from bench_commands import LIMITS, call, timed
from click.testing import CliRunner

from heddle.pipelines.bench import baselines, limits, runner
from heddle.pipelines.cli.bench import bench
from heddle.runtime.errors import InputError


def test_list():
    text = call("list").stdout
    assert re.search(r"matmul +\[m k\], \[k n\] +m=1,64,512 k=2048 n=2048 ", text)
    assert "Baselines: numpy, torch, onednn, cublas." in text
    report = json.loads(call("list", "--json").stdout)
    found = {row["name"]: row for row in report["kernels"]}
    assert found["exp"]["dtypes"] == ["float16", "bfloat16", "float32", "float64"]
    assert report["targets"] == ["cpu", "cuda"]


def test_what_is_asked_for_is_what_runs(cases):
    call(
        *("run", "matmul", "--set", "m=1,64", "--set", "k=32", "--dtype", "float32,bfloat16"),
        *("--cache", "both", "--baseline", "numpy", "--baseline", "torch", "--verify"),
        *("--threads", 2, "--inputs", "zeros", "--max-time", 0.5),
    )
    assert len(cases.seen) == 8
    first, last = cases.seen[0], cases.seen[-1]
    assert first.sizes == {"m": 1, "k": 32, "n": 2048}
    kinds = [(case.dtype, case.cache) for case in (first, last)]
    assert kinds == [("float32", "cold"), ("bfloat16", "warm")]
    for case in cases.seen:
        assert case.baselines == ("numpy", "torch")
        assert (case.verify, case.threads, case.inputs, case.max_time) == (True, 2, "zeros", 0.5)


@pytest.mark.parametrize("name", ["run", "tune", "compare", "plot"])
def test_examples_parse(name):
    text = call(name, "--help").stdout
    examples = re.findall(rf"^ +heddle bench {name} (.*)$", text, re.M)
    assert examples
    for example in examples:
        bench.commands[name].make_context(name, shlex.split(example))


@pytest.mark.parametrize("name", bench.commands)
def test_every_option_is_documented(name):
    page = (Path(__file__).parents[3] / "docs" / "bench.md").read_text()
    for option in bench.commands[name].params:
        assert not option.opts[-1].startswith("--") or option.opts[-1] in page, option.opts


def test_the_help_names_every_baseline():
    text = " ".join(call("run", "--help").stdout.split())
    assert all(name in text for name in baselines.BASELINES)


@pytest.mark.parametrize("status", ["wrong", "error", "crashed", "hung"])
def test_what_went_wrong_gives_exit_code_1_and_the_others_still_run(cases, status):
    def answers(case):
        if case.name == "log":
            return [timed(case)]
        if status == "wrong":
            return [timed(case, status="wrong", max_error=0.5, tolerance=1e-6)]
        return [case.failed(status, "DeviceError", "no luck")]

    cases.run.answers = answers
    text = call("run", "exp", "log", code=1).stdout
    assert status in text
    assert re.search(r"^log .* 1000 ", text, re.M)
    assert (status == "wrong") is ("no luck" not in text)


def test_a_missing_baseline_is_no_failure(cases):
    cases.run.answers = lambda case: [
        timed(case),
        case.failed("missing", "MissingError", "get it", "torch"),
    ]
    call("run", "exp", "--baseline", "torch")


def test_rows_go_to_the_file_as_they_come(cases, tmp_path):
    path = tmp_path / "run.jsonl"
    sizes = []

    def answers(case):
        sizes.append(path.stat().st_size)
        return [timed(case)]

    cases.run.answers = answers
    call("run", "exp", "--set", "m=1,2,3", "--json", path)
    assert sizes[0] == 0 < sizes[1] < sizes[2]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["shape"]["m"] for row in rows] == [1, 2, 3]
    assert all(row["schema"] == 1 and row["bound"] == "memory" for row in rows)
    assert rows[0]["environment"]["cores"] >= 1


@pytest.fixture
def _as_on_a_terminal():
    """What a shell starts in the background ignores SIGINT; a run handles SIGTERM itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.usefixtures("_as_on_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_keeps_what_is_done(cases, tmp_path, number):
    path = tmp_path / "run.jsonl"

    def answers(case):
        if case.sizes["m"] == 2:
            signal.raise_signal(number)
        return [timed(case)]

    cases.run.answers = answers
    result = call("run", "exp", "--set", "m=1,2,3", "--json", path, code=1)
    assert len(path.read_text().splitlines()) == 1
    assert re.search(r"^exp .* 1000 ", result.stdout, re.M)


def test_a_full_disk_ends_the_run_with_what_is_done_on_the_screen(cases):
    runner_result = CliRunner().invoke(bench, ["run", "exp", "--json", "/dev/full"])
    assert isinstance(runner_result.exception, OSError)
    assert runner_result.exception.filename == "/dev/full"
    assert re.search(r"^exp .* 1000 ", runner_result.stdout, re.M)


def test_cuda_needs_no_limits_of_the_cpu(cases, monkeypatch):
    monkeypatch.setattr(limits, "of", lambda *_: pytest.fail("measured"))
    cases.run.answers = lambda case: [case.failed("error", "DeviceError", "cuda: no driver")]
    text = call("run", "exp", "--target", "cuda", code=1).stdout
    assert "DeviceError: cuda: no driver" in text


def test_what_a_child_warns_of_is_said_again(cases):
    text = "tuning: v4.json: tuned on pentium4; the table is not used"
    cases.run.answers = lambda case: [timed(case, warnings=[text])]
    with pytest.warns(UserWarning, match=text):
        call("run", "exp")


def test_without_limits_the_run_goes_on(cases, monkeypatch):
    def broken(threads):
        raise runner.ChildError("crashed", "ended by SIGILL")

    monkeypatch.setattr(limits, "of", broken)
    result = call("run", "exp")
    assert "no limits: ended by SIGILL" in result.stderr
    assert re.search(r"^exp .* 1000 ", result.stdout, re.M)


def test_env(cases):
    text = call("env").stdout
    assert re.search(r"read memory \[GB/s\] +40\.0", text)
    assert re.search(r"AVX-512 float32 \[TFLOP/s\] +0\.500", text)
    report = json.loads(call("env", "--threads", 2, "--json").stdout)
    assert report["limits"] == [LIMITS]
    assert report["machine"]["cores"] >= 1


def test_env_says_when_it_was_disturbed(cases, monkeypatch):
    busy = {**LIMITS, "others_share": 0.5}
    monkeypatch.setattr(limits, "of", lambda threads, again: busy)
    assert "Measured while other processes were busy" in call("env").stdout


@pytest.fixture
def runs(cases, tmp_path):
    """Two files of rows: `log` takes half as long in the second, and `exp` as long as before."""
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, time in zip(paths, (1000.0, 500.0), strict=True):
        cases.run.answers = lambda case, time=time: [
            timed(case, time=time if case.name == "log" else 1000.0)
        ]
        call("run", "exp", "log", "--json", path)
    return paths


def test_compare(runs):
    a, b = runs
    text = call("compare", a, b).stdout
    assert re.search(r"^SAME +exp ", text, re.M)
    assert re.search(r"^FASTER +log .* x0\.500 \(0\.500 to 0\.500\)", text, re.M)
    assert "B takes 0.707 times as long as A" in text
    assert re.search(r"^SLOWER +log ", call("compare", b, a, code=1).stdout, re.M)
    report = json.loads(call("compare", a, b, "--json").stdout)
    assert [row["verdict"] for row in report["cases"]] == ["SAME", "FASTER"]
    assert call("compare", b, a, "--tolerance", 200).exit_code == 0


def test_compare_warns_of_other_machines_and_broken_lines(runs):
    a, b = runs
    b.write_text(re.sub('"cores": [0-9]+', '"cores": 4096', b.read_text()) + '{"schema"')
    result = call("compare", a, b)
    assert "different machines: cores" in result.stderr
    assert "1 unfinished lines were left out" in result.stderr


def test_compare_with_a_run_without_figures(runs, cases, tmp_path):
    cases.run.answers = lambda case: [case.failed("crashed", "ChildError", "ended by SIGSEGV")]
    path = tmp_path / "crashed.jsonl"
    call("run", "exp", "log", "--json", path, code=1)
    lines = call("compare", path, runs[0]).stdout.splitlines()
    assert re.match(r"UNSURE +exp .* no figures in A$", lines[0])
    text = call("compare", runs[0], path, code=1).stdout
    assert re.search(r"^BROKEN +exp ", text, re.M)
    assert text.endswith("\nNo case has a time in both A and B.\n")
    assert json.loads(call("compare", runs[0], path, "--json", code=1).stdout)["overall"] is None


def test_compare_of_an_unknown_implementation(runs):
    with pytest.raises(InputError, match="--impl: wanted one of heddle; got 'numpy'"):
        call("compare", *runs, "--impl", "numpy")


def test_plot(runs, tmp_path):
    text = call("plot", runs[0], "-o", tmp_path / "out").stdout
    names = ["roofline.svg", "bars.svg", "bench.html"]
    assert text.split() == [str(tmp_path / "out" / name) for name in names]
    assert all((tmp_path / "out" / name).stat().st_size for name in names)


@pytest.mark.parametrize("command", ["compare", "plot"])
@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"name": None}, "one without name"),
        ({"status": None}, "one without status"),
        ({"shape": "m=4"}, "one with 'm=4' as shape"),
        ({"environment": None}, "one with None as environment"),
        ({"flags": "busy"}, "one with 'busy' as flags"),
        ({"environment": {"host": "here"}}, "one whose environment has no cpu"),
        ({"turns_us": None}, "one with None among its times"),
        ({"turns_us": []}, "one with None among its times"),
        ({"turns_us": [1.0, float("nan")]}, "one with nan among its times"),
        ({"time_us": 0.0}, "one with 0.0 among its times"),
        ({"time_us": "1"}, "one with '1' among its times"),
    ],
)
def test_rows_of_something_else(runs, tmp_path, command, change, got):
    row = {**json.loads(runs[0].read_text().splitlines()[0]), **change}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({name: value for name, value in row.items() if value is not None}))
    files = [str(path)] * (2 if command == "compare" else 1)
    result = CliRunner().invoke(bench, [command, *files])
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"{path}: wanted rows of the bench, got {got}"


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("run", "exp"), "--max-time"),
        (("tune", "exp"), "--max-time"),
        (("compare", "a", "b"), "--tolerance"),
    ],
)
def test_numbers_are_finite(arguments, option, value):
    result = CliRunner().invoke(bench, [*arguments, option, value])
    assert result.exit_code == 2
    wanted = f"Error: Invalid value for '{option}': wanted a finite number, got {value}\n"
    assert result.stderr.endswith(wanted)
