"""Rows on disk, beside the limits, and compared; no kernel runs here."""

import json
import math
import os
import resource

import pytest
from bench_cases import MACHINE, row

from heddle.pipelines.bench import judge, rows
from heddle.pipelines.bench.limits import better
from heddle.pipelines.bench.machine import Level
from heddle.runtime.errors import InputError

LEVELS = [Level("L1", 1000, 1), Level("L2", 10_000, 1), Level("L3", 100_000, 2)]
LIMITS = {
    "threads": 2,
    "read_gb_s": {"L1": 400.0, "L2": 200.0, "L3": 100.0, "memory": 40.0},
    "copy_gb_s": {"L1": 400.0, "L2": 200.0, "L3": 80.0, "memory": 50.0},
    "tflop_s": {"AVX-512 float32": 0.5, "AVX2 float32": 0.25, "AVX-512 float64": 0.2},
    "call_us": 0.3,
    "others_share": 0.0,
    "measured": 1,
}


# Files


def test_rows_come_back(tmp_path):
    path = tmp_path / "run.jsonl"
    with rows.Writer(path) as writer:
        writer.write({"name": "a"}, {"host": "b"})
    with rows.Writer(path) as writer:
        writer.write({"name": "c"}, {"host": "d"})
    assert rows.read(path) == (
        [
            {"schema": 1, "name": "a", "environment": {"host": "b"}},
            {"schema": 1, "name": "c", "environment": {"host": "d"}},
        ],
        0,
    )


def test_a_line_that_was_cut_off_is_counted_and_left_alone(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(row()) + '\n{"schema": 1, "na')
    with rows.Writer(path) as writer:
        writer.write({"name": "next"}, MACHINE)
    found, broken = rows.read(path)
    assert [each["name"] for each in found] == ["exp", "next"]
    assert broken == 1


def test_a_file_that_takes_a_part_of_a_row_is_as_it_was_before(tmp_path):
    path = tmp_path / "run.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with rows.Writer(path) as writer:
        writer.write({"name": "a"}, MACHINE)
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, hard))
        try:
            with pytest.raises(OSError, match="File too large") as caught:
                writer.write({"name": "b"}, MACHINE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before


def test_a_device_without_space():
    with rows.Writer(rows.Path("/dev/full")) as writer, pytest.raises(OSError, match="No space"):
        writer.write({"name": "a"}, MACHINE)


def test_rows_go_into_a_pipe():
    """Which is no file that could be brought to a disk."""
    reads, writes = os.pipe()
    with rows.Writer(rows.Path(f"/dev/fd/{writes}")) as writer:
        for name in "ab":
            writer.write({"name": name}, MACHINE)
    os.close(writes)
    with open(reads) as lines:
        assert [json.loads(line)["name"] for line in lines] == ["a", "b"]


def test_an_error_that_is_not_finite_is_a_text(tmp_path):
    path = tmp_path / "run.jsonl"
    with rows.Writer(path) as writer:
        writer.write({"name": "a", "max_error": math.inf}, MACHINE)

    def refuse(name):
        raise AssertionError(name)

    found = json.loads(path.read_text(), parse_constant=refuse)
    assert found["max_error"] == "Infinity"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wanted rows of 'heddle bench run --json', found none"),
        ('{"schema": 9}\n', ":1: wanted a row of schema 1, got 9"),
        ('{"schema": 1}\n7\n', ":2: wanted a row of schema 1, got None"),
    ],
)
def test_files_that_are_no_rows(tmp_path, text, message):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        rows.read(path)


def test_rows_of_one_case_are_pooled():
    first = row(turns_us=[1.0] * 9, time_us=1.0, flags=["busy"])
    second = row(turns_us=[2.0] * 7, time_us=2.0, flags=["noisy"], gb_s=10.0, gb_s_share=0.2)
    second |= {"ratio": 4.0, "p95_us": 2.5}
    other, lost = row(threads=1), {**row(cache="warm"), "status": "error"}
    del lost["time_us"]
    found = list(rows.pooled([first, other, second, lost]).values())
    assert found[0]["turns_us"] == [1.0] * 9 + [2.0] * 7
    assert (found[0]["time_us"], found[0]["ci_us"]) == (1.0, [1.0, 2.0])
    assert (found[0]["gb_s"], found[0]["gb_s_share"]) == (20.0, 0.4)
    assert found[0]["flags"] == ["busy", "noisy"]
    assert not {"ratio", "p95_us"} & found[0].keys()
    assert found[1]["turns_us"] == other["turns_us"]
    assert list(rows.timed(found)) == found[:2]


