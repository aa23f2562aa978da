"""Cases: what is built, checked and timed."""

import re

import numpy as np
import pytest
from bench_cases import SMALL, small

from heddle.graph import DType
from heddle.graph.ops import ROWS
from heddle.kernels import tuning
from heddle.pipelines.bench import baselines, case, data, workloads
from heddle.pipelines.bench.accuracy import error_of
from heddle.pipelines.bench.case import Case, run, run_safely
from heddle.runtime import accelerator_count
from heddle.runtime.errors import GraphError, InputError

# Workloads


def test_every_op_can_be_benched():
    covered = {workload.op for workload in workloads.WORKLOADS.values()}
    # A reshape renames a buffer: there is no kernel to time.
    assert {row.name for row in ROWS.values() if row.public} - covered == {"reshape"}


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_workloads_build_and_have_a_cost(name):
    workload = workloads.find(name)
    sizes = workloads.grid(workload, {})[0]
    assert workload.dtypes()
    dtype = workloads.dtype_of(workload, None)
    result = workload.result(sizes, dtype)
    graph = workload.graph(sizes, dtype)
    assert int(workload.cost(sizes, dtype).written) == data.total_bytes([result])
    weights = sum(operand.weight for operand in workload.operands)
    assert len(graph.weights) == weights
    assert len(graph.inputs) == len(workload.operands) - weights


def test_the_grid_has_every_combination():
    found = workloads.grid(workloads.find("matmul"), {"m": (1, 2), "k": (3,)})
    assert found == [{"m": 1, "k": 3, "n": 2048}, {"m": 2, "k": 3, "n": 2048}]


def test_the_dtype_is_float32_where_the_op_takes_it():
    assert workloads.dtype_of(workloads.find("exp"), None) is DType.float32
    assert workloads.dtype_of(workloads.find("logical_not"), None) is DType.bool
    assert workloads.find("random_uniform").dtypes() == ["int64"]


def test_unknown_names_list_what_exists():
    with pytest.raises(InputError, match=r"kernel: wanted one of .*softmax.*; got 'nope'"):
        workloads.find("nope")
    with pytest.raises(InputError, match="exp: --set: wanted one of m, n; got 'q'"):
        workloads.grid(workloads.find("exp"), {"q": (1,)})
    message = "exp: --dtype: wanted one of float16, bfloat16, float32, float64; got 'int8'"
    with pytest.raises(InputError, match=message):
        workloads.dtype_of(workloads.find("exp"), "int8")
    with pytest.raises(
        InputError, match="--baseline: wanted one of numpy, torch, onednn, cublas; got 'x'"
    ):
        baselines.check("x")


# Data


@pytest.mark.parametrize(
    ("name", "dtype", "text"),
    [
        ("exp", "float32", "normal"),
        ("log", "float32", "|normal| + 0.001"),
        ("add", "int8", "uniform"),
        ("where", "float32", "uniform, normal"),
        ("gather", "float32", "normal, uniform below rows"),
    ],
)
def test_inputs_are_drawn_as_the_row_says(name, dtype, text):
    workload = workloads.find(name)
    arrays = data.draw(workload, SMALL, DType[dtype], "normal")
    assert data.described(workload, DType[dtype], "normal") == text
    again = data.draw(workload, SMALL, DType[dtype], "normal")
    for array, same, operand in zip(arrays, again, workload.operands, strict=True):
        np.testing.assert_array_equal(array, same)
        assert array.std() > 0
        assert operand.values == "normal" or array.min() >= 0
        assert operand.values != "index" or array.max() < SMALL["rows"]


def test_zeros_are_zeros_but_indices_are_not():
    table, indices = data.draw(workloads.find("gather"), SMALL, DType.float32, "zeros")
    assert not table.any()
    assert indices.any()
    assert data.described(workloads.find("gather"), DType.float32, "zeros") == "zeros"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int64"])
def test_buffers_keep_values(dtype):
    (array,) = data.draw(workloads.find("cast"), SMALL, DType[dtype], "normal")
    buffer = data.buffer_of(array, DType[dtype])
    assert buffer.dtype == dtype
    np.testing.assert_array_equal(data.array_of(buffer, DType[dtype]), array)


def test_how_many_sets_a_cold_run_has():
    assert data.sets_wanted(1000, 1000, 16_000, False) == 64
    assert data.sets_wanted(10**9, 10**9, 32_000, False) == 2
    assert data.sets_wanted(16, 16, 32 * 2**20, False) == data.MOST_SETS
    assert data.sets_wanted(16, 16, 32 * 2**20, True) == data.MOST_WEIGHTS
    assert data.sets_wanted(10**6, 1000, 16_000, False) == 64
    assert data.sets_wanted(2**30, 1000, 32_000, False) == 4
    assert data.sets_wanted(2**40, 1000, 32_000, False) == 2


