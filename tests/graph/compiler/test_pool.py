"""Codegen children: their answers, and what becomes of those that fail, die or hang."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from heddle.graph.compiler.codegen import pool, worker
from heddle.graph.compiler.codegen.pool import Failure, Job, run
from heddle.kernels import memory
from heddle.kernels.spec import Operand, Spec
from heddle.runtime.artifact import Code
from heddle.runtime.errors import CompileError

# A child that speaks the protocol and does what the op says.
CHILD = """
import base64, json, os, sys, time
for line in sys.stdin:
    job = json.loads(line)
    match json.loads(job["spec"])["op"]:
        case "abort":
            print("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.x", file=sys.stderr, flush=True)
            print("#0 some stack frame", file=sys.stderr, flush=True)
            os.abort()
        case "silent":
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "babble":
            print("a pass printed this", flush=True)
            continue
        case "stray":
            sys.stdout.buffer.write(bytes([255, 10]))
            sys.stdout.flush()
            time.sleep(60)
        case "pid":
            answer = {"codes": [{"arch": job["arch"], "format": str(os.getpid()), "data": ""}]}
        case "refuse":
            answer = {"error": "ValueError: no"}
        case op:
            data = base64.b64encode(op.encode()).decode()
            answer = {"codes": [{"arch": job["arch"], "format": "ptx", "data": data}]}
    print(json.dumps(answer), flush=True)
"""
F32 = Operand("float32", (4,))


def outcomes(monkeypatch, *ops, jobs=2, timeout=30.0, worker=(sys.executable, "-c", CHILD)):
    monkeypatch.setenv("HEDDLE_JOBS", str(jobs))
    found = {}

    def done(job, outcome):
        found[job.spec.op] = outcome

    listed = [Job(Spec(op, (F32,), F32, (F32,)), "x86-64-v3") for op in ops]
    run(listed, done, worker=worker, timeout=timeout)
    assert set(found) == set(ops)
    return found


def test_each_job_has_its_answer(monkeypatch):
    found = outcomes(monkeypatch, *(f"op{i}" for i in range(9)))
    for op, codes in found.items():
        assert codes == (Code("x86-64-v3", "ptx", op.encode()),)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_death_fails_one_job_and_names_the_cause(monkeypatch, jobs):
    found = outcomes(monkeypatch, "a", "abort", "b", "silent", "refuse", "c", jobs=jobs)
    reason = "the code generator died (exit -6): LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.x"
    assert found.pop("abort") == Failure(reason)
    assert found.pop("silent") == Failure("the code generator died (exit 3): it said nothing")
    assert found.pop("refuse") == Failure("ValueError: no")
    assert all(codes[0].data == op.encode() for op, codes in found.items())


def test_no_answer_fails_one_job(monkeypatch):
    found = outcomes(monkeypatch, "a", "babble", "b", jobs=1)
    reason = "the code generator gave no answer but 'a pass printed this'"
    assert found.pop("babble") == Failure(reason)
    assert all(codes[0].data == op.encode() for op, codes in found.items())


def test_no_answer_from_a_child_that_stays_fails_one_job(monkeypatch):
    """It is not waited for, and its bytes need not be text."""
    start = time.monotonic()
    found = outcomes(monkeypatch, "a", "stray", "b", jobs=1)
    reason = "the code generator gave no answer but '\N{REPLACEMENT CHARACTER}'"
    assert found["stray"] == Failure(reason)
    assert found["b"][0].data == b"b"
    assert time.monotonic() - start < 50


@pytest.mark.parametrize("missing", ["folder", "thread"])
def test_what_a_child_needs_is_not_there(monkeypatch, missing):
    """No folder for temporary files; no thread that watches the time."""

    def none(*arguments, **options):
        raise FileNotFoundError("none") if missing == "folder" else RuntimeError("none")

    monkeypatch.setattr(pool, "_idle", [])
    owner, name = (tempfile, "TemporaryFile") if missing == "folder" else (pool.threading, "Timer")
    monkeypatch.setattr(owner, name, none)
    found = outcomes(monkeypatch, "a", "b")
    assert set(found.values()) == {Failure("the code generator did not start: none")}
    pool._close_idle()


@pytest.mark.parametrize("threads", [0, 1])
def test_as_many_children_as_there_are_threads_for(monkeypatch, threads):
    class Few(threading.Thread):
        left = threads

        def start(self):
            if not Few.left:
                raise RuntimeError("can't start new thread")
            Few.left -= 1
            super().start()

    monkeypatch.setattr(pool.threading, "Thread", Few)
    if threads:
        assert outcomes(monkeypatch, "a", "b", jobs=2)["b"][0].data == b"b"
    else:
        message = "^codegen: wanted a thread for a child, got: can't start new thread$"
        with pytest.raises(CompileError, match=message):
            outcomes(monkeypatch, "a", "b", jobs=2)


def test_a_thread_compiles_after_the_main_one_has_ended():
    program = f"""
import sys, threading
sys.path.append({str(Path(__file__).parent)!r})
from test_pool import CHILD, F32, Job, Spec, run

def compile():
    main.join()
    jobs = [Job(Spec("a", (F32,), F32, (F32,)), "x86-64-v3")]
    run(jobs, lambda _, codes: print(codes), worker=(sys.executable, "-c", CHILD))

