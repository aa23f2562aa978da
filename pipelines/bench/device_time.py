"""Calls on a GPU, timed by the GPU: the chosen ones as one CUDA graph, between two events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heddle.runtime import replay

if TYPE_CHECKING:
    from heddle.runtime import Buffer, Model


@dataclass(frozen=True)
class ModelCall:
    """A model on its inputs, into the caller's output."""

    model: Model
    inputs: tuple[Buffer, ...]
    out: Buffer

    def __call__(self) -> object:
        """Runs it and waits."""
        result = self.model.execute(*self.inputs, out=[self.out])
        self.out.synchronize()
        return result

    @staticmethod
    def seconds(chosen: Sequence[ModelCall]) -> float:
        """The device's time for `chosen`, in order."""
        (time,) = replay([(call.model, call.inputs, (call.out,)) for call in chosen])
        return time


@dataclass(frozen=True)
class TorchCall:
    """A function of torch on tensors of a GPU."""

    torch: Any
    run: Callable[[], object]

    def __call__(self) -> object:
        """Runs it and waits."""
        result = self.run()
        self.torch.cuda.synchronize()
        return result

    @staticmethod
    def seconds(chosen: Sequence[TorchCall]) -> float:
        """The device's time for `chosen`, in order; the first of two launches does not count."""
        cuda = chosen[0].torch.cuda
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for call in chosen:
                call.run()
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return 1e-3 * float(begin.elapsed_time(end))


def device_clock(chosen: Sequence[Any]) -> float:
    """Seconds of one of `chosen` on the device; all are calls of one kind."""
    return float(chosen[0].seconds(chosen)) / len(chosen)
