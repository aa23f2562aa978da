"""The script for machines with a GPU, tried on the CPU: what it makes, checks and refuses."""

import fcntl
import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from heddle.graph import DType, rounding
from heddle.pipelines.bench import data, workloads

WORKLOADS = (
    "softmax",
    "matmul",
    "quantized_matmul_8",
    "quantized_matmul_float8",
    "paged_attention_latents",
    "paged_write",
    "cast",
)


@pytest.fixture(scope="module")
def scripts(script):
    return script("gpu_kit"), script("gpu")


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
        shares = [gpu_kit.make(folder, WORKLOADS, timed, None, (i, 2)) for i in range(2)]
        gpu_kit.finish(folder, shares)
    return folder


def check_all(gpu, folder):
    kit = gpu.Kit(folder, "cpu")
    return [row for case in kit.content["checks"] for row in gpu.checked(kit, case)]


def test_a_kit_holds_what_its_checks_expect(scripts, kit):
    rows = check_all(scripts[1], kit)
    step = {"rope", "cache", "queries", "keys", "values", "gated"}
    assert {name for row in rows for name in row["name"].split()} == {*WORKLOADS, *step}
    assert {row["dtype"] for row in rows} >= {"float32", "float16", "bfloat16", "float8_e4m3fn"}
    assert all(0 <= row["error"] < 0.02 and not row["failed"] for row in rows)


def test_timings_run_on_operands_that_are_drawn(scripts, kit):
    """Those that say where rows are come with the kit."""
    operands, made = importlib.import_module("gpu_operands"), scripts[1].Kit(kit, "cpu")
    for case in made.content["timings"]:
        model, inputs, _ = made.prepared(case, operands.drawn(case, 1, made.held(case)))
        (result,) = model.execute(*inputs)
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
    failed = [text for row in check_all(scripts[1], tmp_path) for text in row["failed"]]
    assert len(failed) == 4  # A wrong result is wrong by each of two ways.
    printed = capsys.readouterr().out
    for text in (f"FAILED {wrong}", "allowed", f"FAILED {broken}", "ArtifactError"):
        assert text in printed
    assert f"FAILED {other}" in printed
    assert "operands: wanted those that NumPy" in printed


def test_answers_are_written_as_they_come(scripts, tmp_path, capsys):
    def answers():
        yield [{"name": "fine"}]
        assert json.loads((tmp_path / "found.json").read_text())["checks"] == [{"name": "fine"}]
        yield [{"name": "bad", "failed": ["wrong"]}]

    found = {}
    failures = scripts[1].run_parts({"checks": answers()}, found, tmp_path / "found.json")
    assert failures == ["checks: bad: wrong"]
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert "checks: 2, of which 1 failed" in capsys.readouterr().out


@pytest.fixture
def child(scripts, tmp_path):
    """The module, and what makes a command of a child that runs `each` for each of its items."""
    module = importlib.import_module("gpu_child")

    def command(each, start=""):
        script = tmp_path / "child.py"
        script.write_text(
            f"import os, sys, time\nsys.path.insert(0, {str(Path(module.__file__).parent)!r})\n"
            f"import gpu_child\n{start}\ngpu_child.ready()\n"
            f"for item in range(int(sys.argv[2]), 4):\n    {each}\n"
            "    gpu_child.answer([{'name': str(item)}])\n"
        )
        return [sys.executable, script]

    return module, command


def limits(module, seconds=60.0, silent_s=30.0):
    return module.Limits(silent_s, time.monotonic() + seconds)


NAMES = ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("each", "why"),
    [
        ("item == 1 and (print('a fault', flush=True), os._exit(3))", "status 3: a fault"),
        ("item == 1 and (print('a fault', flush=True), time.sleep(60))", "silent for 2 s: a fault"),
    ],
)
def test_a_child_that_fails_is_replaced(child, each, why):
    module, command = child
    rows = list(module.answers(command(each), NAMES, limits(module, silent_s=2.0)))
    assert [row["name"] for (row,) in rows] == NAMES
    assert [name for name, (row,) in zip(NAMES, rows, strict=True) if "failed" in row] == ["1"]
    assert why in rows[1][0]["failed"][0]


def test_behind_a_silent_child_others_have_half_the_time(child):
    module, command = child
    each = "item in (1, 2) and time.sleep(60)"
    rows = list(module.answers(command(each), NAMES, limits(module, silent_s=4.0)))
    texts = [text for (row,) in rows for text in row.get("failed", ())]
    assert [text.rstrip(" :") for text in texts] == [
        "item 1 of 4: its process was silent for 4 s",
        "item 2 of 4: its process was silent for 2 s",
    ]


def test_a_child_may_end_behind_an_answer(child):
    """As one does that has lost its device."""
    module, command = child
    each = "int(sys.argv[2]) < item and os._exit(1)"
    rows = list(module.answers(command(each), NAMES, limits(module)))
    assert rows == [[{"name": name}] for name in NAMES]


def test_nothing_is_asked_of_a_child_that_cannot_start(child):
    module, command = child
    (rows,) = module.answers(command("pass", "raise OSError('no driver')"), NAMES, limits(module))
    assert "no driver" in rows[0]["failed"][0]


def test_answers_end_in_time(child, capsys):
    module, command = child
    start = time.monotonic()
    rows = list(module.answers(command("item == 1 and time.sleep(60)"), NAMES, limits(module, 4)))
    assert rows == [[{"name": "0"}]]
    assert time.monotonic() - start < 20
    assert "time is over, without 3 of 4" in capsys.readouterr().out


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


def test_each_sanitizer_watches_the_checks(child, tmp_path, monkeypatch, capsys):
    """Beside a program in place of compute-sanitizer, which finds a race."""
    module, command = child
    sanitizer = importlib.import_module("gpu_sanitizer")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sanitizer.watch(command("pass"), NAMES, limits(module)) == []
    assert "compute-sanitizer is not on PATH" in capsys.readouterr().out
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "print('========= COMPUTE-SANITIZER', flush=True)\n"
        "assert sys.argv[3:5] == ['--report-api-errors', 'no']\n"
        "subprocess.run(sys.argv[5:])\n"
        "race = sys.argv[2] == 'racecheck'\n"
        "print('========= ' + ('Error: Race reported' if race else 'ERROR SUMMARY: 0 errors'))\n"
    )
    program.chmod(0o755)
    rows = sanitizer.watch(command("pass"), NAMES, limits(module))
    assert [row["name"] for row in rows] == ["memcheck", "racecheck", "synccheck"]
    assert [row["checks"] for row in rows] == [4, 4, 4]
    assert [row["failed"] for row in rows] == [[], ["========= Error: Race reported"], []]


def test_a_timing_says_what_it_moves(kit):
    row, _ = json.loads((kit / "kit.json").read_text())["timings"]
    assert row["bytes"] == 2 * (8 * 32 + 32 * 64 + 8 * 64)
    assert row["operations"] == 2 * 8 * 32 * 64
    assert (kit / f"{row['path']}.heddle").exists()


def test_products_of_8_bit_floats_are_allowed_what_14_bits_lose():
    """As if each step of 32 products lost the last of 14 bits of a whole sum, the worst case."""
    workload = workloads.find("float8_matmul")
    for k in (64, 208, 1024):
        allowed = data.allowed(workload, {"m": 1, "n": 1, "k": k}, DType.float8_e4m3fn)
        assert k / 32 * 2**-14 < allowed < 0.01
