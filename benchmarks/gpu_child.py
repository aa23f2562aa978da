"""Processes of their own for work that may break a GPU's context, or never come to an end.

A child says that it is ready, then prints the answer to each item of a list, in order. One that
ends, or is silent for too long, is replaced by another, which goes on behind that item.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

READY, ANSWER = "CHILD READY", "CHILD ANSWER "

START_S = 90
"""A child that is not ready by then never will be."""

LAST = 8
"""Lines of a child that ended, of which its failure tells."""


def ready() -> None:
    """What a child prints when it has set up what all items need."""
    print(READY, flush=True)


def answer(rows: list[dict[str, Any]]) -> None:
    """What a child prints for an item."""
    print(ANSWER + json.dumps(rows), flush=True)


@dataclass(frozen=True)
class Limits:
    """How long a child may be silent, and when all of it ends, by the monotonic clock."""

    silent_s: float
    end: float

    @property
    def over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self.end

    def wait(self, seconds: float) -> float:
        """So many seconds, or what is left."""
        return max(0.0, min(seconds, self.end - time.monotonic()))


class SilenceError(Exception):
    """A child has said nothing for too long."""


class _Child:
    def __init__(self, command: Sequence[Any], hear: Callable[[str], None]) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._hear = hear
        self.last: deque[str] = deque(maxlen=LAST)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def next(self, mark: str, seconds: float) -> str | None:
        """What follows `mark` in a line of the child, None at its end; others are heard."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise SilenceError(f"was silent for {seconds:.0f} s") from None
            if line is None:
                return None
            if line.startswith(mark):
                return line[len(mark) :]
            self._hear(line)
            self.last.append(line)

    def end(self) -> int | None:
        """Ends it with all that it has started; its status, where it had ended by itself."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(timeout=2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # A driver may hold it for long.
            self._process.wait(timeout=20)
        self._reader.join(timeout=1)
        return status


def heard(line: str) -> None:
    """Prints what a child says beside its answers."""
    print(line, flush=True)


def answers(
    command: Sequence[Any],
    names: Sequence[str],
    limits: Limits,
    hear: Callable[[str], None] = heard,
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each item, of those that come before `limits.end`.

    `command` with `--first N` starts a child at item N; `hear` gets what it prints beside answers.
    An item without an answer has one row, with its name, its number and what its child said last.
    Behind one that was silent for too long, others may be silent for half as long: where many
    kernels never end, more of the rest is answered.
    """
    first, silent_s = 0, limits.silent_s
    while first < len(names):
        child, before = _Child([*command, "--first", first], hear), first
        started, silent = False, ""
        try:
            started = child.next(READY, limits.wait(START_S)) is not None
            while started and first < len(names):
                found = child.next(ANSWER, limits.wait(silent_s))
                if found is None:
                    break
                yield json.loads(found)
                first += 1
            if first == len(names):
                child.next(ANSWER, limits.wait(silent_s))
        except SilenceError as why:
            silent, silent_s = str(why), limits.silent_s / 2
        finally:
            status = child.end()
        if first < len(names) and limits.over:
            hear(f"time is over, without {len(names) - first} of {len(names)}")
            return
        # One that loses its device ends behind an answer; the next tells whether it is the item.
        if first < len(names) and (silent or first == before):
            said = "\n".join(child.last)[-1000:]
            how = silent or f"ended with status {status}"
            text = f"item {first} of {len(names)}: its process {how}: {said}"
            yield [{"name": names[first], "failed": [text]}]
            first += 1
            if not started:
                return
