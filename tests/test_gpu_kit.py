"""The script for machines with a GPU, tried on the CPU: what it makes, checks and refuses."""

import fcntl
import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from heddle.graph import DType, rounding

WORKLOADS = (
    "softmax",
    "matmul",
    "quantized_matmul_8",
    "quantized_matmul_float8",
    "paged_write",
    "cast",
)


@pytest.fixture(scope="module")
def scripts():
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    try:
        yield importlib.import_module("gpu_kit"), importlib.import_module("gpu")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def kit(scripts, tmp_path_factory):
    """The folder of a small kit, which the first of several workers makes for all."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "kit.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "kit").exists():
            make(scripts[0], shared / "unfinished").rename(shared / "kit")
    return shared / "kit"


def make(gpu_kit, folder):
    folder.mkdir(exist_ok=True)
    timed = [
        ("matmul", "bfloat16", {"m": 8, "n": 64, "k": 32}),
        ("paged_attention_float8", "bfloat16", {"b": 2, "t": 32, "h": 2, "g": 1, "d": 8}),
    ]
    with pytest.MonkeyPatch.context() as patch:  # as little as shows everything
        patch.setattr(gpu_kit, "SMALL", gpu_kit.SMALL[:1])
        patch.setattr(gpu_kit, "LARGER", (("matmul", "bfloat16", {"m": 30, "n": 52, "k": 20}),))
        gpu_kit.make(folder, WORKLOADS, timed, None)
    return folder


def test_a_kit_holds_what_its_checks_expect(scripts, kit, capsys):
    rows = scripts[1].check_all(scripts[1].Kit(kit, "cpu"))
    step = {"rope", "cache", "queries", "keys", "values", "gated"}
    assert {name for row in rows for name in row["name"].split()} == {*WORKLOADS, *step}
    assert {row["dtype"] for row in rows} >= {"float32", "float16", "bfloat16", "float8_e4m3fn"}
    assert all(0 <= row["error"] < 0.02 and not row["failed"] for row in rows)
    assert f"checks: {len(rows)}, of which 0 failed" in capsys.readouterr().out


def test_timings_run_on_operands_that_are_drawn(scripts, kit):
    """Those that say where rows are come with the kit."""
    operands, made = importlib.import_module("gpu_operands"), scripts[1].Kit(kit, "cpu")
    for case in made.content["timings"]:
        arrays = operands.drawn(case, 1, made.held(case))
        pairs = list(zip(arrays, case["operands"], strict=True))
        weights = [operands.buffer(a, o["dtype"]) for a, o in pairs if o["weight"]]
        model = made.load(case, {f"w{i}": weight for i, weight in enumerate(weights)})
        (result,) = model.execute(
            *(made.buffer(a, o["dtype"]) for a, o in pairs if not o["weight"])
        )
        values = operands.floats(result.to_numpy(), case["results"][0]["dtype"])
        assert np.isfinite(values).all()
        assert values.any()


def test_large_operands_repeat_what_is_drawn(scripts):
    operands = importlib.import_module("gpu_operands")
    shape = (3, operands.MOST_DRAWN // 2)
    operand = {"dtype": "float32", "shape": shape, "values": "positive"}
    (found,) = operands.drawn({"operands": [operand]}, 0, {})
    flat = found.reshape(-1)
    np.testing.assert_array_equal(flat[operands.MOST_DRAWN :], flat[: -operands.MOST_DRAWN])
    assert found.shape == shape
    assert (found > 0).all()
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.float8_e4m3fn, DType.float8_e5m2])
def test_bits_have_the_values_that_heddle_gives_them(scripts, dtype):
    operands = importlib.import_module("gpu_operands")
    codes = np.arange(256, dtype=dtype.to_bits()) << 8 * (dtype is DType.bfloat16)
    found = operands.floats(codes, dtype.name)
    np.testing.assert_array_equal(found, rounding.loaded(codes, dtype))
    finite = np.isfinite(found) & (found != 0)
    np.testing.assert_array_equal(operands.bits(found[finite], dtype.name), codes[finite])


def test_a_wrong_result_and_a_broken_artifact_are_named(scripts, kit, tmp_path, capsys):
    for path in kit.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = json.loads((kit / "kit.json").read_text())
    held = [case for case in content["checks"] if case["name"] != "matmul"]
    wrong, broken, other = (case["path"] for case in held[:3])
    with np.load(kit / f"{wrong}.npz") as arrays:
        changed = dict(arrays)
    changed["out0"] = changed["out0"] + 1
    np.savez(tmp_path / f"{wrong}.npz", **changed)
    (tmp_path / f"{broken}.heddle").write_bytes(b"HEDDLE")
    held[2]["fingerprint"] += 1
    (tmp_path / "kit.json").write_text(json.dumps(content))
    gpu, found = scripts[1], {}
    parts = {"checks": lambda: gpu.check_all(gpu.Kit(tmp_path, "cpu")), "steps": lambda: 1 // 0}
    failures = gpu.run_parts(parts, found, tmp_path / "found.json")
    assert len(failures) == 4
    printed = capsys.readouterr().out
    for text in (f"FAILED {wrong}", "allowed", f"FAILED {broken}", "ArtifactError"):
        assert text in printed
    assert f"FAILED {other}" in printed
    assert "operands: wanted those that NumPy" in printed
    assert failures[-1].startswith("steps: steps: ZeroDivisionError")
    assert json.loads((tmp_path / "found.json").read_text()) == found


def test_one_file_has_the_kit_and_what_builds_the_runtime(scripts, kit, tmp_path):
    build = importlib.import_module("gpu_build")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "kit.json").write_text("{}")
    scripts[0].pack(tmp_path / "files", tmp_path / "kit.tar.xz")
    folder = build.unpacked(tmp_path / "kit.tar.xz", tmp_path / "there")
    assert (folder / "kit.json").read_text() == "{}"
    assert (folder / "nanobind" / "cmake" / "nanobind-config.cmake").exists()
    assert (folder / "nanobind" / "ext" / "robin_map").exists()
    assert build.unpacked(kit, tmp_path / "there") == kit


def test_what_numpy_computes_there_is_not_carried(kit):
    content = json.loads((kit / "kit.json").read_text())
    (products,) = {
        (kit / f"{c['path']}.npz").exists() for c in content["checks"] if c["name"] == "matmul"
    }
    assert not products


def test_each_sanitizer_runs_the_checks(scripts, tmp_path, monkeypatch, capsys):
    """Beside a program in place of compute-sanitizer, which finds a race."""
    sanitizer = importlib.import_module("gpu_sanitizer")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sanitizer.watch(tmp_path, tmp_path, "cuda", 60) == []
    assert "compute-sanitizer is not on PATH" in capsys.readouterr().out
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "race = sys.argv[2] == 'racecheck'\n"
        "assert sys.argv[8:10] == ['--only', 'checks'], sys.argv\n"
        "print('========= ' + ('Error: Race reported' if race else 'ERROR SUMMARY: 0 errors'))\n"
        "sys.exit(int(sys.argv[4]) if race else 3 if sys.argv[2] == 'synccheck' else 0)\n"
    )
    program.chmod(0o755)
    rows = sanitizer.watch(tmp_path, tmp_path, "cuda", 60)
    assert [row["name"] for row in rows] == ["memcheck", "racecheck", "synccheck"]
    assert [len(row["failed"]) for row in rows] == [0, 1, 1]
    assert rows[1]["failed"] == rows[1]["reports"] == ["========= Error: Race reported"]
    assert "ERROR SUMMARY" in rows[2]["failed"][0]


def test_a_timing_says_what_it_moves(kit):
    row, _ = json.loads((kit / "kit.json").read_text())["timings"]
    assert row["bytes"] == 2 * (8 * 32 + 32 * 64 + 8 * 64)
    assert row["operations"] == 2 * 8 * 32 * 64
    assert (kit / f"{row['path']}.heddle").exists()
