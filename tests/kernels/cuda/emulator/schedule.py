"""Strands that run by turns: each until it waits for something that has not happened yet.

A strand is a coroutine of one warp. Asynchronous operations happen as late as the machine allows:
when no strand can go on. When nothing is left to happen either, that is a deadlock.
"""

from collections.abc import Generator

from emulator.cluster import Cluster, Wait
from emulator.memory import EmulatorError

Strand = Generator[Wait, None, None]


def run_all(strands: dict[str, Strand], clusters: list[Cluster]) -> None:
    """Runs strands, by their names, to their ends.

    Raises:
        EmulatorError: Every strand that is left waits; the text says who waits for what.
    """
    waits: dict[str, Wait] = dict.fromkeys(strands, (lambda: True, "its start"))
    while waits:
        moved = False
        for name, (ready, _) in list(waits.items()):
            if not ready():
                continue
            moved = True
            try:
                waits[name] = next(strands[name])
            except StopIteration:
                del waits[name]
        if moved:
            continue
        late = next((cluster.late for cluster in clusters if cluster.late), None)
        if late is None:
            text = "".join(f"\n    {name} waits for {why}" for name, (_, why) in waits.items())
            raise EmulatorError(f"deadlock: nothing can happen any more{text}")
        late.popleft()()
