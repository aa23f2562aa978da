"""Names the kernel that computes each group, or says why there is none."""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.parts import parts_of
from heddle.graph.compiler.specs import request
from heddle.kernels import registry
from heddle.kernels.mlir import ir
from heddle.kernels.spec import Spec


def select(module: Any, kind: str) -> None:
    """Gives each fused op the attribute `kernel`: the registry's op and what tells specs apart."""
    for operation in m.operations(module):
        if m.name(operation) == "fused":
            spec = request(parts_of(operation)).spec
            row = registry.find(spec.op, kind)
            if row is None:
                raise m.RefusalError(operation, f"no {kind} kernel computes {spec.op!r}")
            reason = row.supports(spec)
            if reason is not None:
                raise m.RefusalError(operation, f"the {kind} kernel of {spec.op!r}: {reason}")
            operation.attributes["kernel"] = ir.StringAttr.get(kernel_name(spec))


def kernel_name(spec: Spec) -> str:
    """`"matmul_packed-3f2a91c04b7d"`: the same wherever the same work is asked for."""
    return f"{spec.op}-{spec.digest[:12]}"
