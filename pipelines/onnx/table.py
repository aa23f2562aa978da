"""The table of operators: what each ONNX operator is in Heddle's ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from heddle.graph import TensorValue

if TYPE_CHECKING:
    from heddle.pipelines.onnx.node import Node

Results: TypeAlias = "TensorValue | Sequence[TensorValue | None]"

Operator: TypeAlias = "Callable[[Node], Results]"
"""Builds what a node computes; returns its outputs, the first ones at least."""

OPERATORS: dict[tuple[str, str], Operator] = {}
"""By domain and name."""

DOMAINS = ("", "ai.onnx.ml", "com.microsoft")


def canonical(domain: str) -> str:
    """The domain with one name for ONNX itself."""
    return "" if domain == "ai.onnx" else domain


def declared(kind: str, opset: int, domain: str = "") -> Any:
    """ONNX's own declaration of an operator as of an opset, a schema; None: there is none."""
    from onnx import defs

    try:
        return defs.get_schema(kind, opset, domain)
    except defs.SchemaError:
        return None


def direct(name: str, function: Callable[..., Any]) -> None:
    """Says that an operator is this function of its inputs."""
    operator(name)(lambda node: function(*node.tensors()))


def operator(*names: str, domain: str = "") -> Callable[[Operator], Operator]:
    """Says that a function builds the operators `names`."""

    def put(function: Operator) -> Operator:
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = function
        return function

    return put
