"""Products that wgmma computes, and how the tests of them are set up."""

from dataclasses import replace

import cuda_harness
from cuda_cases import fused, plain, tensor

from heddle.kernels.cuda.products import partial_sums, pieces
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Body, Spec, Step
from heddle.kernels.tuning import forced

HOPPER = MACHINES["sm_90a"]


def cut_into_pieces(monkeypatch) -> list[int]:
    """Tiles are cut as small as can be, among the clusters of six multiprocessors.

    Each place in a kernel that brings pieces together adds to the list.
    """
    brought, bring = [], partial_sums.Meeting.bring
    monkeypatch.setattr(
        partial_sums.Meeting, "bring", lambda *args: (brought.append(1), bring(*args))[1]
    )
    monkeypatch.setattr(pieces, "LEAST", 1)
    monkeypatch.setattr(pieces, "COST", 0)
    monkeypatch.setattr(cuda_harness, "PROCESSORS", 6)
    return brought


def product(dtype: str, m, n, k, transposed: bool, batch: tuple = ()) -> Spec:
    right = (n, k) if transposed else (k, n)
    op, other, result = ("matmul", dtype, dtype)
    if dtype.endswith("int8"):
        op, other, result = ("integer_matmul", "int8", "int32")
    operands = [tensor(dtype, *batch, m, k), tensor(other, *batch[1:], *right)]
    return plain(op, operands, tensor(result, *batch, m, n), transposed=transposed)


def body(spec: Spec, outputs: int = 2) -> Spec:
    return fused(spec, prologue=False, outputs=outputs)


def columns(count: int):
    return forced({op: {"columns": count} for op in ("matmul", "integer_matmul")})


def dequantised(m, n, k: int) -> Spec:
    """Bytes, times a scale of each row and of each column, through gelu, which divides."""
    spec, single = product("int8", m, n, k, True), "float32"
    steps = (
        Step("cast", (0,), single),
        Step("mul", (3, 1), single),
        Step("mul", (4, 2), single),
        Step("gelu", (5,), single, (("approximate", "tanh"),)),
        Step("cast", (6,), "bfloat16"),
    )
    after = Body((tensor(single, m, 1), tensor(single, n)), steps, (7,))
    return replace(spec, epilogue=after, outputs=(tensor("bfloat16", m, n),))
