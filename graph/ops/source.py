"""Values that come from no other value."""

from __future__ import annotations

from typing import Any

from heddle.graph.dtype import DType
from heddle.graph.types import DeviceRef
from heddle.graph.value import TensorValue, current_graph


def constant(
    value: Any, dtype: DType | None = None, device: DeviceRef | None = None
) -> TensorValue:
    """A constant of the graph whose `with` block is running; see `Graph.constant`."""
    return current_graph().constant(value, dtype, device)
