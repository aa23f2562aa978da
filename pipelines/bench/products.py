"""Peers of products alone: oneDNN with weights that it has packed, and cuBLAS, both by torch."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from heddle.pipelines.bench.device_time import TorchCall
from heddle.pipelines.bench.missing import MissingError

if TYPE_CHECKING:
    from heddle.pipelines.bench.case import Case, Prepared
    from heddle.pipelines.bench.measure import Call


def torch_for(name: str) -> Any:
    """The module torch, for the baseline `name`; raises MissingError where it is not installed."""
    if find_spec("torch") is None:
        what = "is not installed" if name == "torch" else "needs torch, which is not installed"
        raise MissingError(f"{name}: {what}; pip install torch")
    return import_module("torch")


TAKEN = {"matmul": ("float32", "bfloat16", "float16"), "integer_matmul": ("uint8",)}
"""What oneDNN is asked for. Torch quantizes to uint8; by int8 it runs its reference code."""


def onednn(case: Case, prepared: Prepared) -> list[Call]:
    """OneDNN's products: of each set the weight is packed before anything is timed."""
    torch = torch_for("onednn")
    op, weighted = prepared.workload.op, prepared.workload.operands[-1].weight
    if not weighted or case.dtype not in TAKEN.get(op, ()):
        wanted = "; ".join(f"{op} of {', '.join(dtypes)}" for op, dtypes in TAKEN.items())
        raise MissingError(f"onednn: has products by weights here, {wanted}; not {case.name}")
    torch.set_num_threads(case.threads)
    pack = _floats if op == "matmul" else _integers
    sets = [[torch.from_dlpack(buffer) for buffer in buffers] for buffers in prepared.sets]
    return [pack(torch, a, b.t().contiguous()) for a, b in sets]


def _floats(torch: Any, a: Any, weight: Any) -> Call:
    ops = torch.ops.mkldnn
    packed = ops._reorder_linear_weight(weight, a.shape[0])
    return partial(ops._linear_pointwise, a, packed, None, "none", [], "")


def _integers(torch: Any, a: Any, weight: Any) -> Call:
    """The sums of products as float32: oneDNN's form that scales nothing."""
    packed = torch.ops.onednn.qlinear_prepack(weight, list(a.shape))
    rows = weight.shape[0]
    scales, zeros = torch.ones(rows), torch.zeros(rows, dtype=torch.int64)
    into: list[Any] = [None, 1.0, 0, torch.float32, "none", [], ""]
    product = torch.ops.onednn.qlinear_pointwise
    return partial(product, a, 1.0, 0, packed, scales, zeros, *into)


def cublas(case: Case, prepared: Prepared) -> list[Call]:
    """CuBLAS's products."""
    torch = torch_for("cublas")
    if prepared.workload.op != "matmul":
        raise MissingError(f"cublas: has matmul alone here, not {case.name}")
    if not torch.cuda.is_available():
        raise MissingError("cublas: torch finds no GPU here; pip install a torch for CUDA")
    # float32 as float32: Heddle rounds no operand either.
    torch.backends.cuda.matmul.allow_tf32 = False
    sets = [[torch.from_dlpack(buffer).cuda() for buffer in buffers] for buffers in prepared.sets]
    outputs = [torch.from_dlpack(buffer) for buffer in prepared.outputs]

    return [
        TorchCall(torch, partial(torch.matmul, a, b, out=out))
        for (a, b), out in zip(sets, outputs, strict=True)
    ]
