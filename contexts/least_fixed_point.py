"""What follows from rules of the kind "this, if so many of those"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple


class Rule(NamedTuple):
    """`symbol` holds where `needed` of `items` do."""

    symbol: Hashable
    items: Collection[Hashable]
    needed: int


def least_fixed_point(rules: Sequence[Rule], known: Iterable[Hashable] = ()) -> set[Hashable]:
    """All symbols that hold: those of `known`, and what the rules make of them."""
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    missing = [rule.needed for rule in rules]
    for index, rule in enumerate(rules):
        for item in rule.items:
            waiting[item].append(index)
    held = {*known, *(rule.symbol for rule in rules if rule.needed <= 0)}
    new = list(held)
    while new:
        for index in waiting[new.pop()]:
            missing[index] -= 1
            symbol = rules[index].symbol
            if missing[index] <= 0 and symbol not in held:
                held.add(symbol)
                new.append(symbol)
    return held