@pytest.mark.parametrize("status", ["wrong", "error", "crashed", "hung"])
def test_of_rows_of_one_case_one_that_failed_counts(status):
    for pair in ([row(), row(status=status)], [row(status=status), row()]):
        (found,) = rows.pooled(pair).values()
        assert found["status"] == status


def test_a_peer_that_was_missing_once_keeps_its_figures():
    missing = {"name": "exp", **row(status="missing")}
    del missing["turns_us"]
    for pair in ([row(), missing], [missing, row()]):
        (found,) = rows.pooled(pair).values()
        assert found["status"] == "ok"


def test_of_zeros_a_kernel_is_another_case():
    assert len(rows.pooled([row(), row(flags=["zeros", "busy"]), row(flags=["busy"])])) == 2


# Limits


def test_rates_and_what_binds():
    made = judge.judged(row(), LIMITS, LEVELS)
    assert made["gb_s"] == pytest.approx(40)
    assert made["tflop_s"] == pytest.approx(0.08)
    assert (made["level"], made["bound"]) == ("memory", "memory")
    assert made["gb_s_limit"] == pytest.approx(50)
    assert made["gb_s_share"] == pytest.approx(0.8)
    assert made["tflop_s_limit"] == 0.5
    assert made["tflop_s_share"] == pytest.approx(0.16)


def test_a_row_above_its_limit_says_that_this_is_none():
    assert judge.judged(row(flags=["busy"]), LIMITS, LEVELS)["flags"] == ["busy"]
    memory = judge.judged(row(flags=["busy"], bytes_read=35_000_000), LIMITS, LEVELS)
    assert (memory["gb_s_share"] > 1, memory["flags"]) == (True, ["busy", "above-limit"])
    compute = judge.judged(row(operations=6 * 10**8), LIMITS, LEVELS)
    assert (compute["tflop_s_share"] > 1, compute["flags"]) == (True, ["above-limit"])


def test_what_binds_products_of_integers_is_not_known_without_their_rate():
    product = row(op="integer_matmul", dtype="int8")
    assert judge.judged(product, LIMITS, LEVELS)["bound"] == ""
    rates = {**LIMITS, "tflop_s": {"AVX-512 int8": 2.0}}
    assert judge.judged(product, rates, LEVELS)["bound"] == "memory"
    assert judge.judged(row(op="add", dtype="int8"), LIMITS, LEVELS)["bound"] == "memory"


def test_compute_binds_where_it_takes_longer():
    assert judge.judged(row(operations=10**12), LIMITS, LEVELS)["bound"] == "compute"


def test_latency_binds_what_is_smaller_than_a_call():
    tiny = row(bytes_read=100, bytes_written=100, operations=10)
    assert judge.judged(tiny, LIMITS, LEVELS)["bound"] == "latency"


def test_reading_and_writing_have_their_own_limits():
    memory = {"memory": 1.0}
    read = judge.memory_seconds(row(bytes_written=0), LIMITS, memory)
    assert read == pytest.approx(20e6 / 40e9)
    written = judge.memory_seconds(row(bytes_read=0), LIMITS, memory)
    assert written == pytest.approx(20e6 / 50e9)
    mixed = judge.memory_seconds(row(bytes_written=5_000_000), LIMITS, memory)
    assert mixed == pytest.approx(10e6 / 50e9 + 15e6 / 40e9)


@pytest.mark.parametrize(
    ("cache", "rotated", "threads", "flags", "wanted"),
    [
        ("cold", 10, 1, [], {"memory": 1}),
        ("warm", 0, 1, [], {"L1": 1}),
        ("warm", 900, 1, [], {"L1": 1}),
        ("warm", 2000, 1, [], {"L1": 0.5, "L2": 0.5}),
        ("warm", 2000, 2, [], {"L1": 1}),
        ("warm", 80_000, 2, [], {"L1": 0.025, "L2": 0.25, "L3": 0.725}),
        ("warm", 222_000, 1, [], {"L1": 1 / 222, "L2": 10 / 222, "L3": 100 / 222, "memory": 0.5}),
        ("cold", 2000, 1, ["short-rotation"], {"L1": 0.5, "L2": 0.5}),
    ],
)
def test_where_the_buffers_of_a_case_are(cache, rotated, threads, flags, wanted):
    case = row(cache=cache, rotated_bytes=rotated, threads=threads, flags=flags)
    assert judge.places_of(case, LEVELS) == pytest.approx(wanted)
    assert judge.judged(case, LIMITS, LEVELS)["level"] == list(wanted)[-1]


