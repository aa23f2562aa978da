"""The process that a case runs in: `python -m heddle.pipelines.bench.child`.

A request as JSON on stdin; the answer as JSON on the stdout that it was started with. Whatever
libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from heddle.runtime import config

THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What the baselines read when they are imported."""


def answer(request: dict[str, Any]) -> Any:
    """The rows of a case or of candidates, or limits of this machine."""
    from heddle.pipelines.bench import limits

    if "limits" in request:
        return limits.measure(request["limits"])
    if "tiles" in request:
        return limits.measure_tiles(request["tiles"])
    if "gpu" in request:
        from heddle.pipelines.bench import gpu_limits

        return gpu_limits.measure()
    from heddle.pipelines.bench import candidates
    from heddle.pipelines.bench.case import Case, run_safely

    case = Case(**{**request["case"], "baselines": tuple(request["case"]["baselines"])})
    if "candidates" in request:
        return candidates.run(case, request["candidates"])
    return run_safely(case)


def main() -> None:
    """Answers one request."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    for name in THREAD_SETTINGS:
        config.put(name, str(request["threads"]))
    with os.fdopen(stdout, "w") as file:
        json.dump(answer(request), file)


if __name__ == "__main__":
    main()
