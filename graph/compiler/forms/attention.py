"""Attention written out: a softmax of scaled and masked products, times the values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.masks import NOTHING, Mask, added, chosen
from heddle.graph.compiler.forms.positions import Band
from heddle.graph.compiler.forms.reading import Found, last_axis, number, scaled, unwidened
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
    """`softmax(q @ k.T * scale + mask) @ v`, of 2 axes (a head) to 5 (of keys and of queries).

    Batch and heads may be one axis in some of the products and two in others; scores may be capped.
    """
    if m.name(operation) != "matmul" or m.attrs(operation)["precision"] != "full":
        return None
    shares, values = operation.operands
    softmax, heads = _softmax(shares)
    if softmax is None or m.tensor(shares).rank not in SWAPPED or not last_axis(softmax):
        return None
    scores = _scores(softmax.operands[0])
    scores = scores.parted(heads) if scores and heads else scores
    form = _Form.of(operation, scores, values) if scores else None
    if scores is None or form is None or not form.has_kernel(kind):
        return None
    return Found((scores.query, scores.keys, values, *scores.mask.leaves), form.make)


@dataclass(frozen=True)
class _Scores:
    """`query @ keys * scale + mask`; `keys` are turned.

    `softcap`: scores are capped before the mask, as in the op; 0 where they are not.
    `heads`: the axes of batch and heads, where they are one axis somewhere.
    """

    query: Any
    keys: Any
    scale: float = 1.0
    softcap: float = 0.0
    mask: Mask = NOTHING
    heads: Shape | None = None

    def parted(self, heads: Shape | None) -> _Scores | None:
        """The scores with these axes, unless they have others."""
        known = heads is not None and self.heads in (None, heads)
        return replace(self, heads=heads) if known else None


def _scores(value: Any, most: int = MOST_STEPS) -> _Scores | None:
    """What `value`, which one op alone reads, is as scores."""
    operation = m.owner(value)
    if operation is None or m.only_user(value) is None or not most:
        return None
    name, operands = m.name(operation), list(operation.operands)
    if name == "matmul":
        (query, scale), (keys, factor) = map(scaled, operands)
        full = m.attrs(operation)["precision"] == "full"
        return _Scores(query, keys, scale * factor) if full else None
    if name == "reshape":
        inside = _scores(operands[0], most - 1)
        return inside.parted(_parted(operation)) if inside else None
    if name == "cast":
        narrow, wide = (m.tensor(v).dtype for v in (operands[0], value))
        return _scores(operands[0], most - 1) if holds(wide, narrow) else None
    if name in ("mul", "div"):
        unscaled, factor = scaled(value)
        if m.owner_name(unscaled) == "tanh":
            return _capped(unscaled, factor, most - 1)
        inside = _scores(unscaled, most - 1) if unscaled != value else None
        if inside is None or inside.mask != NOTHING or inside.softcap:
            return None  # the mask or the cap would be scaled, too
        return replace(inside, scale=inside.scale * factor)
    shape = m.tensor(value).shape
    for scores, mask in _masked(name, operands, shape):
        inside = _scores(scores, most - 1) if m.tensor(scores).shape == shape else None
        if inside is not None:
            return replace(inside, mask=inside.mask | mask)
    return None


def _capped(tanh: Any, cap: float, most: int) -> _Scores | None:
    """`cap * tanh(scores / cap)`, by what is in the tanh, which one op alone reads."""
    known = m.only_user(tanh) is not None and 0 < cap < math.inf
    inside = _scores(m.owner(tanh).operands[0], most - 1) if known else None  # type: ignore[union-attr]
    if inside is None or inside.mask != NOTHING or inside.softcap:
        return None
    return replace(inside, scale=inside.scale * cap, softcap=cap)


def _parted(reshape: Any) -> Shape | None:
    """Batch and heads, where a reshape makes one axis of them, or of one axis them."""
    shapes = [m.tensor(value).shape for value in (reshape.operands[0], reshape.results[0])]
    short, long = sorted(shapes, key=len)
    if (len(short), len(long)) != (3, 4) or short != (long[0] * long[1], *long[2:]):
        return None
    return Shape(long[:2])


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
    elif name == "maximum":  # with the lowest number, only what sees nothing changes
        for scores, lowest in (operands, operands[::-1]):
            least, dtype = number(lowest), m.tensor(lowest).dtype
            no_more = least is not None and least <= dtype.range[0]
            found.append((scores, lowest, NOTHING if no_more else None))
    return [
        (scores, replace(mask, leaves=(source(leaf),)))
        for scores, leaf, mask in found
        if mask is not None
    ]


def _softmax(shares: Any) -> tuple[Any | None, Shape | None]:
    """The softmax behind a cast back to the dtype of the values, and a reshape; its new axes."""
    heads, value = None, shares
    for _ in range(2):
        operation = m.owner(value)
        name = m.name(operation) if operation is not None else ""
        if operation is None or name not in ("cast", "reshape"):
            break
        if name == "reshape":
            heads = _parted(operation)
            known = heads is not None
        else:
            wide, narrow = (m.tensor(v).dtype for v in (operation.operands[0], value))
            known = holds(wide, narrow)
        if not known:
            return None, None
        value = operation.operands[0]
    operation = m.owner(value)
    found = operation is not None and m.name(operation) == "softmax"
    return (operation, heads) if found else (None, None)


@dataclass(frozen=True)
class _Form:
    """The form with its heads: queries' and keys' shapes as [batch, heads, sequence, size]."""

    operation: Any
    scale: float
    softcap: float
    operands: tuple[Any, Any, Any]  # queries, keys before they are turned, values
    order: tuple[int, ...]  # of the axes of these keys
    shapes: tuple[Shape, Shape]
    mask: Mask
    band: Band

    @staticmethod
    def of(operation: Any, scores: _Scores, values: Any) -> _Form | None:
        result = m.tensor(operation.results[0])
        query, turned = (unwidened(v, result.dtype) for v in (scores.query, scores.keys))
        above, heads = m.owner(turned), scores.heads
        if above is not None and m.name(above) == "reshape":
            heads = _parted(above)
            above = m.owner(above.operands[0])
            if scores.heads not in (None, heads):
                return None
        if above is None or m.name(above) != "transpose":
            return None  # they would have to be turned first
        keys, order = unwidened(above.operands[0], result.dtype), m.attrs(above)["permutation"]
        types = [m.tensor(value) for value in (query, keys, values)]
        if any(type.dtype is not result.dtype for type in types):
            return None
        mask, band = scores.mask.settled()
        rank = types[1].rank
        if not mask.fits(result.dtype) or rank not in SWAPPED:
            return None
        order = tuple(order[axis] for axis in SWAPPED[rank])
        each = Shape(types[1].shape[axis] for axis in order)
        shapes = [types[0].shape, each, types[2].shape, result.shape]
        heads = heads or _heads_before(query, keys, values)
        queries, several, others, wanted = (_with_heads(s, heads) for s in shapes)
        if not queries or not several or several != others or queries != wanted:
            return None
        if heads is None and len(set(map(len, shapes))) > 1:
            return None
        if queries[0] != several[0] or queries[1].divided(several[1]) is None:
            return None
        if rank == 5 and (each[2] != 1 or any(_of_heads(value) for value in mask.values)):
            return None
        operands, alike = (query, keys, values), (queries, several)
        numbers = scores.scale, scores.softcap
        return _Form(operation, *numbers, operands, order, alike, mask, band)

    def make(self) -> Any:
        """The attention, in the shape of the form."""
        query, keys, values = self.operands
        like = self.operation
        queries, several = self.shapes
        keys = m.create(like, "transpose", [keys], permutation=self.order)
        pairs = (query, queries), (keys, several), (values, several)
        operands = [m.create(like, "reshape", [value], shape=shape) for value, shape in pairs]
        operands += self.mask.make(like, m.tensor(query).dtype, self._laid)
        attrs = {"causal": self.band.causal, "window": self.band.window, "layout": "bhsd"}
        attrs |= {"scale": self.scale, "softcap": self.softcap}
        made = m.create(like, "attention", operands, **attrs)
        return m.create(like, "reshape", [made], shape=m.tensor(like.results[0]).shape)

    def _laid(self, mask: Any) -> Any:
        """A value that hides scores, with the axes that the attention has."""
        shape, (batch, heads, *_) = m.tensor(mask).shape, self.shapes[0]
        if len(shape) == 5:  # of keys' and of queries' heads there are none
            shape = Shape((*shape[:2], *shape[3:]))
        elif len(shape) == 3 and shape[0] == batch * heads:
            shape = Shape((batch, heads, *shape[1:]))
        else:
            return mask
        return m.create(self.operation, "reshape", [mask], shape=shape)

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


def _heads_before(*values: Any) -> Shape | None:
    """Batch and heads, where they have become one axis of each value in the same way."""
    above = [m.owner(value) for value in values]
    found = {
        _parted(each) if each is not None and m.name(each) == "reshape" else None for each in above
    }
    return found.pop() if len(found) == 1 and m.tensor(values[0]).rank == 3 else None


def _with_heads(shape: Shape, heads: Shape | None) -> Shape | None:
    """A shape as [batch, heads, sequence, size]: of 2 to 5 axes, or with `heads` as one or two."""
    *leading, sequence, size = shape
    if heads:
        known = leading in ([*heads], [heads[0] * heads[1]])
        return Shape((*heads, sequence, size)) if known else None
    if len(leading) == 3:
        leading = [leading[0], leading[1] * leading[2]]
    return Shape((*[Dim(1)] * (2 - len(leading)), *leading, sequence, size))
