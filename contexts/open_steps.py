"""Which steps of a batch were written and wait for their tokens."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence

from heddle.contexts.text import TextContext

# Steps that were given up, and whose contexts never come again, are forgotten after so many others.
_MOST = 16


class OpenSteps:
    """The contexts of each step that was begun and not ended; no context is in two of them."""

    def __init__(self) -> None:
        self._steps: deque[list[TextContext]] = deque(maxlen=_MOST)

    def begin(self, contexts: list[TextContext]) -> None:
        """A step of `contexts`; steps that have one of them were given up."""
        others = [step for step in self._steps if step is not contexts]
        if others:
            new = set(map(id, contexts))
            others = [step for step in others if new.isdisjoint(map(id, step))]
        self._steps = deque((*others, contexts), _MOST)

    def end(self, contexts: Sequence[TextContext]) -> None:
        """The step of `contexts`, which are in the same order.

        Raises:
            ValueError: There is no such step; an ended one is none any more.
        """
        for index, step in enumerate(self._steps):
            if len(step) == len(contexts) and all(map(operator.is_, step, contexts)):
                del self._steps[index]
                return
        raise ValueError(
            "StepBatch: wanted to commit the contexts of a step, as `write` got them, and once, "
            f"got {len(contexts)} contexts of no step that waits"
        )
