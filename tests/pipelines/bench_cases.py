"""Small cases of the bench."""

from heddle.pipelines.bench import workloads
from heddle.pipelines.bench.case import Case

SMALL = {"m": 3, "n": 40, "k": 64, "b": 2, "h": 4, "s": 5, "t": 8, "d": 16, "rows": 11, "axis": 1}
SMALL |= {"g": 2, "block": 4, "height": 5, "width": 6, "c": 8, "window": 3}


def small(name, **options):
    sizes = {size: SMALL[size] for size in workloads.find(name).sizes}
    return Case(name, sizes, max_time=0.001, verify=True, **options)
