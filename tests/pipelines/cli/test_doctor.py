"""`heddle doctor`."""

import importlib
import json
import sys

import pytest

from heddle.graph import DType, Graph, TensorType, compile
from heddle.runtime import config

module = importlib.import_module("heddle.pipelines.cli.doctor")  # the package has the command

CPU = {
    "cpu": {"levels": [{"level": "high", "missing": ["amx"]}, {"level": "low", "missing": []}]},
    "cuda": {"problem": "", "devices": [{"capability": "9.0"}]},
}


def test_this_machine(heddle):
    text = heddle("doctor").stdout
    for part in ("x86-64-v3", "cores", "CUDA", "Compiling for", "HEDDLE_CACHE"):
        assert part in text, part


def test_what_levels_lack_is_wrapped(heddle, monkeypatch):
    features = [f"feature{number}" for number in range(40)]
    report = module.machine()
    report["cpu"]["levels"][0]["missing"] = features
    monkeypatch.setattr(module, "machine", lambda: report)
    text = heddle("doctor").stdout.split("CUDA:")[0]
    assert max(map(len, text.splitlines())) <= 100
    assert [word.rstrip(",") for word in text.split() if "feature" in word] == features


def test_the_settings_are_as_wide_as_other_tables(heddle):
    lines = heddle("doctor").stdout.partition("Settings")[2].splitlines()
    assert max(map(len, lines)) <= 100
    for row in config.SETTINGS:
        assert any(line.startswith(row.name) for line in lines), row.name


def test_json(heddle, monkeypatch):
    monkeypatch.setenv("HEDDLE_THREADS", "7")
    report = json.loads(heddle("doctor", "--json").stdout)
    assert [row["level"] for row in report["cpu"]["levels"]][-1] == "x86-64-v3"
    assert [row["target"] for row in report["targets"]] == ["cpu", "cuda"]
    settings = {row["name"]: row["value"] for row in report["settings"]}
    assert settings["HEDDLE_THREADS"] == "7"
    assert settings.keys() == {row.name for row in config.SETTINGS}


def test_a_setting_that_will_be_refused(heddle, monkeypatch):
    monkeypatch.setenv("HEDDLE_JOBS", "abc")
    problem = "HEDDLE_JOBS: wanted a number of 0 or more, got 'abc'"
    report = json.loads(heddle("doctor", "--json").stdout)
    assert [row["problem"] for row in report["settings"] if row["problem"]] == [problem]
    assert problem in heddle("doctor").stdout


def test_what_an_artifact_needs(heddle, tiny_artifact):
    report = json.loads(heddle("doctor", tiny_artifact, "--json").stdout)
    (row,) = report["artifact"]["targets"]
    assert row["runs"]
    assert row["code"] in row["any_of"]
    assert row["code"] in heddle("doctor", tiny_artifact).stdout


def test_an_artifact_that_cannot_run_here(heddle, tiny_artifact, monkeypatch):
    monkeypatch.setattr(module, "cpu_code", lambda archs, report: (None, "it needs more"))
    assert "no: it needs more" in heddle("doctor", tiny_artifact, code=1).stdout


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(module, "has_bindings", lambda: False)
    monkeypatch.setattr(module, "installed", lambda package: package == "llvmlite")
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert module.compiling() == {
        "cpu": ["torch-mlir", "pyelftools"],
        "cuda": ["torch-mlir", "pyelftools", "nvidia-cuda-nvcc or ptxas"],
    }


def test_bindings_of_any_package_will_do(monkeypatch):
    monkeypatch.setattr(module, "installed", lambda package: package != "torch-mlir")
    assert module.compiling()["cpu"] == []
    monkeypatch.setitem(sys.modules, "heddle.kernels", None)
    assert module.compiling()["cpu"] == ["torch-mlir"]


def test_installed():
    assert module.installed("numpy")
    assert not module.installed("no-such-package-anywhere")


@pytest.mark.parametrize(
    ("archs", "code", "problem"),
    [
        (["low", "high"], "low", ""),
        (["high"], None, "high needs amx"),
        (["other"], None, "other needs other"),
    ],
)
def test_cpu_code(archs, code, problem):
    assert module.cpu_code([(arch, "image") for arch in archs], CPU) == (code, problem)


BOTH = [("sm_80", "cubin"), ("sm_80", "ptx"), ("sm_90a", "cubin"), ("sm_90a", "ptx")]


@pytest.mark.parametrize(
    ("codes", "capability", "code"),
    [
        (BOTH, "9.0", "sm_90a"),
        (BOTH, "8.0", "sm_80"),
        (BOTH, "8.6", "sm_80"),
        (BOTH, "10.0", "sm_80 (PTX)"),
        (BOTH, "7.5", None),
        (BOTH[:1], "9.0", None),
        (BOTH[2:], "10.0", None),
    ],
)
def test_cuda_code(codes, capability, code):
    report = {"cuda": {"problem": "", "devices": [{"capability": capability}]}}
    found, problem = module.cuda_code(codes, report)
    assert found == code
    assert problem == ("" if code else f"the GPU has compute capability {capability}")


def test_cuda_code_without_a_gpu():
    assert module.cuda_code(BOTH, {"cuda": {"problem": "no driver"}}) == (None, "no driver")
    report = {"cuda": {"problem": "", "devices": []}}
    assert module.cuda_code(BOTH, report) == (None, "there is a driver, but no GPU")


def test_code_counts_where_every_kernel_has_it():
    def kernel(*codes):
        return {"codes": [{"arch": arch, "format": form} for arch, form in codes]}

    assert module.codes_of_all([kernel(*BOTH), kernel(BOTH[1], BOTH[2])]) == BOTH[1:3]
    assert module.codes_of_all([kernel(BOTH[0]), kernel(BOTH[1])]) == []
    assert module.codes_of_all([]) is None


def test_an_artifact_without_kernels_runs_on_every_device(heddle, tmp_path):
    with Graph("same", [TensorType(DType.float32, [3])]) as graph:
        graph.output(graph.inputs[0])
    path = tmp_path / "same.heddle"
    compile(graph, ["cpu", "cuda"]).save(path)
    report = module.machine()
    for problem, code in (("no driver", None), ("", "any")):
        report["cuda"] = {**CPU["cuda"], "problem": problem}
        rows = module.fitness(path, report)["targets"]
        assert [row["code"] for row in rows] == ["any", code]
    heddle("doctor", path)


def test_kernels_that_share_no_code(heddle, tiny_artifact, monkeypatch):
    monkeypatch.setattr(module, "codes_of_all", lambda kernels: [])
    assert "no: its kernels share no code" in heddle("doctor", tiny_artifact, code=1).stdout
