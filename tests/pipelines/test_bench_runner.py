"""The children that cases run in: what they answer, and how they end."""

import signal
import sys
import time
from pathlib import Path

import pytest

from heddle.pipelines.bench import runner
from heddle.pipelines.bench.case import Case


def child(code):
    return (sys.executable, "-c", code)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_case_in_a_child():
    (row,) = runner.run(Case("exp", {"m": 3, "n": 40}, verify=True, max_time=0.001))
    assert row["status"] == "ok"


def test_a_crash_is_a_row():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    (row,) = runner.run(Case("exp", {"m": 1}), child(code))
    assert row["status"] == "crashed"
    assert row["error"]["message"] == "ended by SIGSEGV"


def test_an_exit_code_comes_with_the_last_line_of_stderr():
    code = "import sys; sys.exit('some trace\\nthe reason')"
    (row,) = runner.run(Case("exp", {"m": 1}), child(code))
    assert row["error"]["message"] == "exit code 1: the reason"


def test_a_hang_is_a_row_and_leaves_nothing_behind(tmp_path):
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(note)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    begin = time.monotonic()
    (row,) = runner.run(Case("exp", {"m": 1}, max_time=0.1), child(code), setup=0.8)
    assert row["status"] == "hung"
    assert row["error"]["message"] == "no answer within 1 s"
    assert time.monotonic() - begin < 30
    while alive(note.read_text()):  # A killed process may still be on its way out.
        assert time.monotonic() - begin < 30
        time.sleep(0.01)


def test_ctrl_c_ends_the_child(monkeypatch):
    killed = []
    monkeypatch.setattr(runner.os, "killpg", lambda pid, number: killed.append((pid, number)))

    class Child:
        pid, returncode = 77, None

        def __init__(self, *args, **kwargs):
            self.first = True

        def communicate(self, *args):
            if self.first:
                self.first = False
                raise KeyboardInterrupt
            return "", ""

    monkeypatch.setattr(runner.subprocess, "Popen", Child)
    with pytest.raises(KeyboardInterrupt):
        runner.run(Case("exp", {"m": 1}))
    assert killed == [(77, signal.SIGKILL)]