main = threading.main_thread()
threading.Thread(target=compile).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout[:6], done.stderr) == ("(Code(", "")


def test_no_child(monkeypatch):
    found = outcomes(monkeypatch, "a", "b", worker=["/none/worker"])
    reason = "the code generator did not start: [Errno 2] No such file or directory: '/none/worker'"
    assert set(found.values()) == {Failure(reason)}


def test_an_error_of_the_caller_ends_the_run(monkeypatch):
    monkeypatch.setenv("HEDDLE_JOBS", "1")
    seen = []

    def done(job, outcome):
        seen.append(job)
        raise RuntimeError("a full disk")

    jobs = [Job(Spec(op, (F32,), F32, (F32,)), "x86-64-v3") for op in "abc"]
    with pytest.raises(RuntimeError, match="a full disk"):
        run(jobs, done, worker=(sys.executable, "-c", CHILD))
    assert len(seen) == 1


def test_bad_number_of_jobs(monkeypatch):
    with pytest.raises(CompileError, match=r"^HEDDLE_JOBS: wanted a number of 0 or more, got 'x'$"):
        outcomes(monkeypatch, "a", jobs="x")


def test_sources_that_changed_meanwhile_are_noticed(monkeypatch):
    monkeypatch.setattr(pool, "fingerprint", lambda target: "older")
    found = outcomes(monkeypatch, "softmax", worker=pool.WORKER)
    reason = "the compiler's sources have changed since this process began"
    assert found["softmax"] == Failure(reason)


def test_files_of_the_working_folder_are_not_modules(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemError('mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "_idle", [])
    found = outcomes(monkeypatch, "nope", worker=pool.WORKER)
    pool._close_idle()
    assert found["nope"].reason.startswith("CompileError: nope for x86-64-v3: ")


COLUMNS = Operand("float32", (64, 64)), Operand("float32", (1, 64))
SUM = Spec("reduce", COLUMNS[:1], COLUMNS[1], COLUMNS[1:], (("axis", 0), ("kind", "sum")))


@pytest.mark.parametrize(
    ("spec", "kernel"), [(Spec("softmax", (F32,), F32, (F32,)), "softmax"), (SUM, "reduce")]
)
def test_a_kernel_that_is_broken_is_named_with_its_line(monkeypatch, spec, kernel):
    """Not the line of a helper, nor that of what raises below it."""

    def load(*arguments, **options):
        raise AttributeError("'float' object has no attribute 'type'")

    monkeypatch.setattr(memory, "load", load)
    job = {
        "spec": spec.to_json(),
        "arch": "x86-64-v3",
        "values": {},
        "sources": pool.fingerprint("cpu"),
    }
    (key, reason), *others = worker._answer(job).items()
    assert (key, others) == ("error", [])
    place, _, what = reason.partition(": ")
    assert what == "AttributeError: 'float' object has no attribute 'type'"
    path, _, line = place.rpartition(":")
    assert path == f"kernels/cpu/{kernel}.py"
    source = (Path(worker.KERNELS).parent / path).read_text().splitlines()
    assert "(" in source[int(line) - 1]
    job["spec"] = Spec("nope", (F32,), F32, (F32,)).to_json()
    assert worker._answer(job)["error"].startswith("CompileError: nope for x86-64-v3: ")


def test_a_hang_ends(monkeypatch):
    """The time is enough for the other one on a machine that has much else to do."""
    found = outcomes(monkeypatch, "hang", "a", jobs=1, timeout=5.0)
    assert found["hang"] == Failure("the code generator took more than 5 s")
    assert found["a"][0].data == b"a"


def pid(monkeypatch, **options):
    return int(outcomes(monkeypatch, "pid", **options)["pid"][0].format)


def test_a_child_serves_the_next_run(monkeypatch):
    first = pid(monkeypatch)
    assert pid(monkeypatch) == first
    assert pid(monkeypatch, worker=(sys.executable, "-c", CHILD, "another")) != first


def test_a_child_that_ended_meanwhile_is_replaced(monkeypatch):
    first = pid(monkeypatch)
    os.kill(first, signal.SIGKILL)
    pool._idle[-1]._process.wait()
    assert pid(monkeypatch) != first


def test_a_child_that_is_about_to_end_is_replaced(monkeypatch):
    first = pid(monkeypatch)
    pool._idle[-1].used -= pool.PATIENCE
    assert pid(monkeypatch) != first


def test_a_child_without_work_ends():
    program = "from heddle.graph.compiler.codegen import worker; worker.PATIENCE = 0; worker.main()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    assert process.wait(60) == 0
    process.stdin.close()


def test_no_child_outlives_its_parent():
    program = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from test_pool import CHILD, F32, Job, Spec, run
spec = Spec("pid", (F32,), F32, (F32,))
worker = (sys.executable, "-c", CHILD)
run([Job(spec, "x86-64-v3")], lambda _, codes: print(codes[0].format), worker=worker)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True)
    assert done.stderr == b""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_fork_leaves_the_children_to_its_parent(monkeypatch):
    first = pid(monkeypatch)
    if not (fork := os.fork()):
        os._exit(len(pool._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
    assert pid(monkeypatch) == first
