"""The checks of a kit, watched by the tools of compute-sanitizer."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from typing import Any

import gpu_child

TOOLS = ("memcheck", "racecheck", "synccheck")
"""Of compute-sanitizer ("Compute Sanitizer User Manual", NVIDIA)."""

OPTIONS = ("--report-api-errors", "no")
"""A cubin that the driver refuses is no fault: the PTX beside it is taken."""

NOTHING = re.compile(r"COMPUTE-SANITIZER|SUMMARY: 0 ")
"""Lines of a tool that has nothing to report."""

MOST_REPORTED = 40
"""Lines of a tool's report that are kept."""


def watch(
    checks: Sequence[Any], names: Sequence[str], limits: gpu_child.Limits
) -> list[dict[str, Any]]:
    """What each tool says of the checks `names` that the command `checks` runs.

    The time that is left is shared out among the tools.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        print("sanitizer: compute-sanitizer is not on PATH", flush=True)
        return []
    rows = []
    for number, tool in enumerate(TOOLS):
        now = time.monotonic()
        share = (limits.end - now) / (len(TOOLS) - number)
        own, said = gpu_child.Limits(limits.silent_s, now + share), []
        answers = gpu_child.answers(
            [program, "--tool", tool, *OPTIONS, *checks], names, own, said.append
        )
        done = [row for found in answers for row in found]
        reports = [line for line in said if line.startswith("=====") and not NOTHING.search(line)]
        row = {
            "name": tool,
            "checks": len(done),
            "reports": reports[:MOST_REPORTED],
            "failed": reports[:1] + [text for one in done for text in one.get("failed", ())][:1],
        }
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        rows.append(row)
    return rows
