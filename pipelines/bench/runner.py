"""Children: each case in a process of its own, so that a crash or a hang is a row, not the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from heddle.pipelines.bench.case import Case
from heddle.pipelines.bench.rows import Row, failed
from heddle.runtime.errors import HeddleError

CHILD = (sys.executable, "-m", "heddle.pipelines.bench.child")

SETUP_S = 180.0
"""What a child may take beside measuring: to compile, to draw its inputs, to check its result."""


class ChildError(HeddleError):
    """A child ended without an answer; `status` is `"crashed"` or `"hung"`."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def run(case: Case, command: Sequence[str] = CHILD, setup: float = SETUP_S) -> list[Row]:
    """The rows of `case`; one row that says so where the child crashed or hung.

    Where there are baselines it may be the fault of one: then Heddle is measured alone, and each
    baseline beside it in a child of its own.
    """

    def asked(baselines: tuple[str, ...]) -> list[Row]:
        request = {"case": replace(case, baselines=baselines).to_json(), "threads": case.threads}
        rows: list[Row] = ask(request, setup + (2 + len(baselines)) * case.max_time, command)
        return rows

    def beside(name: str) -> Row:
        try:
            row = asked((name,))[-1]
        except ChildError as error:
            reason = str(error)
        else:
            if row["impl"] == name:
                return row
            reason = row["error"]["message"]  # Heddle's, which has figures without this peer
        return case.failed("missing", "ChildError", f"{name}: {reason}", name)

    try:
        return asked(case.baselines)
    except ChildError as error:
        if not case.baselines:
            return [case.failed(error.status, "ChildError", str(error))]
    alone = run(replace(case, baselines=()), command, setup)
    return alone if failed(alone[0]) else [*alone, *map(beside, case.baselines)]


def ask(request: Row, seconds: float, command: Sequence[str] = CHILD) -> Any:
    """What a child answers to `request`.

    Raises:
        ChildError: It crashed, or did not answer in time; it is gone then, with its own children.
    """
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        output, errors = child.communicate(json.dumps(request), seconds)
    except subprocess.TimeoutExpired:
        raise ChildError("hung", f"no answer within {seconds:.0f} s") from None
    finally:
        _end(child)
    if child.returncode:
        raise ChildError("crashed", f"{_cause(child.returncode)}{_last_line(errors)}")
    return json.loads(output)


def _end(child: subprocess.Popen[str]) -> None:
    """Ends the child's session; none of its processes outlives a case."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def _cause(code: int) -> str:
    if code == -signal.SIGKILL:
        return "ended by SIGKILL, as systems do where memory runs out"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _last_line(text: str) -> str:
    """The last line of what a child said, and the place where an exception came from."""
    lines = text.strip().splitlines()
    if not lines:
        return ""
    places = re.findall(r'^  File "(.+)", line (\d+)', text, re.MULTILINE)
    where = " ({}, line {})".format(*places[-1]) if places else ""
    return f": {lines[-1]}{where}"
