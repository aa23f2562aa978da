"""Models that skip calls, and what stands in for a device that is timed."""

import heddle.runtime
from heddle.runtime import _core


class Erring:
    """A model, of whose calls those that `skips` says (by their number) compute nothing."""

    def __init__(self, model, skips):
        self.model, self.skips, self.calls = model, skips, 0

    def execute(self, *inputs, out):
        self.calls += 1
        if not self.skips(self.calls):
            self.model.execute(*inputs, out=out)


def on_host(monkeypatch):
    """`replay` by plain calls, and a device with a cache of a KiB."""

    def replay(calls, repeats=1, count=1):
        for model, inputs, outputs in calls:
            model.execute(*inputs, out=outputs)
        return [1e-3 * repeats] * count

    monkeypatch.setattr(heddle.runtime, "replay", replay)
    monkeypatch.setattr(_core, "cuda_info", lambda: {"devices": [{"l2_bytes": 1024}]})
