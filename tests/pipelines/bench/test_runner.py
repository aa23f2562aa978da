"""The children that cases run in: what they answer, and how they end."""

import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from heddle.pipelines.bench import runner
from heddle.pipelines.bench.case import Case, run
from heddle.runtime.errors import InputError


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


def test_a_child_that_is_killed_may_have_had_no_memory():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (row,) = runner.run(Case("exp", {"m": 1}), child(code))
    assert row["error"]["message"] == "ended by SIGKILL, as systems do where memory runs out"


CHILD_OF_PEERS = """
import json, os, signal, sys
case = json.load(sys.stdin)["case"]
if {bad!r} in ("heddle", *case["baselines"]):
    os.kill(os.getpid(), signal.SIGSEGV)
rows = [{{"impl": name, "status": "ok"}} for name in ("heddle", *case["baselines"])]
json.dump(rows, sys.stdout)
"""


def test_a_peer_that_crashes_takes_no_figures_with_it():
    case = Case("exp", {"m": 1}, baselines=("numpy", "torch"))
    ours, numpy, torch = runner.run(case, child(CHILD_OF_PEERS.format(bad="torch")))
    assert (ours["impl"], ours["status"]) == ("heddle", "ok")
    assert (numpy["impl"], numpy["status"]) == ("numpy", "ok")
    assert (torch["impl"], torch["status"]) == ("torch", "missing")
    assert torch["error"]["message"] == "torch: ended by SIGSEGV"


CHILD_THAT_PEERS_CROWD = """
import json, os, signal, sys
baselines = json.load(sys.stdin)["case"]["baselines"]
if len(baselines) == 2:
    os.kill(os.getpid(), signal.SIGSEGV)
rows = [{"impl": "heddle", "status": "ok"}]
if "torch" in baselines:
    rows = [{"impl": "heddle", "status": "error", "error": {"message": "no memory is left"}}]
elif baselines:
    rows += [{"impl": "numpy", "status": "ok"}]
json.dump(rows, sys.stdout)
"""


def test_what_fails_beside_a_peer_alone_is_laid_to_the_peer():
    case = Case("exp", {"m": 1}, baselines=("numpy", "torch"))
    found = runner.run(case, child(CHILD_THAT_PEERS_CROWD))
    assert [(row["impl"], row["status"]) for row in found] == [
        ("heddle", "ok"),
        ("numpy", "ok"),
        ("torch", "missing"),
    ]
    assert found[2]["error"]["message"] == "torch: no memory is left"


def test_a_crash_of_our_own_is_no_fault_of_peers():
    case = Case("exp", {"m": 1}, baselines=("numpy", "torch"))
    (row,) = runner.run(case, child(CHILD_OF_PEERS.format(bad="heddle")))
    assert (row["impl"], row["status"]) == ("heddle", "crashed")


def test_an_exit_code_comes_with_the_last_line_of_stderr():
    code = "import sys; sys.exit('some trace\\nthe reason')"
    (row,) = runner.run(Case("exp", {"m": 1}), child(code))
    assert row["error"]["message"] == "exit code 1: the reason"


def test_an_exception_comes_with_its_place(tmp_path):
    """Also that of a kernel's file which is no Python."""
    file = tmp_path / "kernel.py"
    for text, reason in (("x = 1\nif x\n", "SyntaxError"), ("\n\n1 / 0\n", "ZeroDivisionError")):
        file.write_text(text)
        code = f"import runpy; runpy.run_path({str(file)!r})"
        (row,) = runner.run(Case("exp", {"m": 1}), child(code))
        line = 2 if reason == "SyntaxError" else 3
        message = row["error"]["message"]
        assert message.startswith(f"exit code 1: {reason}: ")
        assert message.endswith(f" ({file}, line {line})")


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


@pytest.mark.parametrize(
    ("changes", "got"),
    [
        ({"sizes": {"m": 8}}, "sizes: wanted m, n, got m"),
        ({"sizes": {}}, "sizes: wanted m, n, got none"),
        ({"sizes": {"m": 8, "n": 8, "q": 1}}, "sizes: wanted m, n, got m, n, q"),
        ({"sizes": {"m": 8, "n": "a"}}, "sizes: n: wanted an integer of at least 0, got 'a'"),
        ({"sizes": {"m": -8, "n": 8}}, "sizes: m: wanted an integer of at least 0, got -8"),
        ({"sizes": {"m": True, "n": 8}}, "sizes: m: wanted an integer of at least 0, got True"),
        ({"threads": 0}, "threads: wanted an integer of at least 1, got 0"),
        ({"target": "gpu"}, "target: wanted cpu or cuda, got 'gpu'"),
        ({"cache": "both"}, "cache: wanted cold or warm, got 'both'"),
        ({"inputs": "ones"}, "inputs: wanted normal or zeros, got 'ones'"),
        ({"max_time": -1}, "max_time: wanted a finite number of seconds above 0, got -1"),
        (
            {"max_time": float("nan")},
            "max_time: wanted a finite number of seconds above 0, got nan",
        ),
    ],
)
def test_a_case_that_no_command_line_lets_through(changes, got):
    odd = replace(Case("relu", {"m": 8, "n": 8}, max_time=0.01), **changes)
    with pytest.raises(InputError, match=f"^relu: {re.escape(got)}$"):
        next(run(odd))
