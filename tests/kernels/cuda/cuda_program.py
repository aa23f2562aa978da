"""Runs a graph's whole CUDA program on the emulator: the compiler's plan with emulated kernels."""

import numpy as np
from cuda_harness import MACHINE, blocks_started, built, tensor_map
from emulator.machine import Buffer, launch
from reference import numpy_dtype, shape, size

from heddle.graph.compiler import assemble
from heddle.graph.compiler.pipeline import lower
from heddle.kernels.mlir import ir
from heddle.kernels.registry import AHEAD, find
from heddle.kernels.spec import Spec
from heddle.runtime.artifact import Code, Copy, Dispatch, Routine, Weight


def _spec_as_code(spec: Spec) -> tuple[Code, ...]:
    """In place of machine code: the spec, for the emulator to build."""
    return (Code(MACHINE.arch, "ptx", spec.to_json().encode()),)


class EmulatedModel:
    """A graph compiled for CUDA, with its weights by name; call it with its inputs."""

    def __init__(self, graph, weights: dict[str, np.ndarray]) -> None:
        module = lower(graph.module, "cuda")
        records = [
            Weight(name, weight.dtype.name, tuple(map(int, weight.shape)))
            for name, weight in graph.weights.items()
        ]
        constants = assemble.Constants()
        _, self.inputs, self.outputs = assemble.signature(graph.module)
        asked = assemble.requests(module, "cuda")
        self.program = assemble.program(module, "cuda", asked, _spec_as_code, records, constants)
        self.weights = [_bytes(weights[record.name]) for record in records]
        self.constants = [
            np.frombuffer(constant.data, np.uint8).copy() for constant in constants.records
        ]

    def __call__(self, *arrays: np.ndarray) -> tuple[list[np.ndarray], list[int]]:
        """The outputs and the status word."""
        symbols: dict[str, int] = {}
        for tensor, array in zip(self.inputs, arrays, strict=True):
            symbols.update(
                (name, count)
                for name, count in zip(tensor.shape, array.shape, strict=True)
                if isinstance(name, str)
            )
        outputs = [
            np.zeros(shape(tensor.shape, symbols), numpy_dtype(tensor.dtype))
            for tensor in self.outputs
        ]
        held = {
            "input": [_bytes(array) for array in arrays],
            "output": [_bytes(array) for array in outputs],
            "weight": self.weights,
            "constant": self.constants,
            "state": [np.zeros(self.program.state, np.uint8)],
            "status": [np.zeros(32, np.uint8)],
            "counters": [np.zeros(1 << 16, np.uint8)],
        }
        for routine in (self.program.init, self.program.main):
            held["arena"] = [np.zeros(size(routine.arena, symbols), np.uint8)]
            self._run(routine, held, symbols)
        return outputs, held["status"][0].view(np.int64).tolist()

    def _run(self, routine: Routine, held, symbols: dict[str, int]) -> None:
        for instruction in routine.instructions:
            if isinstance(instruction, Copy):
                source, target = (
                    self._memory(held, number, symbols)
                    for number in (instruction.source, instruction.target)
                )
                target[:] = source
            else:
                self._dispatch(instruction, held, symbols)

    def _dispatch(self, step: Dispatch, held, symbols: dict[str, int]) -> None:
        kernel = self.program.kernels[step.kernel]
        spec = Spec.from_json(kernel.codes[0].data.decode())
        memory = [self._memory(held, number, symbols) for number in step.buffers]
        buffers = _buffers(spec, memory)
        emulated, program = built(spec, MACHINE)
        chosen = kernel.codes[0].launch
        started = kernel.launches[chosen]
        first = sum(before.tensor_maps for before in kernel.launches[:chosen])
        rows = step.tensor_maps[first : first + started.tensor_maps]
        maps = [tensor_map(buffers[row.buffer], row.item, row, symbols) for row in rows]
        with emulated, ir.Location.unknown():
            grid = shape(step.grids[chosen], symbols)
            if 0 in grid:
                return
            dims = [size(expr, symbols) for expr in step.dims]
            blocks = blocks_started(started, grid)
            launch(program, blocks, started.block[0], buffers, dims, started.shared, maps)
        assert not held["counters"][0].any(), "counters are left as zeros"

    def _memory(self, held, number: int, symbols: dict[str, int]) -> np.ndarray:
        buffer = self.program.buffers[number]
        start = size(buffer.offset, symbols) if buffer.kind in ("arena", "state") else 0
        stop = start + size(buffer.size, symbols)
        found = held[buffer.kind][buffer.index]
        assert stop <= len(found), f"{buffer} ends at {stop} of {len(found)} bytes"
        return found[start:stop]


def _buffers(spec: Spec, memory: list[np.ndarray]) -> list[Buffer]:
    """What the kernel is given: what it updates, and extras but the workspace, hold something."""
    row, reads = find(spec.op, "cuda"), len(spec.inputs)
    ahead = row.ahead(spec) if spec.attr(AHEAD) else ()
    extras = dict(enumerate(row.extras(spec), len(spec.buffers)))
    held = {*range(reads, reads + row.updates)}
    held |= {number for number, name in extras.items() if name != "workspace"}
    settled = {*ahead, *(number for number, name in extras.items() if name == "status")}
    return [
        Buffer(data, number >= reads, number in held, settled=number in settled)
        for number, data in enumerate(memory)
    ]


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
