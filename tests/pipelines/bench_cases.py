"""Small cases of the bench, and rows as it writes them."""

from heddle.pipelines.bench import rows, workloads
from heddle.pipelines.bench.case import Case

SMALL = {"m": 3, "n": 40, "k": 64, "b": 2, "h": 4, "s": 5, "t": 8, "d": 16, "rows": 11, "axis": 1}
SMALL |= {"g": 2, "block": 4, "height": 5, "width": 6, "c": 8, "window": 3, "cap": 2}


def small(name, **options):
    sizes = {size: SMALL[size] for size in workloads.find(name).sizes}
    return Case(name, sizes, max_time=0.001, verify=True, **options)


MACHINE = {"host": "loom", "cpu": "X", "cores": 2, "heddle": "0.1.0", "date": "2026-01-01"}


def row(**changes):
    made = {
        "schema": rows.SCHEMA,
        "name": "exp",
        "op": "exp",
        "impl": "heddle",
        "dtype": "float32",
        "shape": {"m": 4, "n": 8},
        "device": "cpu",
        "cache": "cold",
        "threads": 2,
        "status": "ok",
        "flags": [],
        "time_us": 1000.0,
        "ci_us": [990.0, 1010.0],
        "turns_us": [1000.0 + i % 5 for i in range(20)],
        "rotated_bytes": 1_000_000,
        "bytes_read": 20_000_000,
        "bytes_written": 20_000_000,
        "operations": 80_000_000,
        "environment": MACHINE,
    }
    return {**made, **changes}
