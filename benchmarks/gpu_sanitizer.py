"""The checks of a kit, watched by the tools of compute-sanitizer."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOOLS = ("memcheck", "racecheck", "synccheck")
"""Of compute-sanitizer ("Compute Sanitizer User Manual", NVIDIA)."""

FOUND = 77
"""Its exit status where a tool has something to report."""

CHECKS = Path(__file__).with_name("gpu.py")


def watch(kit: Path, build: Path, device: str, limit_s: float) -> list[dict[str, Any]]:
    """What each tool of compute-sanitizer says of the checks, in at most `limit_s` seconds each."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        print("sanitizer: compute-sanitizer is not on PATH", flush=True)
        return []
    rows = []
    for tool in TOOLS:
        watched = [program, "--tool", tool, "--error-exitcode", str(FOUND)]
        checks = [sys.executable, CHECKS, kit, "--only", "checks", "--device", device]
        with tempfile.TemporaryDirectory() as folder:
            command = [*watched, *checks, "--build", build, "--out", Path(folder) / "checks.json"]
            row: dict[str, Any] = {"name": tool, "failed": []}
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
                reports = [line for line in done.stdout.splitlines() if line.startswith("=====")]
                row["reports"] = reports[:40]
                if done.returncode == FOUND:
                    row["failed"] = reports[:1]
                elif done.returncode:
                    row["failed"] = [(done.stdout + done.stderr)[-1000:]]
            except subprocess.TimeoutExpired:
                row["failed"] = [f"more than {limit_s:.0f} s"]
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        rows.append(row)
    return rows
