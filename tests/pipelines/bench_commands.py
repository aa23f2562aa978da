"""`heddle bench` in this process, with rows and limits that are made up."""

from click.testing import CliRunner

from heddle.pipelines.cli.bench import bench

LIMITS = {
    "threads": 2,
    "read_gb_s": {"L1": 400.0, "L2": 200.0, "L3": 100.0, "memory": 40.0},
    "copy_gb_s": {"L1": 400.0, "L2": 200.0, "L3": 80.0, "memory": 50.0},
    "tflop_s": {"AVX-512 float32": 0.5},
    "call_us": 0.3,
    "others_share": 0.0,
    "date": "2026-01-01",
}


def timed(case, impl="heddle", time=1000.0, **changes):
    return {
        **case.row(impl, "ok"),
        "time_us": time,
        "ci_us": [time * 0.99, time * 1.01],
        "p95_us": time * 1.1,
        "turns_us": [time] * 12,
        "rotated_bytes": 10**9,
        "bytes_read": 20_000_000,
        "bytes_written": 20_000_000,
        "operations": 80_000_000,
        **changes,
    }


def call(*arguments, code=0):
    result = CliRunner().invoke(bench, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result