def test_what_a_smaller_cache_keeps_of_larger_buffers_comes_at_its_rate():
    case = row(cache="warm", threads=1, rotated_bytes=22_000)
    seconds = judge.memory_seconds(case, LIMITS, judge.places_of(case, LEVELS))
    moved = case["bytes_read"] + case["bytes_written"]
    assert seconds == pytest.approx(moved * (1 / 400 + 10 / 200 + 11 / 80) / 22 / 1e9)


@pytest.mark.parametrize(
    ("dtype", "peak"), [("float32", 0.5), ("bfloat16", 0.5), ("float64", 0.2), ("int8", None)]
)
def test_the_arithmetic_limit_of_a_dtype(dtype, peak):
    assert judge.judged(row(dtype=dtype), LIMITS, LEVELS)["tflop_s_limit"] == peak


@pytest.mark.parametrize(
    ("op", "dtype", "peak"),
    [
        ("matmul", "bfloat16", 3.6),
        ("matmul", "int8", 6.0),
        ("matmul", "float32", 0.6),
        ("matmul", "float16", 0.72),
        ("conv", "bfloat16", 3.6),
        ("ragged_attention", "bfloat16", 3.6),
        ("ragged_attention", "float32", 0.6),
        ("paged_attention", "bfloat16", 3.6),
        ("paged_attention", "float32", 0.6),
        ("quantized_matmul", "float32", 0.5),
        ("exp", "bfloat16", 0.5),
        ("add", "int8", None),
    ],
)
def test_tiles_are_the_limit_of_products_alone(op, dtype, peak):
    tiles = {"AMX bfloat16": 3.6, "AMX bfloat16 from L2": 2.0, "AMX int8": 6.0}
    limits = {**LIMITS, "tflop_s": {**LIMITS["tflop_s"], **tiles}}
    assert judge.peak_tflops(row(op=op, dtype=dtype), limits) == pytest.approx(peak)


@pytest.mark.parametrize(
    ("op", "dtype", "peak"),
    [
        ("matmul", "bfloat16", 1.0),
        ("integer_matmul", "uint8", 2.0),
        ("quantized_matmul", "bfloat16", 1.0),
        ("conv", "bfloat16", 1.0),
        ("paged_attention", "bfloat16", 1.0),
        ("exp", "bfloat16", 0.5),
        ("add", "int8", None),
    ],
)
def test_dot_products_are_the_limit_of_products_alone(op, dtype, peak):
    dots = {"AVX-512 bfloat16": 1.0, "AVX-512 int8": 2.0}
    limits = {**LIMITS, "tflop_s": {**LIMITS["tflop_s"], **dots}}
    assert judge.peak_tflops(row(op=op, dtype=dtype), limits) == peak


def test_the_limit_is_that_of_what_is_multiplied():
    limits = {**LIMITS, "tflop_s": {**LIMITS["tflop_s"], "AVX-512 int8": 2.0}}
    integers = row(op="quantized_matmul", products="int8")
    assert judge.peak_tflops(integers, limits) == 2.0
    assert judge.peak_tflops(row(op="quantized_matmul"), limits) == 0.5


def test_rows_without_a_time_have_no_shares():
    failed = {"status": "error"}
    assert judge.judged(failed, LIMITS, LEVELS) == failed


def test_the_better_of_two_measurements_counts():
    other = {**LIMITS, "read_gb_s": {"L1": 500.0, "memory": 10.0}, "call_us": 0.2, "date": "later"}
    merged = better(LIMITS, other)
    assert merged["read_gb_s"] == {"L1": 500.0, "L2": 200.0, "L3": 100.0, "memory": 40.0}
    assert (merged["call_us"], merged["date"], merged["measured"]) == (0.2, "later", 2)
