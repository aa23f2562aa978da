"""The rules for what an op moves and computes at the least; see `Cost`."""

from __future__ import annotations

from heddle.graph.dim import Dim
from heddle.graph.ops.row import Attrs, Cost, CostRule, Types
from heddle.graph.types import TensorType

EXP = 16
"""Operations of exp or tanh inside of another op, as `heddle.kernels.bodies.work` counts them."""


def moved(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """Every operand is read, the result is written, and nothing is computed."""
    return Cost(sum((nbytes(type) for type in types), Dim(0)), nbytes(result), Dim(0))


def selected(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """Of the first operand only what becomes the result is read."""
    others = sum((nbytes(type) for type in types[1:]), Dim(0))
    return Cost(nbytes(result) + others, nbytes(result), Dim(0))


def elementwise(name: str) -> CostRule:
    """The op `name` for each element of the result."""

    def rule(types: Types, attrs: Attrs, result: TensorType) -> Cost:
        from heddle.kernels import bodies  # the emitters: a graph is built without them
        from heddle.kernels.spec import Body, Step

        count = bodies.work(Body(steps=(Step(name, (), result.dtype.name),)))
        return computed(types, result, result.shape.elements * count)

    return rule


def each_operand(count: int) -> CostRule:
    """`count` operations for each element of the first operand."""

    def rule(types: Types, attrs: Attrs, result: TensorType) -> Cost:
        return computed(types, result, types[0].shape.elements * count)

    return rule


def product(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """A multiplication and an addition for each element of the result and of the common dim."""
    return computed(types, result, result.shape.elements * types[0].shape[-1] * 2)


def computed(types: Types, result: TensorType, operations: Dim) -> Cost:
    """As `moved`, with `operations`."""
    moves = moved(types, {}, result)
    return Cost(moves.read, moves.written, operations)


def nbytes(type: TensorType) -> Dim:
    """The bytes of a tensor."""
    return type.shape.elements * type.dtype.size
