"""The parent's side of codegen: jobs spread over children, one answer for each job.

Children stay for a while after a run, as the next one may come soon.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import IO

from heddle.graph.compiler.cache import Values, decode, fingerprint
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Spec
from heddle.runtime import config
from heddle.runtime.artifact import Code
from heddle.runtime.errors import CompileError

_PROGRAM = """import sys
sys.path = [folder for folder in sys.path if folder]
from heddle.graph.compiler.codegen import worker
worker.main()
"""
"""No module is taken from the working folder, whose files may have any names."""

WORKER = (sys.executable, "-c", _PROGRAM)
TIMEOUT = 300.0
"""Seconds that one kernel may take."""

PATIENCE = 20.0
"""Seconds after which a child without work ends."""


@dataclass(frozen=True)
class Job:
    """One kernel for one architecture, with the values of its parameters."""

    spec: Spec
    arch: str
    values: Values = ()


@dataclass(frozen=True)
class Failure:
    """Why a job has no code, as a phrase."""

    reason: str


def run(
    jobs: Sequence[Job],
    done: Callable[[Job, tuple[Code, ...] | Failure], None],
    *,
    worker: Sequence[str] = WORKER,
    timeout: float = TIMEOUT,
) -> None:
    """Compiles `jobs`; `done` gets each outcome as it comes, one call at a time.

    Args:
        jobs: What to compile; there are as many children as `HEDDLE_JOBS` says, at most one a job.
        done: Called under a lock, from the threads that talk to the children.
        worker: The command of a child.
        timeout: Seconds after which a child is killed and its job fails.
    """
    queue: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        queue.put(job)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def serve() -> None:
        child = _taken(worker)
        try:
            while True:
                try:
                    job = queue.get_nowait()
                except Empty:
                    return
                outcome = child.compile(job, timeout)
                with lock:
                    done(job, outcome)
        except BaseException as error:  # of `done`
            errors.append(error)
            _drain(queue)
        finally:
            child.used = time.monotonic()
            _idle.append(child)

    # An executor takes no work once the main thread has ended, while other threads go on.
    threads: list[threading.Thread] = []
    try:
        for _ in range(min(_children(), len(jobs))):
            thread = threading.Thread(target=serve)
            try:
                thread.start()
            except RuntimeError as error:  # of the system, which has no more: fewer serve
                if threads:
                    break
                raise CompileError(f"codegen: wanted a thread for a child, got: {error}") from None
            threads.append(thread)
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C: the children end the jobs that they have
        _drain(queue)
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]


def _drain(queue: SimpleQueue[Job]) -> None:
    with suppress(Empty):
        while True:
            queue.get_nowait()


_idle: list[_Child] = []
"""Children without work, kept for the next run: most of a small kernel's time is their start."""


def _taken(command: Sequence[str]) -> _Child:
    """A child that an earlier run has left, else a new one."""
    while True:
        try:
            child = _idle.pop()
        except IndexError:
            return _Child(command)
        if child.serves(command):
            return child
        child.close()


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


os.register_at_fork(after_in_child=_idle.clear)  # They answer the process that started them.


def _children() -> int:
    """How many children there may be."""
    return config.number("HEDDLE_JOBS", CompileError) or len(os.sched_getaffinity(0))


class _Child:
    """One child process, started at its first job and again after a crash."""

    def __init__(self, command: Sequence[str]) -> None:
        self.used = 0.0
        self._command = tuple(command)
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def close(self) -> None:
        if self._process:
            self._process.kill()
        self._end()
        if self._errors:
            self._errors.close()

    def serves(self, command: Sequence[str]) -> bool:
        """Whether it is there still, and stays long enough to get a job."""
        process, age = self._process, time.monotonic() - self.used
        there = process is not None and process.poll() is None and age < PATIENCE / 2
        return there and self._command == tuple(command)

    def compile(self, job: Job, timeout: float) -> tuple[Code, ...] | Failure:
        try:
            process = self._process = self._process or self._start()
            timer = threading.Timer(timeout, process.kill)
            timer.start()
        except (OSError, RuntimeError) as error:  # no file, no process; no thread
            return Failure(f"the code generator did not start: {error}")
        assert process.stdin
        assert process.stdout
        try:
            sources = fingerprint(MACHINES[job.arch].target)
            request = {"spec": job.spec.to_json(), "arch": job.arch, "values": dict(job.values)}
            process.stdin.write(json.dumps({**request, "sources": sources}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if line.endswith("\n"):
            try:
                answer = json.loads(line)
                return Failure(answer["error"]) if "error" in answer else decode(answer["codes"])
            except (ValueError, TypeError, KeyError):
                process.kill()
                self._end()
                return Failure(f"the code generator gave no answer but {line.strip()[:80]!r}")
        self._end()
        if late:
            return Failure(f"the code generator took more than {timeout:g} s")
        return Failure(f"the code generator died (exit {process.returncode}): {self._last_words()}")

    def _start(self) -> subprocess.Popen[str]:
        if self._errors is None:
            self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (see close)
        self._errors.seek(0)
        self._errors.truncate()
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
        )

    def _end(self) -> None:
        if process := self._process:
            assert process.stdin
            assert process.stdout
            try:
                process.stdin.close()
            except BrokenPipeError:
                process.kill()
            process.wait()
            process.stdout.close()
            self._process = None

    def _last_words(self) -> str:
        assert self._errors
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()] or ["it said nothing"]
        fatal = [line for line in lines if "LLVM ERROR" in line]  # a stack dump may follow it
        return (fatal or lines)[-1]
