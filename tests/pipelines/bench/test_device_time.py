"""Calls on a GPU, timed by the device: on stand-ins for the model and for torch."""

from types import SimpleNamespace

import pytest

from heddle.pipelines.bench import case, device_time
from heddle.pipelines.bench.case import Case
from heddle.pipelines.bench.device_time import ModelCall, TorchCall, device_clock
from heddle.pipelines.bench.measure import host_clock
from heddle.pipelines.cli import bench_table


def test_calls_of_a_model_are_one_replay(monkeypatch):
    asked = []

    def replay(calls):
        asked.append(calls)
        return [0.25 * len(calls)]

    monkeypatch.setattr(device_time, "replay", replay)
    ran = []
    model = SimpleNamespace(execute=lambda *inputs, out: ran.append((inputs, out)))
    x, y = (SimpleNamespace(synchronize=lambda: ran.append("wait")) for _ in range(2))
    calls = [ModelCall(model, ("a",), x), ModelCall(model, ("b",), y)]
    assert device_clock(calls) == 0.25
    assert asked == [[(model, ("a",), (x,)), (model, ("b",), (y,))]]
    assert ran == []
    calls[1]()
    assert ran == [(("b",), [y]), "wait"]


class Torch:
    """A torch that counts: a replay takes as many milliseconds as the graph has calls."""

    def __init__(self):
        self.done, self.now, self.captured = [], 0, None
        self.cuda = SimpleNamespace(
            CUDAGraph=self.graph_of,
            graph=self.capture,
            Event=self.event,
            synchronize=lambda: self.done.append("wait"),
        )

    def graph_of(self):
        return SimpleNamespace(calls=[], replay=self.replay)

    def replay(self):
        self.now += len(self.captured.calls)

    def capture(self, graph):
        self.captured = graph
        torch = self

        class Scope:
            def __enter__(self):
                torch.done = graph.calls

            def __exit__(self, *error):
                torch.done = []

        return Scope()

    def event(self, enable_timing):
        assert enable_timing
        event = SimpleNamespace(at=None, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: end.at - event.at
        return event


def test_calls_of_torch_are_one_graph():
    torch = Torch()
    calls = [TorchCall(torch, lambda: torch.done.append("run")) for _ in range(3)]
    assert device_clock(calls) == pytest.approx(1e-3)
    assert torch.captured.calls == ["run"] * 3
    assert torch.now == 6  # the first launch does not count
    calls[0]()
    assert torch.done == ["run", "wait"]


def test_the_target_says_who_times_and_which_cache_counts(monkeypatch):
    assert case.clock_of(Case("exp", {}), 7) == (host_clock, 1)
    assert case.clock_of(Case("exp", {}, target="cuda"), 7) == (device_clock, 7)
    monkeypatch.setattr(case, "cuda_info", lambda: {"devices": [{"l2_bytes": 50 << 20}]})
    assert case.last_cache(Case("exp", {}, target="cuda")) == 50 << 20


def test_the_hosts_time_stands_with_the_flags():
    assert bench_table.flags({"flags": ["noisy"], "host_us": 12.34}) == "noisy, host 12.3 us"
    assert bench_table.flags({"flags": []}) == ""
