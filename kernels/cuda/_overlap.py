"""Kernels that start before the one in front of them has ended (PTX ISA 9.0, "griddepcontrol").

Until its wait a kernel touches no global memory. It may ask for some, into the L2 cache, which all
writes go through: what it reads later is right even where the kernel in front writes there.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect, ir

arith, llvm, nvvm = (dialect(name) for name in ("arith", "llvm", "nvvm"))


def let_next_start() -> None:
    """Lets the next kernel start as soon as there is room for it."""
    _control("launch_dependents")


def wait() -> None:
    """Waits for the end of the last kernel, and of what that one waited for; again, for nothing."""
    _control("wait")


def ask(pointer: Any, size: Any) -> None:
    """Asks for `size` bytes from `pointer` on, both multiples of 16, all of them in a buffer."""
    place = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<1>"), pointer)
    nvvm.cp_async_bulk_prefetch(place, arith.trunci(emit.integer(32), size))


def _control(action: str) -> None:
    kind = ir.Attribute.parse(f"#nvvm<grid_dep_action {action}>")
    ir.Operation.create("nvvm.griddepcontrol", attributes={"kind": kind})
