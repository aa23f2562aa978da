"""What hides scores from a softmax: conditions, numbers that are added, the order of positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from heddle.graph.bounds import never_negative
from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.positions import HIDDEN, Band, band_of
from heddle.graph.compiler.forms.reading import bare, made, number, unwidened
from heddle.graph.dtype import DType
from heddle.graph.types import Shape

MOST_PARTS = 6
"""How deep conditions are looked for in conditions."""


@dataclass(frozen=True)
class Hidden:
    """Scores are `fill` where `condition` is not `seen`, or have it added there."""

    condition: Any
    seen: bool
    fill: float


@dataclass(frozen=True)
class Mask:
    """All that hides scores of [..., queries, keys]; `leaves` are what the form reads for it."""

    hidden: tuple[Hidden, ...] = ()
    terms: tuple[Any, ...] = ()
    bands: tuple[tuple[Band, Mask], ...] = ()
    leaves: tuple[Any, ...] = ()

    def __or__(self, other: Mask) -> Mask:
        return Mask(
            self.hidden + other.hidden,
            self.terms + other.terms,
            self.bands + other.bands,
            self.leaves + other.leaves,
        )

    @property
    def values(self) -> tuple[Any, ...]:
        """What is hidden by is made of these."""
        return tuple(each.condition for each in self.hidden) + self.terms

    def settled(self) -> tuple[Mask, Band]:
        """The mask without bands that are an attribute of attention, and those as one.

        A window is one of causal attention alone.
        """
        causal = any(band.causal for band, _ in self.bands)
        attribute = (
            reduce(Band.both, (band for band, _ in self.bands), Band()) if causal else Band()
        )
        left = () if causal else tuple(mask for _, mask in self.bands)
        return reduce(Mask.__or__, left, replace(self, bands=())), attribute

    def fits(self, dtype: DType) -> bool:
        """Whether attention of `dtype` takes it."""
        fills = [each.fill for each in self.hidden if each.fill != -math.inf]
        terms = [m.tensor(unwidened(term, dtype)).dtype for term in self.terms]
        return not (fills and dtype is DType.float16) and all(term is dtype for term in terms)

    def make(self, like: Any, dtype: DType, laid: Callable[[Any], Any]) -> list[Any]:
        """The mask operand of attention before `like`; none where nothing is hidden.

        `laid` gives a value the axes of the attention.
        """

        def made(op: str, *operands: Any) -> Any:
            return m.create(like, op, operands)

        def seen(each: Hidden) -> Any:
            condition = laid(each.condition)
            return condition if each.seen else made("logical_not", condition)

        def filled(each: Hidden) -> Any:
            lowest = max(each.fill, dtype.range[0])
            zero, fill = (m.number(like, value, dtype) for value in (0.0, lowest))
            return made("where", seen(each), zero, fill)

        never = [seen(each) for each in self.hidden if each.fill == -math.inf]
        terms = [laid(unwidened(term, dtype)) for term in self.terms]
        terms += [filled(each) for each in self.hidden if each.fill != -math.inf]
        condition = [reduce(lambda a, b: made("logical_and", a, b), never)] if never else []
        total = [reduce(lambda a, b: made("add", a, b), terms)] if terms else []
        if condition and total:
            return [made("where", *condition, *total, m.number(like, -math.inf, dtype))]
        return condition or total


NOTHING = Mask()
"""The mask that hides nothing."""


def chosen(
    condition: Any, fill: float | None, scores: Shape, seen: bool = True, most: int = MOST_PARTS
) -> Mask | None:
    """The mask of scores that are kept where `condition` is `seen`, and `fill` elsewhere.

    A condition is taken apart where a part of it is a band; else it stays as it is.
    """
    if fill is None or not fill <= HIDDEN:
        return None
    condition = bare(condition)
    negated = made(condition, "logical_not")
    parts = made(condition, "logical_and" if seen else "logical_or")
    if negated is not None and most:
        return chosen(negated.operands[0], fill, scores, not seen, most - 1)
    if parts is not None and most:
        both = [chosen(part, fill, scores, seen, most - 1) for part in parts.operands]
        if both[0] and both[1] and (both[0].bands or both[1].bands):
            return both[0] | both[1]
    mask = Mask((Hidden(condition, seen, fill),))
    band = band_of(condition, scores, seen)
    return _banded(mask, band if fill == -math.inf or _all_see(condition, scores) else None)


def added(term: Any, scores: Shape) -> Mask:
    """The mask of scores that have `term` added to them."""
    term = bare(term)
    choice = made(term, "where")
    if choice is not None:
        condition, first, second = choice.operands
        for zero, fill, seen in ((first, second, True), (second, first, False)):
            mask = chosen(condition, number(fill), scores, seen) if number(zero) == 0 else None
            if mask is not None:
                return mask
    band = band_of(term, scores, True) if _all_see(term, scores) else None
    return _banded(Mask(terms=(term,)), band)


def _banded(mask: Mask, band: Band | None) -> Mask:
    return mask if band is None else Mask(bands=((band, mask),))


def _all_see(mask: Any, scores: Shape) -> bool:
    """Whether there are as many keys as queries: with fewer, some queries see none."""
    return never_negative(scores[-1] - scores[-2], m.ranges(mask))
