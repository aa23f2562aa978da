"""The first step of the command `heddle`, which says what to install where only NumPy is."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line, or ends with exit code 1 and what to install for it."""
    try:
        from heddle.pipelines.cli import main as command_line
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(
            "error: the command line wants click, which is not installed; "
            "pip install 'heddle[cli]', or 'heddle[compiler]' to compile, too"
        )
    except KeyboardInterrupt:  # later ones are click's, which says the same
        sys.exit("Aborted!")
    command_line()
