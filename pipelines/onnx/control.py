"""If, Loop and Scan: what they run is built, so their course has to be known with the file.

A step of a loop is built as often as it runs, each time with what the one before gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along
from heddle.pipelines.onnx.values import Value

if TYPE_CHECKING:
    import onnx

MOST = 1024
"""Steps of a loop."""

Body: TypeAlias = Callable[[Mapping[str, Value]], list[Value]]
"""The outputs of a graph inside of a node, given its inputs."""

Bodies: TypeAlias = "Callable[[onnx.GraphProto], Body]"


def chosen(node: Node, bodies: Bodies) -> list[Value]:
    """The outputs of the branch that an If takes."""
    condition = node.number(0, "the condition")
    return bodies(node["then_branch" if condition else "else_branch"])({})


def looped(node: Node, bodies: Bodies) -> list[Value]:
    """What a Loop ends with, and what its steps gave, one behind the other."""
    graph = node["body"]
    body, names = bodies(graph), [row.name for row in graph.input]
    trips = node.number(0, "the number of steps")
    going = bool(node.number(1, "the condition", True))
    if trips is None and not node.has(1):
        node.refuse("wanted a number of steps, or a condition, got neither")
    state, given = list(_present(node, 2)), []  # type: list[Value], list[list[Value]]
    while going and (trips is None or len(given) < trips):
        _check_steps(node, len(given) + 1)
        step = Value(known=np.array(len(given)))
        condition, *results = body(dict(zip(names, [step, Value(known=True), *state], strict=True)))
        if condition.known is None or condition.has_dims:
            node.refuse("wanted the end known when the file is read, got what the model computes")
        going = bool(condition.known)
        state, more = results[: len(state)], results[len(state) :]
        given.append(more)
    if not given and len(graph.output) > 1 + len(state):
        node.refuse("wanted at least one step, whose results lie one behind the other, got none")
    return [*state, *(_stacked(column, 0) for column in zip(*given, strict=True))]


def scanned(node: Node, bodies: Bodies) -> list[Value]:
    """What a Scan ends with, and what its steps gave, for each element along the inputs' axes."""
    if node.version < 9:
        node.refuse(f"wanted opset 9 or newer, got {node.version}")
    graph, count = node["body"], node["num_scan_inputs"]
    body, names = bodies(graph), [row.name for row in graph.input]
    values = _present(node, 0)
    first = len(values) - count
    state, inputs = list(values[:first]), [value.tensor for value in values[first:]]
    axes = node["scan_input_axes"] or [0] * count
    axes = [node.axes([axis], x.rank)[0] for axis, x in zip(axes, inputs, strict=True)]
    back = node["scan_input_directions"] or [0] * count
    sizes = {x.shape[axis].static for axis, x in zip(axes, inputs, strict=True)}
    if len(sizes) != 1 or None in sizes:
        node.refuse(f"wanted one known number of steps, got {[str(x.shape) for x in inputs]}")
    steps = int(sizes.pop() or 0)
    _check_steps(node, steps)
    given: list[list[Value]] = []
    for step in range(steps):
        slices = [
            Value(x[along(axis, steps - 1 - step if backwards else step)])
            for x, axis, backwards in zip(inputs, axes, back, strict=True)
        ]
        results = body(dict(zip(names, [*state, *slices], strict=True)))
        state, more = results[: len(state)], results[len(state) :]
        given.append(more)
    outputs = len(graph.output) - len(state)
    if not steps and outputs:
        node.refuse("wanted at least one step, whose results lie one behind the other, got none")
    places = node["scan_output_axes"] or [0] * outputs
    back = node["scan_output_directions"] or [0] * outputs
    columns = zip(*given, strict=True)
    return [
        *state,
        *(
            _stacked(column[::-1] if backwards else column, axis)
            for column, axis, backwards in zip(columns, places, back, strict=True)
        ),
    ]


CONTROL = {"If": chosen, "Loop": looped, "Scan": scanned}


def _present(node: Node, first: int) -> Sequence[Value]:
    """The inputs from `first` on, none of which may be left out."""
    values = [value for value in node.values[first:] if value is not None]
    if len(values) != len(node.values[first:]):
        node.refuse(f"wanted all inputs from {first} on, got some that are left out")
    return values


def _check_steps(node: Node, steps: int) -> None:
    if steps > MOST:
        node.refuse(f"wanted at most {MOST} steps, each of which is built, got more")


def _stacked(values: Sequence[Value], axis: int) -> Value:
    """The values side by side along a new axis."""
    arrays: list[Any] = [value.known for value in values]
    if all(array is not None for array in arrays):
        return Value(known=np.stack(arrays, axis=axis), dtype=values[0].dtype)
    tensors: list[TensorValue] = [value.tensor for value in values]
    return Value(ops.stack(tensors, axis=axis))
