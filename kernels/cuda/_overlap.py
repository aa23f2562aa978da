"""Kernels that start before the one in front of them has ended (PTX ISA 9.0, "griddepcontrol").

Until its wait a kernel touches no global memory, but that it may read what no kernel writes: what
its graph is given. Where some of that comes with a call, the first kernel of a run is not started
ahead of what is in front of it, so that it is there.
"""

from __future__ import annotations

from heddle.kernels.mlir import ir


def let_next_start() -> None:
    """Lets the next kernel start as soon as there is room for it."""
    _control("launch_dependents")


def wait() -> None:
    """Waits for the end of the last kernel, and of what that one waited for."""
    _control("wait")


def _control(action: str) -> None:
    kind = ir.Attribute.parse(f"#nvvm<grid_dep_action {action}>")
    ir.Operation.create("nvvm.griddepcontrol", attributes={"kind": kind})
