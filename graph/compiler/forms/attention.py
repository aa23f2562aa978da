"""Attention written out: a softmax of scaled and masked products, times the values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.masks import NOTHING, Mask, added, chosen
from heddle.graph.compiler.forms.positions import Band
from heddle.graph.compiler.forms.reading import Found, number, product, unwidened
from heddle.graph.compiler.parts import Parts
from heddle.graph.compiler.passes.canonicalize import holds
from heddle.graph.compiler.specs import has_kernel, request, source
from heddle.graph.dim import Dim
from heddle.graph.types import Shape

SWAPPED = {rank: (*range(rank - 2), rank - 1, rank - 2) for rank in range(2, 6)}
"""The permutation that turns keys, by their rank."""

MOST_STEPS = 8
"""Ops between the products and the softmax."""


def attention(operation: Any, kind: str) -> Found | None:
    """`softmax(q @ k.T * scale + mask) @ v`, of 2 axes (a head) to 5 (of keys and of queries)."""
    if m.name(operation) != "matmul" or m.attrs(operation)["precision"] != "full":
        return None
    shares, values = operation.operands
    softmax = m.owner(_narrowed(shares))
    if softmax is None or m.name(softmax) != "softmax":
        return None
    rank = m.tensor(shares).rank
    scores = _scores(softmax.operands[0])
    if scores is None or rank not in SWAPPED or m.attrs(softmax)["axis"] != rank - 1:
        return None
    form = _Form.of(operation, scores, values)
    if form is None or not form.has_kernel(kind):
        return None
    return Found((scores.query, scores.keys, values, *scores.mask.leaves), form.make)


@dataclass(frozen=True)
class _Scores:
    """`query @ keys * scale + mask`; `keys` are turned."""

    query: Any
    keys: Any
    scale: float = 1.0
    mask: Mask = NOTHING


def _scores(value: Any, most: int = MOST_STEPS) -> _Scores | None:
    """What `value`, which one op alone reads, is as scores."""
    operation = m.owner(value)
    if operation is None or m.only_user(value) is None or not most:
        return None
    name, operands = m.name(operation), list(operation.operands)
    if name == "matmul":
        (query, scale), (keys, factor) = map(_scaled, operands)
        full = m.attrs(operation)["precision"] == "full"
        return _Scores(query, keys, scale * factor) if full else None
    if name == "cast":
        narrow, wide = (m.tensor(v).dtype for v in (operands[0], value))
        return _scores(operands[0], most - 1) if holds(wide, narrow) else None
    if name in ("mul", "div"):
        unscaled, factor = _scaled(value)
        inside = _scores(unscaled, most - 1) if unscaled != value else None
        if inside is None or inside.mask != NOTHING:
            return None  # the mask would be scaled, too
        return replace(inside, scale=inside.scale * factor)
    shape = m.tensor(value).shape
    for scores, mask in _masked(name, operands, shape):
        inside = _scores(scores, most - 1) if m.tensor(scores).shape == shape else None
        if inside is not None:
            return replace(inside, mask=inside.mask | mask)
    return None


def _masked(name: str, operands: list[Any], shape: Shape) -> list[tuple[Any, Mask]]:
    """What may be scores in an op that masks, and the mask that its other operands are then."""
    found: list[tuple[Any, Any, Mask | None]] = []
    if name == "add":
        for scores, term in (operands, operands[::-1]):
            found.append((scores, term, added(term, shape)))
    elif name == "where":
        condition, first, second = operands
        for scores, fill, seen in ((first, second, True), (second, first, False)):
            found.append((scores, condition, chosen(condition, number(fill), shape, seen)))
    return [
        (scores, replace(mask, leaves=(source(leaf),)))
        for scores, leaf, mask in found
        if mask is not None
    ]


def _scaled(value: Any) -> tuple[Any, float]:
    """`value`, if one op alone reads it, as another one of its shape, times a number."""
    scaled = product(value, 2)
    if (
        m.only_user(value) is None
        or len(scaled.above) != 1
        or scaled.below
        or scaled.above[0].type != value.type
    ):
        return value, 1.0
    return scaled.above[0], scaled.number


def _narrowed(value: Any) -> Any:
    """The softmax behind a cast back to the dtype of the values."""
    operation = m.owner(value)
    if operation is None or m.name(operation) != "cast":
        return value
    wide, narrow = (m.tensor(v).dtype for v in (operation.operands[0], value))
    return operation.operands[0] if holds(wide, narrow) else value


@dataclass(frozen=True)
class _Form:
    """The form with its heads: queries' and keys' shapes as [batch, heads, sequence, size]."""

    operation: Any
    scale: float
    operands: tuple[Any, Any, Any]  # queries, keys before they are turned, values
    order: tuple[int, ...]  # of the axes of these keys
    shapes: tuple[Shape, Shape]
    mask: Mask
    band: Band

    @staticmethod
    def of(operation: Any, scores: _Scores, values: Any) -> _Form | None:
        result = m.tensor(operation.results[0])
        query, turned = (unwidened(v, result.dtype) for v in (scores.query, scores.keys))
        above = m.owner(turned)
        if above is None or m.name(above) != "transpose":
            return None  # they would have to be turned first
        keys, order = unwidened(above.operands[0], result.dtype), m.attrs(above)["permutation"]
        shape, behind = m.tensor(query), m.tensor(keys)
        rank = shape.rank
        if not rank == behind.rank == m.tensor(values).rank or shape != result:
            return None
        if len({type.dtype for type in (shape, behind, m.tensor(values))}) > 1:
            return None
        mask, band = scores.mask.settled()
        if not mask.fits(shape.dtype):
            return None
        order = tuple(order[axis] for axis in SWAPPED[rank])
        each = Shape(behind.shape[axis] for axis in order)
        if each != m.tensor(values).shape:
            return None
        shapes = _with_heads(shape.shape), _with_heads(each)
        queries, several = shapes
        if queries[0] != several[0] or queries[1].divided(several[1]) is None:
            return None
        if rank == 5 and (each[2] != 1 or any(_of_heads(value) for value in mask.values)):
            return None
        return _Form(operation, scores.scale, (query, keys, values), order, shapes, mask, band)

    def make(self) -> Any:
        """The attention, in the shape of the form."""
        query, keys, values = self.operands
        like = self.operation
        queries, several = self.shapes
        keys = m.create(like, "transpose", [keys], permutation=self.order)
        pairs = (query, queries), (keys, several), (values, several)
        operands = [m.create(like, "reshape", [value], shape=shape) for value, shape in pairs]
        for mask in self.mask.make(like, m.tensor(query).dtype):
            shape = m.tensor(mask).shape
            if len(shape) == 5:  # of keys' and of queries' heads there are none
                mask = m.create(like, "reshape", [mask], shape=Shape((*shape[:2], *shape[3:])))
            operands.append(mask)
        attrs = {"causal": self.band.causal, "window": self.band.window, "layout": "bhsd"}
        made = m.create(like, "attention", operands, scale=self.scale, **attrs)
        return m.create(like, "reshape", [made], shape=m.tensor(query).shape)

    def has_kernel(self, kind: str) -> bool:
        """Whether a kernel computes it."""
        value = self.make()
        made = m.owner(m.owner(value).operands[0])  # type: ignore[union-attr]
        spec = request(Parts((), made, (), tuple(made.results))).spec  # type: ignore[union-attr]
        m.discard(value)
        return has_kernel(spec, kind)


def _of_heads(mask: Any) -> bool:
    """Whether a mask differs between heads."""
    return any(dim != 1 for dim in m.tensor(mask).shape[-4:-2])


def _with_heads(shape: Shape) -> Shape:
    """A shape of 2 to 5 axes as [batch, heads, sequence, size]."""
    *leading, sequence, size = shape
    if len(leading) == 3:
        leading = [leading[0], leading[1] * leading[2]]
    return Shape((*[Dim(1)] * (2 - len(leading)), *leading, sequence, size))
