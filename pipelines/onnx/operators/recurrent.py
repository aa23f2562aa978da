"""Recurrent layers: steps one after another in the graph, for sequences of a known length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import operator

MOST = 512
"""Steps of a sequence at most: each of them is a product of its own in the graph."""

State: TypeAlias = "list[TensorValue]"
"""What a step hands to the next: the hidden `[batch, hidden]`, and the cell of an LSTM."""

Activation: TypeAlias = "Callable[[TensorValue], TensorValue]"

Step: TypeAlias = "Callable[[TensorValue, State], State]"
"""The next state, of the input's share of the gates, `[batch, gates * hidden]`, and the state."""

DEFAULTS = {
    "RNN": ["Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
}

HARD = "HardSigmoid"

FUNCTIONS: dict[str, Callable[..., TensorValue]] = {
    "Sigmoid": ops.sigmoid,
    "Tanh": ops.tanh,
    "Relu": ops.relu,
    "Softsign": lambda x: x / (1 + ops.abs(x)),
    HARD: lambda x, alpha, beta: ops.clip(alpha * x + beta, 0.0, 1.0),
}
"""Activations by name; `HARD` alone takes numbers."""


@operator("RNN")
def rnn(node: Node) -> list[TensorValue | None]:
    """`h' = f(x @ w.T + h @ r.T + b)`."""

    def step(direction: int, functions: list[Activation]) -> tuple[Step, TensorValue | None]:
        [f] = functions
        recurrent = _of(node, 2, direction)

        def following(x: TensorValue, state: State) -> State:
            return [f(x + state[0] @ recurrent.T)]

        return following, _both_biases(node, direction)

    return _layer(node, step, [5])


@operator("GRU")
def gru(node: Node) -> list[TensorValue | None]:
    """Gates z and r: `h' = (1 - z) * g(x @ w.T + (r * h) @ r.T + b) + z * h` (arXiv:1406.1078).

    With `linear_before_reset` r multiplies the product, which PyTorch does, too.
    """
    late = bool(node["linear_before_reset"])

    def step(direction: int, functions: list[Activation]) -> tuple[Step, TensorValue | None]:
        f, g = functions
        recurrent = _of(node, 2, direction)
        size = int(recurrent.shape[-1])
        biases = None
        if late and node.has(3):
            biases = _of(node, 3, direction)[3 * size :]

        def following(x: TensorValue, state: State) -> State:
            [h] = state
            of_gates, of_new = x[:, : 2 * size], x[:, 2 * size :]
            if late:
                product = h @ recurrent.T
                product = product if biases is None else product + biases
                z, r = ops.split(f(of_gates + product[:, : 2 * size]), [size, size], axis=1)
                new = g(of_new + r * product[:, 2 * size :])
            else:
                gates = f(of_gates + h @ recurrent[: 2 * size].T)
                z, r = ops.split(gates, [size, size], axis=1)
                new = g(of_new + (r * h) @ recurrent[2 * size :].T)
            return [(1 - z) * new + z * h]

        if late:
            return following, _of(node, 3, direction)[: 3 * size] if node.has(3) else None
        return following, _both_biases(node, direction)

    return _layer(node, step, [5])


@operator("LSTM")
def lstm(node: Node) -> list[TensorValue | None]:
    """Gates i, o, f: `c' = f * c + i * g(...)` and `h' = o * h(c')`, with peepholes or without."""
    node.refuse_set("input_forget")

    def step(direction: int, functions: list[Activation]) -> tuple[Step, TensorValue | None]:
        f, g, h = functions
        recurrent = _of(node, 2, direction)
        size = int(recurrent.shape[-1])
        peepholes = None
        if node.has(7):
            peepholes = ops.split(_of(node, 7, direction), [size] * 3)

        def following(x: TensorValue, state: State) -> State:
            hidden, cell = state
            i, o, forget, new = ops.split(x + hidden @ recurrent.T, [size] * 4, axis=1)
            if peepholes is not None:
                i, forget = i + peepholes[0] * cell, forget + peepholes[2] * cell
            cell = f(forget) * cell + f(i) * g(new)
            if peepholes is not None:
                o = o + peepholes[1] * cell
            return [f(o) * h(cell), cell]

        return following, _both_biases(node, direction)

    return _layer(node, step, [5, 6])


def _layer(
    node: Node,
    step: Callable[[int, list[Activation]], tuple[Step, TensorValue | None]],
    initial: list[int],
) -> list[TensorValue | None]:
    """The hidden states of all steps, and the last state: of all directions.

    Args:
        node: Has x `[sequence, batch, size]`, weights `[directions, gates * hidden, size]`.
        step: Gives the step of a direction, and the bias of the input's product.
        initial: The inputs with the first state.
    """
    x = node(0)
    batch_first = bool(node["layout"])
    if batch_first:
        x = ops.transpose(x, 0, 1)
    length = x.shape[0].static
    if length is None or not 0 < length <= MOST:
        node.refuse(
            f"wanted a sequence of a known length from 1 to {MOST}, got {x.shape[0]}; "
            "say its size in dims"
        )
    turns = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    found = turns.get(node["direction"])
    if found is None or node(1).shape[0] != len(found):
        node.refuse(f"wanted weights of each direction ({node['direction']}), got {node(1).shape}")
    functions = _functions(node, len(found))
    every, last = [], []
    for direction, turned in enumerate(found):
        following, bias = step(direction, functions[direction])
        shares = x @ _of(node, 1, direction).T
        shares = shares if bias is None else shares + bias
        state = [_first(node, number, direction, x, batch_first) for number in initial]
        hidden, state = _unrolled(node, shares, state, following, turned)
        every.append(hidden)
        last.append(state)
    results = [ops.stack(every, axis=1) if node.outputs[0] else None]
    for values in zip(*last, strict=True):
        results.append(ops.stack(values, axis=1 if batch_first else 0))
    if batch_first and results[0] is not None:
        results[0] = ops.permute(results[0], [2, 0, 1, 3])
    return results


def _unrolled(
    node: Node, shares: TensorValue, state: State, step: Step, turned: bool
) -> tuple[TensorValue, State]:
    """The hidden states `[sequence, batch, hidden]`, and the last state.

    Where lengths are given, a step beyond a row's length leaves its state alone and gives zeros.
    """
    length = int(shares.shape[0])
    lengths = None if _are_full(node, length) else ops.unsqueeze(node(4), 1)
    hidden: dict[int, TensorValue] = {}
    for place in range(length)[:: -1 if turned else 1]:
        new = step(shares[place], state)
        if lengths is None:
            state = new
            hidden[place] = state[0]
            continue
        here = lengths > place
        state = [ops.where(here, *pair) for pair in zip(new, state, strict=True)]
        hidden[place] = ops.where(here, new[0], 0.0)
    return ops.stack([hidden[place] for place in range(length)]), state


def _are_full(node: Node, length: int) -> bool:
    """Whether all sequences are certainly as long as the longest may be."""
    value = node.values[4] if node.has(4) else None
    known = None if value is None else value.known
    return value is None or (known is not None and bool((known == length).all()))


def _first(
    node: Node, number: int, direction: int, x: TensorValue, batch_first: bool
) -> TensorValue:
    """The first hidden state or cell of a direction, `[batch, hidden]`: zeros if left out."""
    if node.has(number):
        return node(number)[:, direction] if batch_first else node(number)[direction]
    return ops.broadcast_to(ops.constant(0, x.dtype), [x.shape[1], node(2).shape[-1]])


def _of(node: Node, number: int, direction: int) -> TensorValue:
    """An input's part of a direction."""
    return node(number)[direction]


def _both_biases(node: Node, direction: int) -> TensorValue | None:
    """The biases of the input's and of the state's product in one, if there are any."""
    if not node.has(3):
        return None
    [of_input, of_state] = ops.chunk(_of(node, 3, direction), 2)
    return of_input + of_state


def _functions(node: Node, directions: int) -> list[list[Activation]]:
    """The activations of each direction, whose inputs `clip` bounds."""
    names = node["activations"] or DEFAULTS[node.kind] * directions
    count = len(DEFAULTS[node.kind])
    if len(names) < count * directions:
        node.refuse(f"wanted {count * directions} activations, got {', '.join(names)}")
    alphas, betas = (iter(node[f"activation_{name}"] or []) for name in ("alpha", "beta"))
    functions = [_function(node, name, alphas, betas) for name in names]
    return [functions[count * i : count * (i + 1)] for i in range(directions)]


def _function(node: Node, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    if name not in FUNCTIONS:
        node.refuse(f"wanted activations of {', '.join(FUNCTIONS)}, got {name}")
    numbers = {"alpha": next(alphas, 0.2), "beta": next(betas, 0.5)} if name == HARD else {}
    function = partial(FUNCTIONS[name], **numbers)
    bound: Any = node["clip"]
    return function if not bound else lambda x: function(ops.clip(x, -bound, bound))
