"""What `benchmarks/gpu.py` compares with: torch's functions, which call cuBLAS and cuDNN.

Some have several forms: the fastest one is the peer. `compiled` is a kernel of Triton's, which
torch.compile writes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

EPSILON = 1e-5

TRIED = 5
"""Replays of each form, the best of which tells how fast it is."""

torch.backends.cudnn.benchmark = True  # Of its convolutions, too, the fastest is the peer.

# float32 as float32, whatever the environment says: Heddle rounds no operand either.
torch.backends.cuda.matmul.allow_tf32 = False

Call = Callable[[], Any]
Form = Callable[..., Call]
"""Makes a call of tensors; what it does to them at first is not timed."""


def _turned(a: Any, b: Any) -> Call:
    """The product with columns of b that lie in memory one behind the other, as nn.Linear's do."""
    return partial(torch.matmul, a, b.mT.contiguous().mT)


def _conv(x: Any, weight: Any) -> Call:
    """With channels last, as ours; what it gives is turned back without a copy."""
    pixels = x.permute(0, 3, 1, 2)
    kernels = weight.to(memory_format=torch.channels_last)
    padding = weight.shape[-1] // 2
    return lambda: functional.conv2d(pixels, kernels, padding=padding).permute(0, 2, 3, 1)


def _groups(a: Any, b: Any, offsets: Any) -> Call:
    """Groups of as many rows each, which the timings have, as a batch."""
    rows = a.view(b.shape[0], -1, a.shape[-1])
    return lambda: torch.bmm(rows, b).view(a.shape[0], -1)


def _grouped(a: Any, b: Any, offsets: Any) -> Call:
    columns, ends = b.mT.contiguous().mT, offsets[1:].int()
    return lambda: torch._grouped_mm(a, columns, ends)


def _int8(a: Any, b: Any) -> Call:
    return partial(torch._int_mm, a, b.mT.contiguous().mT)


def _float8(a: Any, b: Any) -> Call:
    one = torch.ones((), device=a.device)
    options = {"scale_a": one, "scale_b": one, "out_dtype": torch.float32}
    return partial(torch._scaled_mm, a, b.mT.contiguous().mT, **options)


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _prompt(query: Any, key: Any, value: Any, *offsets: Any) -> Call:
    """One row of tokens, whose query heads share key heads."""
    heads = [side.transpose(0, 1)[None] for side in (query, key, value)]

    def run() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            found = functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return found[0].transpose(0, 1)

    return run


def _attention(backend: Any, causal: bool) -> Form:
    def run(query: Any, key: Any, value: Any) -> Any:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    return lambda *tensors: partial(run, *tensors)


def _attentions(causal: bool) -> dict[str, Form]:
    backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    return {name: _attention(backend, causal) for name, backend in backends.items()}


def _both(function: Callable[..., Any]) -> dict[str, Form]:
    """As it is and compiled, which takes seconds at the first call; torch's switch turns it off."""
    forms = {"eager": partial(partial, function)}
    if os.environ.get("TORCHDYNAMO_DISABLE") != "1":
        forms["compiled"] = partial(partial, torch.compile(function, dynamic=False))
    return forms


FORMS: dict[str, dict[str, Form]] = {
    "matmul": {"b as [k, n]": partial(partial, torch.matmul), "b as [n, k]": _turned},
    "attention": _attentions(False),
    "attention_causal": _attentions(True),
    "rms_norm": _both(lambda x, w: functional.rms_norm(x, x.shape[-1:], w, EPSILON)),
    "layer_norm": _both(lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, EPSILON)),
    "softmax": _both(lambda x: torch.softmax(x, -1)),
    "silu": _both(lambda x: functional.silu(x)),
    "add": _both(lambda x, y: torch.add(x, y)),
    "transpose": _both(lambda x: x.t().contiguous()),
    "sum": _both(lambda x: torch.sum(x, -1, keepdim=True)),
    "rope": _both(_rotated),
    "conv": {"cuDNN": _conv},
    "grouped_matmul": {"batch": _groups, "groups": _grouped},
    "integer_matmul": {"int8": _int8},
    "float8_matmul": {"float8": _float8},
    "ragged_attention": {"cuDNN": _prompt},
}
"""By workload; a workload without one has no peer."""


class Graph:
    """The calls of all sets, `repeats` times, as one CUDA graph, each set with a result of its own.

    `refused` says why other forms did not run.
    """

    def __init__(self, form: str, calls: Sequence[Call], repeats: int) -> None:
        self.name = f"torch {torch.__version__}, {form}"
        self.refused: list[str] = []
        with torch.inference_mode():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):  # what a library sets up at its first call
                for call in calls:
                    call()
            side.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                # Results of a round are there until the next one's are: memory rotates, as ours.
                for _ in range(repeats):
                    self._results = [call() for call in calls]
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
        """What the replays have written for the first set, on the host."""
        found = self._results[0]
        return (found.float() if found.is_floating_point() else found).cpu().numpy()


def graph_of(case: dict[str, Any], sets: list[list[Any]], repeats: int) -> Graph | None:
    """The fastest peer of `case` on `sets` of Buffers of the device, or None.

    Raises:
        RuntimeError: All forms refuse the case.
    """
    forms = FORMS.get(case["name"], {})
    tensors = [[_tensor(buffer) for buffer in buffers] for buffers in sets] if forms else []
    best, fastest, refused = None, float("inf"), []
    for name, form in forms.items():
        try:
            made = Graph(name, [form(*each) for each in tensors], repeats)
            seconds = min(made.replay(TRIED))
        except Exception as error:
            refused.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if seconds < fastest:
            best, fastest = made, seconds
    if forms and best is None:
        raise RuntimeError("; ".join(refused))
    if best:
        best.refused = refused
    return best


def _tensor(buffer: Any) -> Any:
    """The memory of a Buffer; that of 8-bit floats, which DLPack of old has not, as a copy."""
    if buffer.dtype.startswith("float8"):
        bits = torch.from_numpy(buffer.to_numpy().view("uint8").copy()).cuda()
        return bits.view(getattr(torch, buffer.dtype))
    return torch.from_dlpack(buffer)


def limits() -> dict[str, float]:
    """The device's own ceilings: copy bandwidth in GB/s, a bfloat16 product in TFLOP/s."""
    with torch.inference_mode():
        source = torch.randn(1 << 28, device="cuda")
        target = torch.empty_like(source)
        # By whichever copies faster: what torch has for it, or a kernel that computes on the way.
        calls = partial(target.copy_, source), partial(torch.neg, source, out=target)
        seconds = min(second for call in calls for second in Graph("", [call], 8).replay(10)) / 8
        bandwidth = 2 * source.nbytes / seconds / 1e9
        del source, target, calls
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        seconds = min(Graph("product", [partial(torch.matmul, a, b)], 4).replay(10)) / 4
    return {"copy_gb_s": round(bandwidth, 1), "tflop_s": round(2 * 8192**3 / seconds / 1e12, 1)}
