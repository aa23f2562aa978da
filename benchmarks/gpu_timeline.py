"""What the time of a call on a GPU is made of, kernel by kernel, as torch's profiler records it.

Kernels start before those in front of them end (programmatic dependent launch), and wait: so each
is given the time from the end of the one before to its own end, and all of them add up.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from typing import Any


def shares(spans: Iterable[tuple[str, float, float]]) -> dict[str, dict[str, float]]:
    """Launches and microseconds of each name, of (name, start, end) of what ran; longest first."""
    found: dict[str, dict[str, float]] = {}
    before = None
    for name, start, end in sorted(spans, key=lambda span: span[2]):
        row = found.setdefault(name, {"launches": 0, "us": 0.0})
        row["launches"] += 1
        row["us"] += end - (start if before is None else before)
        before = end
    rows = sorted(found.items(), key=lambda item: -item[1]["us"])
    return {name: {**row, "us": round(row["us"], 1)} for name, row in rows}


def of_call(call: Callable[[], Any]) -> dict[str, dict[str, float]]:
    """`shares` of a call; nothing where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()  # What the first call sets up is no part of it.
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        call()
        torch.cuda.synchronize()
    return shares(
        (event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
