"""What `benchmarks/gpu.py` compares with: torch's functions, which call cuBLAS and cuDNN."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

EPSILON = 1e-5

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
"""Of attention, the first one that takes the case."""


def _attention(causal: bool) -> Callable[..., Any]:
    def run(query: Any, key: Any, value: Any) -> Any:
        with sdpa_kernel(BACKENDS, set_priority=True):
            return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    return run


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": torch.matmul,
    "attention": _attention(False),
    "attention_causal": _attention(True),
    "rms_norm": lambda x, w: functional.rms_norm(x, x.shape[-1:], w, EPSILON),
    "layer_norm": lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, EPSILON),
    "softmax": lambda x: torch.softmax(x, -1),
    "silu": functional.silu,
    "add": torch.add,
    "transpose": lambda x: x.t().contiguous(),
    "sum": lambda x: torch.sum(x, -1, keepdim=True),
}
"""By workload; a workload without one has no peer."""


class Graph:
    """A peer's calls over all sets, `repeats` times, as one CUDA graph."""

    name = f"torch {torch.__version__}"

    def __init__(self, function: Callable[..., Any], sets: list[list[Any]], repeats: int) -> None:
        self._function, self._first = function, sets[0]
        with torch.inference_mode():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):  # what a library sets up at its first call
                for tensors in sets:
                    function(*tensors)
            side.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                for _ in range(repeats):
                    for tensors in sets:
                        function(*tensors)
        for _ in range(2):
            self._graph.replay()
        torch.cuda.synchronize()

    def replay(self, count: int) -> list[float]:
        """The seconds of each of `count` replays, on the device."""
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        self._graph.replay()  # so that the device has work while the host gives it the rest
        for number, end in enumerate(ends):
            if number:
                self._graph.replay()
            end.record()
        ends[-1].synchronize()
        return [1e-3 * a.elapsed_time(b) for a, b in itertools.pairwise(ends)]

    def result(self) -> Any:
        """The result for the first set, in float64 on the host."""
        with torch.inference_mode():
            return self._function(*self._first).double().cpu().numpy()


def graph_of(case: dict[str, Any], sets: list[list[Any]], repeats: int) -> Graph | None:
    """The peer of `case` on `sets` of Buffers of the device, or None."""
    function = FUNCTIONS.get(case["name"])
    if function is None:
        return None
    return Graph(function, [[torch.from_dlpack(b) for b in s] for s in sets], repeats)


def limits() -> dict[str, float]:
    """The device's own ceilings: copy bandwidth in GB/s, a bfloat16 product in TFLOP/s."""
    with torch.inference_mode():
        source = torch.randn(1 << 30, device="cuda")
        copied = Graph(torch.clone, [[source]], 4)
        seconds = min(copied.replay(10)) / 4
        bandwidth = 2 * source.nbytes / seconds / 1e9
        del source, copied
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        seconds = min(Graph(torch.matmul, [[a, b]], 4).replay(10)) / 4
    return {"copy_gb_s": round(bandwidth, 1), "tflop_s": round(2 * 8192**3 / seconds / 1e12, 1)}