def test_a_table_of_which_little_is_picked_does_not_count_as_used(monkeypatch):
    """64 KiB of each call's 8 MiB: what the cache holds is measured by these."""
    monkeypatch.setattr(case.machine, "last_cache", lambda threads: 2**19)
    found = Case("gather", {"rows": 8192, "m": 32, "n": 256}, cache="cold", max_time=0.001)
    (row,) = run(found)
    used = 32 * (2 * 256 * 4 + 8)
    assert row["sets"] == -(-(2**21) // used)
    assert row["rotated_bytes"] == row["sets"] * used >= 2**21
    assert "short-rotation" not in row["flags"]
    monkeypatch.setattr(case.data, "MOST_BYTES", 100 * 2**20)
    (row,) = run(found)
    assert row["sets"] == 12
    assert "short-rotation" in row["flags"]


def test_a_cache_of_unknown_size_is_perhaps_not_left(monkeypatch):
    monkeypatch.setattr(case.machine, "last_cache", lambda threads: 0)
    (row,) = run(small("exp", cache="cold"))
    assert "short-rotation" in row["flags"]
    (row,) = run(small("exp"))
    assert "short-rotation" not in row["flags"]


def test_errors_are_relative_to_the_typical_element():
    wanted = np.array([3.0, -4.0, 0.0, np.nan, np.inf])[:3]
    assert error_of(wanted, wanted) == 0
    typical = np.sqrt(25 / 3)
    assert error_of(wanted + np.array([0, 0, 0.1]), wanted) == pytest.approx(0.1 / typical)
    assert error_of(wanted + np.array([0.3, 0, 0]), wanted) == pytest.approx(0.1)
    assert error_of(np.array([np.nan, 1]), np.array([1.0, 1])) == np.inf
    assert error_of(np.array([np.nan, 1]), np.array([np.nan, 1])) == 0
    assert error_of(np.zeros(0), np.zeros(0)) == 0


def test_tolerances():
    assert data.tolerance(DType.int32, 5, 1) == 0
    plain = [data.tolerance(DType[name], 1, 1) for name in ("float64", "float32", "bfloat16")]
    assert plain == sorted(plain)
    assert data.tolerance(DType.float32, 10_000, 1) > 10 * plain[1]


# Cases


def test_a_case_with_a_baseline():
    ours, peer = run(small("softmax", baselines=("numpy",), threads=2, cache="cold"))
    assert [ours["impl"], peer["impl"]] == ["heddle", "numpy"]
    for row in (ours, peer):
        assert row["status"] == "ok"
        assert row["shape"] == {"m": 3, "n": 40, "axis": 1}
        assert row["max_error"] <= row["tolerance"]
        assert row["ci_us"][0] <= row["time_us"] <= row["ci_us"][1]
        assert row["sets"] > 1
        assert row["inputs"] == "normal"
        assert "short-rotation" in row["flags"]
        assert row["bytes_read"] == row["bytes_written"] == 3 * 40 * 4
        assert row["ratio"] == pytest.approx(peer["time_us"] / ours["time_us"])
        assert ("reference" in row["flags"]) is (row is peer)
    assert ours["arch"]


def test_weights_are_bound_at_load():
    (row,) = run(small("matmul", cache="cold"))
    assert row["status"] == "ok"
    assert row["sets"] == data.MOST_WEIGHTS


@pytest.mark.parametrize("name", ["gather", "slice"])
def test_results_are_checked_against_the_reference(name):
    ours, peer = run(small(name, baselines=("numpy",)))
    assert ours["status"] == peer["status"] == "ok"
    assert "reference" not in peer["flags"]
    assert peer["max_error"] <= peer["tolerance"]


def test_the_best_of_rows_can_be_benched():
    sizes = {"m": 3, "n": 40, "k": 5}
    ours, peer = run(Case("top_k", sizes, verify=True, max_time=0.001, baselines=("numpy",)))
    assert (ours["status"], ours["max_error"]) == ("ok", 0)
    assert peer["max_error"] == 0
    assert ours["bytes_written"] == 3 * 5 * 8


def test_a_wrong_result_is_a_row(monkeypatch):
    monkeypatch.setattr(case.data, "tolerance", lambda *_: -1.0)
    (row,) = run(small("exp"))
    assert row["status"] == "wrong"


def test_flags(monkeypatch):
    monkeypatch.setattr(case, "BUSY", -1.0)
    (row,) = run(small("exp", inputs="zeros", threads=1000))
    assert {"zeros", "busy", "oversubscribed", "noisy"} <= set(row["flags"])


def test_errors_are_rows():
    (row,) = run_safely(Case("nope", {}))
    assert (row["status"], row["error"]["type"]) == ("error", "InputError")
    with pytest.raises(GraphError):
        workloads.find("sum").result({**SMALL, "axis": 5}, DType.float32)
    (row,) = run_safely(Case("sum", {"m": 3, "n": 4, "axis": 5}))
    assert row["status"] == "error"


def test_cuda_without_a_gpu_has_no_figures():
    if accelerator_count():
        pytest.skip("there is a GPU")
    (row,) = run_safely(small("exp", target="cuda"))
    assert (row["status"], row["error"]["type"]) == ("error", "DeviceError")
    assert "time_us" not in row


def test_a_tuning_table_of_another_cpu_is_not_used_and_the_row_says_so(monkeypatch, tmp_path):
    table = tuning.Table("x86-64-v4", "pentium4", "Pentium")
    (tmp_path / "x86-64-v4.json").write_text(table.to_json())
    monkeypatch.setenv("HEDDLE_TUNING", str(tmp_path))
    (row,) = run_safely(small("transpose"))
    assert row["status"] == "ok"
    (text,) = row["warnings"]
    assert re.match(r"tuning: x86-64-v4.json: tuned on pentium4 .*; the table is not used", text)
    monkeypatch.delenv("HEDDLE_TUNING")
    assert "warnings" not in run_safely(small("transpose"))[0]
