"""What a GPU can do, beside the rows of its kernels; a child's answers are the test's own."""

import json
import re

import pytest
from click.testing import CliRunner

from heddle.pipelines.bench import gpu_limits, judge, limits, runner
from heddle.pipelines.cli.bench import bench

GPU = {
    "gpu": "NVIDIA H200",
    "l2_bytes": 50 << 20,
    "read_gb_s": {"L2": 8000.0, "memory": 4000.0},
    "copy_gb_s": {"L2": 8000.0, "memory": 4000.0},
    "tflop_s": {"FMA float32": 60.0, "wgmma bfloat16": 800.0, "wgmma float8": 1600.0},
    "call_us": 1.0,
    "others_share": 0.0,
}


ROW = {
    "cache": "cold",
    "flags": [],
    "threads": 16,
    "time_us": 20.0,
    "ci_us": [19.0, 21.0],
    "p95_us": 22.0,
    "rotated_bytes": 1_000_000,
    "bytes_read": 20_000_000,
    "bytes_written": 20_000_000,
    "operations": 80_000_000,
}


def call(*arguments):
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU, and what a child is asked about it."""
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path))
    device = {"name": "NVIDIA H200", "l2_bytes": 50 << 20}
    monkeypatch.setattr(gpu_limits, "gpu", lambda: device)
    here = {"others_share": 0.0, "call_us": 1.0, "date": "2026-01-01", "tflop_s": {}}
    here |= {"read_gb_s": {"memory": 1.0}, "copy_gb_s": {"memory": 1.0}}
    monkeypatch.setattr(limits, "of", lambda threads, again=False: {"threads": threads, **here})
    asked = []
    monkeypatch.setattr(runner, "ask", lambda request, *_: asked.append(request) or dict(GPU))
    return asked


def test_env_of_a_gpu(gpu):
    text = call("env").stdout
    for line in (
        r"NVIDIA H200 *\n",
        r"copy memory \[GB/s\] +4000 +4800 *\n",
        r"FMA float32 \[TFLOP/s\] +60.0 +67 *\n",
        r"wgmma bfloat16 \[TFLOP/s\] +800.0 +989 *\n",
        r"call in a graph \[us\] +1.000",
    ):
        assert re.search(line, text), text
    report = json.loads(call("env", "--json").stdout)
    assert report["gpu"] == {**GPU, "measured": 1, "date": report["gpu"]["date"]}
    assert report["gpu_datasheet"]["memory_gb_s"] == 4800
    assert gpu == [{"gpu": 0, "threads": 1}]


def test_an_unknown_gpu_has_no_datasheet(gpu, monkeypatch):
    monkeypatch.setitem(GPU, "gpu", "Fake 0")
    assert re.search(r"wgmma bfloat16 \[TFLOP/s\] +800.0\s*\n", call("env").stdout)
    assert json.loads(call("env", "--json").stdout)["gpu_datasheet"] is None


def test_rows_of_a_gpu_are_judged_by_its_limits(gpu, monkeypatch):
    monkeypatch.setattr(runner, "run", lambda case: [{**case.row("heddle", "ok"), **ROW}])
    result = call("run", "exp", "--target", "cuda")
    assert "measuring this machine's limits first" in result.stderr
    assert re.search(r"^exp .* 2000 +50% ", result.stdout, re.M)
    assert "limits" not in call("run", "exp", "--target", "cuda").stderr
    assert len(gpu) == 1


def test_a_run_says_that_it_measures_disturbed_limits_again(gpu, monkeypatch):
    monkeypatch.setattr(runner, "run", lambda case: [{**case.row("heddle", "ok"), **ROW}])
    monkeypatch.setitem(GPU, "others_share", 0.5)
    said = [call("run", "exp", "--target", "cuda").stderr for _ in range(4)]
    assert "limits first; they are kept" in said[0]
    assert all("limits again: others were busy meanwhile" in text for text in said[1:3])
    assert "limits" not in said[3]
    assert len(gpu) == 3


@pytest.mark.parametrize(
    ("changes", "level", "share"),
    [
        ({}, "memory", 0.5),
        ({"cache": "warm"}, "L2", 0.25),
        ({"rotated_bytes": 10**9}, "memory", 0.5),
    ],
)
def test_rows_of_a_gpu_have_shares_of_its_bandwidth(changes, level, share):
    case = {**ROW, "name": "exp", "op": "exp", "dtype": "float32", "device": "cuda", **changes}
    made = judge.judged(case, GPU, gpu_limits.levels(GPU))
    assert made["level"] == level
    assert made["gb_s_share"] == pytest.approx(share)
    assert made["bound"] == "memory"


@pytest.mark.parametrize(
    ("op", "dtype", "peak"),
    [
        ("exp", "bfloat16", 60.0),
        ("matmul", "float32", 60.0),
        ("matmul", "bfloat16", 800.0),
        ("attention", "bfloat16", 800.0),
        ("float8_matmul", "float8_e5m2", 1600.0),
    ],
)
def test_tensor_cores_are_the_limit_of_products(op, dtype, peak):
    assert judge.peak_tflops({"op": op, "dtype": dtype}, GPU) == peak
