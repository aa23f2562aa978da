"""The runtime on a real GPU: others' arrays in and out, in the order of streams; what it refuses.

Each question is a function that raises where the answer is wrong. CuPy and torch are asked where
they are installed. The last question breaks the device's context on purpose.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

BOTH, GATHER, CHAIN = "runtime.heddle", "gather.heddle", "chain.heddle"
"""Of `x * 2 + 1` and the elements of x that indices name, of these alone, and of `x @ w`."""

LENGTH = 1 << 20

MOST = (1 << 31) - 1
"""The largest dim."""

ROWS, WIDE, RUNS = 8, 2048, 200
"""Of x in the product by w, and how often it is multiplied."""

SLOW, TIMES = 4096, 20
"""The product that keeps a stream busy, and how often: some milliseconds."""


def make(folder: Path, target: str) -> None:
    """Compiles what is run."""
    from heddle.graph import DType, Graph, TensorType, Weight, compile, ops

    types = [TensorType(DType.float32, ("n",)), TensorType(DType.int64, ("m",))]
    for file in (BOTH, GATHER):
        with Graph("runtime", types) as graph:
            x, index = graph.inputs
            chosen = ops.gather(x, index, axis=0)
            graph.output(*[x * 2 + 1, chosen] if file == BOTH else [chosen])
        compile(graph, target).save(folder / file)
    with Graph("chain", [TensorType(DType.float16, (ROWS, WIDE))]) as graph:
        weight = graph.add_weight(Weight("w", DType.float16, (WIDE, WIDE)))
        graph.output(ops.matmul(graph.inputs[0], weight))
    compile(graph, target).save(folder / CHAIN)


def _drawn(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(LENGTH, np.float32), rng.integers(0, LENGTH, 1000)


def _expect(found: Any, wanted: Any) -> None:
    if not np.array_equal(found, wanted):
        raise AssertionError(f"wanted {wanted}, got {found}")


def _refused(kind: type[Exception], words: str, call: Callable[[], Any]) -> str:
    try:
        call()
    except kind as error:
        if words in str(error):
            return str(error)
        raise AssertionError(f"wanted an error with {words!r}, got: {error}") from error
    raise AssertionError(f"wanted {kind.__name__} with {words!r}, got none")


class Questions:
    """What is asked, in order, of a model on a device."""

    def __init__(self, kit: Any) -> None:
        self.kit, self.device = kit, kit.device
        self.model, self.gather = (kit.session.load(kit.folder / file) for file in (BOTH, GATHER))

    def numpy(self) -> None:
        """Arrays of the host, which may change right behind the call."""
        x, index = _drawn(0)
        given = x.copy()
        doubled, chosen = self.model.execute(given, index)
        given[...] = np.nan
        _expect(doubled.to_numpy(), x * 2 + 1)
        _expect(chosen.to_numpy(), x[index])

    def cupy(self) -> None:
        """Arrays of CuPy, in the order of its stream, which is busy; results without a copy."""
        import cupy

        x, index = _drawn(1)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            slow = cupy.ones((SLOW, SLOW), cupy.float32)
            given = cupy.zeros(LENGTH, cupy.float32)
            held = cupy.asarray(x)
            for _ in range(TIMES):
                slow = slow @ slow * np.float32(1 / SLOW)
            given[...] = held + slow[0, 0] * 0
            doubled, _ = self.model.execute(given, cupy.asarray(index), stream=stream)
            found = cupy.asarray(doubled)
            if found.data.ptr != doubled.__cuda_array_interface__["data"][0]:
                raise AssertionError("wanted a result without a copy")
            given[...] = np.nan  # Behind the call, on its stream.
            _expect(cupy.asnumpy(found + 1), x * 2 + 1 + 1)

    def torch(self) -> None:
        """Tensors of torch by DLPack, on a busy stream of its own; into its memory, too."""
        import torch

        x, index = _drawn(2)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            slow = torch.ones(SLOW, SLOW, device="cuda")
            given = torch.zeros(LENGTH, device="cuda")
            held, chosen = torch.from_numpy(x).cuda(), torch.from_numpy(index).cuda()
            for _ in range(TIMES):
                slow = slow @ slow / SLOW
            given.copy_(held + slow[0, 0] * 0)
            out = torch.empty(LENGTH, device="cuda"), torch.empty(1000, device="cuda")
            self.model.execute(given, chosen, out=out, stream=stream)
            given.fill_(float("nan"))
            _expect((out[0] + 1).cpu().numpy(), x * 2 + 1 + 1)
            doubled, _ = self.model.execute(held, chosen, stream=stream)
            _expect(torch.from_dlpack(doubled).cpu().numpy(), x * 2 + 1)

    def graphs(self) -> None:
        """The same addresses again and again: a graph, which reads what is in them by then."""
        from heddle.runtime import Buffer

        x, index = (Buffer.from_numpy(array).to(self.device) for array in _drawn(3))
        out = Buffer("float32", (LENGTH,), self.device), Buffer("float32", (1000,), self.device)
        for _ in range(8):  # Two graphs: from x to the result, and back.
            before = x.to_numpy()
            self.model.execute(x, index, out=out)
            _expect(out[0].to_numpy(), before * 2 + 1)
            x, out = out[0], (x, out[1])
        if self.model.diagnostics:
            raise AssertionError(f"wanted no trouble with graphs, got {self.model.diagnostics}")

    def chain(self) -> None:
        """Runs of which each reads what the one in front wrote, and may start before its end."""
        from heddle.runtime import Buffer

        rng = np.random.default_rng(4)
        order = rng.permutation(WIDE)  # A product that moves columns is exact.
        weights = {"w": np.eye(WIDE, dtype=np.float16)[:, order]}
        model = self.kit.session.load(self.kit.folder / CHAIN, weights)
        wanted = rng.standard_normal((ROWS, WIDE)).astype(np.float16)
        x = Buffer.from_numpy(wanted).to(self.device)
        out = Buffer("float16", (ROWS, WIDE), self.device)
        for _ in range(RUNS):
            model.execute(x, out=(out,))
            wanted, x, out = wanted[:, order], out, x
        _expect(x.to_numpy(), wanted)

    def refused_values(self) -> None:
        """An index out of range is told by the op's name, and the next call is as before."""
        from heddle.runtime import InputError

        x, index = _drawn(4)
        index[7] = LENGTH
        _, chosen = self.model.execute(x, index)
        _refused(InputError, "gather", chosen.to_numpy)
        self.numpy()

    def refused_arrays(self) -> None:
        """Memory of the host that claims to be a GPU's, strides, a result for the host."""
        from heddle.runtime import Buffer, InputError

        x, index = _drawn(5)
        interface = {
            "data": (x.ctypes.data, False),
            "shape": x.shape,
            "typestr": "<f4",
            "version": 3,
        }
        host = SimpleNamespace(__cuda_array_interface__=interface)
        _refused(InputError, "no GPU's", lambda: self.model.execute(host, index))
        device = Buffer.from_numpy(x).to(self.device).__cuda_array_interface__
        apart = SimpleNamespace(
            __cuda_array_interface__={**device, "shape": (LENGTH // 2,), "strides": (8,)}
        )
        _refused(InputError, "strides", lambda: self.model.execute(apart, index))
        out = np.empty(LENGTH, np.float32), np.empty(1000, np.float32)
        _refused(InputError, "wanted", lambda: self.model.execute(x, index, out=out))
        self.numpy()

    def memory(self) -> None:
        """More than there is: an error with numbers, behind which all goes on."""
        from heddle.runtime import Buffer, DeviceError, memory_statistics

        _refused(DeviceError, "memory", lambda: Buffer("float32", (1 << 40,), self.device))
        self.numpy()
        if memory_statistics(self.device).peak <= 0:
            raise AssertionError("wanted a peak of memory above 0")

    def fault(self) -> None:
        """Memory that is shorter than it claims: the error names the kernel, and all is lost."""
        from heddle.runtime import Buffer, DeviceError

        x, index = _drawn(6)
        held = Buffer.from_numpy(x).to(self.device)
        claimed = {**held.__cuda_array_interface__, "shape": (MOST,)}
        index += MOST - LENGTH  # 8 GiB behind it.
        liar = SimpleNamespace(__cuda_array_interface__=claimed)
        text = _refused(
            DeviceError, "gather", lambda: self.gather.execute(liar, index)[0].to_numpy()
        )
        _refused(DeviceError, "", lambda: self.model.execute(x, index)[0].to_numpy())
        print(f"fault: {text}", flush=True)


LIBRARIES = ("cupy", "torch")

NAMES = [name for name in vars(Questions) if not name.startswith("_")]
"""In the order in which they are asked."""


def answer(kit: Any, name: str) -> dict[str, Any]:
    """The row of a question."""
    if name in LIBRARIES and importlib.util.find_spec(name) is None:
        return {"name": name, "skipped": "it is not installed"}
    row: dict[str, Any] = {"name": name, "failed": []}
    try:
        getattr(Questions(kit), name)()
    except Exception as error:
        row["failed"].append(f"{type(error).__name__}: {error}")
    return row
