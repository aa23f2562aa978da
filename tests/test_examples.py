"""Examples that need nothing but the package run."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_generate():
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "generate.py"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "96 tokens in 38 steps" in done.stdout
    assert done.stdout.count("length") == 3
