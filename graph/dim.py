"""Sizes of tensors: numbers, names, and polynomials of them.

A `Dim` is kept in one canonical form, a polynomial with integer coefficients over names and opaque
terms (`n // 3`), so that two dims are equal exactly when their forms are: `a * b == b * a`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from numbers import Integral
from typing import Any, TypeAlias

from heddle.graph.expressions import parse
from heddle.graph.location import graph_error
from heddle.kernels.spec import Expr, fold

MAXIMUM = 2**31 - 1

# An atom is a name or ("floordiv" | "mod" | "min" | "max", Dim, Dim); a term's key is the sorted
# tuple of its atoms, () for the constant.
Atom: TypeAlias = "str | tuple[str, Dim, Dim]"
Key: TypeAlias = "tuple[Atom, ...]"
Terms: TypeAlias = "tuple[tuple[Key, int], ...]"

DimLike: TypeAlias = "int | str | Dim"


class Dim:
    """The size of one dimension.

    `Dim(3)` is static, `Dim("batch", minimum=1, maximum=128)` symbolic, `Dim("2*batch + 1")` and
    `Dim("batch") * 2 + 1` algebraic. The inclusive range belongs to the graph that the dim becomes
    an input of; it takes no part in comparisons, and is (1, 2**31 - 1) unless given.
    """

    __slots__ = ("_hash", "range", "terms")
    terms: Terms
    range: tuple[int, int] | None
    _hash: int

    def __new__(cls, value: DimLike, minimum: int | None = None, maximum: int | None = None) -> Dim:
        """See the class; a `Dim` passes through unchanged.

        Raises:
            GraphError: A bad text, a negative number, or a range that is empty or not of a name.
        """
        if isinstance(value, Dim):
            dim = value
        elif isinstance(value, str):
            dim = _parse(value)
        elif isinstance(value, Integral) and not isinstance(value, bool):
            dim = _static(int(value))
            if value < 0:
                raise graph_error(f"dim: wanted a size of at least 0, got {value}")
        else:
            raise graph_error(f"dim: wanted an int, a name or a Dim, got {value!r}")
        if minimum is None and maximum is None:
            return dim
        low, high = 1 if minimum is None else minimum, MAXIMUM if maximum is None else maximum
        for end in (low, high):
            if not isinstance(end, Integral) or isinstance(end, bool):
                raise graph_error(f"dim {dim}: wanted ints as minimum and maximum, got {end!r}")
        if dim.name is None:
            raise graph_error(f"dim: wanted a range for a name alone, got one for {dim}")
        if not 0 <= low <= high <= MAXIMUM:
            raise graph_error(
                f"dim {dim}: wanted 0 <= minimum <= maximum <= {MAXIMUM}, got {low} to {high}"
            )
        return _make(dim.terms, (int(low), int(high)))

    @property
    def static(self) -> int | None:
        """The number, or None where the size is not known."""
        terms = self.terms
        if not terms:
            return 0
        return terms[0][1] if len(terms) == 1 and not terms[0][0] else None

    @property
    def name(self) -> str | None:
        """The name of a symbolic dim; None for numbers and for algebra."""
        if len(self.terms) == 1:
            key, factor = self.terms[0]
            if factor == 1 and len(key) == 1 and isinstance(key[0], str):
                return key[0]
        return None

    @property
    def names(self) -> set[str]:
        """Every name that the size depends on."""
        found: set[str] = set()
        for key, _ in self.terms:
            for atom in key:
                found |= {atom} if isinstance(atom, str) else atom[1].names | atom[2].names
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy's hash is made anew: that of a name differs from process to process."""
        return _make, (self.terms, self.range)

    def __int__(self) -> int:
        if self.static is None:
            raise graph_error(f"dim: wanted a static size, got {self}")
        return self.static

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Dim):
            return self.terms == other.terms
        if isinstance(other, int):
            return self.static == other
        return isinstance(other, str) and self.name == other

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: DimLike) -> Dim:
        terms = dict(self.terms)
        for key, factor in _dim(other).terms:
            terms[key] = terms.get(key, 0) + factor
        return _polynomial(terms)

    def __mul__(self, other: DimLike) -> Dim:
        terms: dict[Key, int] = {}
        for key, factor in self.terms:
            for other_key, other_factor in _dim(other).terms:
                both = tuple(sorted(key + other_key, key=_order))
                terms[both] = terms.get(both, 0) + factor * other_factor
        return _polynomial(terms)

    def __neg__(self) -> Dim:
        return _polynomial({key: -factor for key, factor in self.terms})

    def __sub__(self, other: DimLike) -> Dim:
        return self + -_dim(other)

    def __rsub__(self, other: DimLike) -> Dim:
        return _dim(other) - self

    def __floordiv__(self, other: DimLike) -> Dim:
        return _binary("floordiv", self, _dim(other))

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return _dim(other) // self

    def __mod__(self, other: DimLike) -> Dim:
        return _binary("mod", self, _dim(other))

    def __rmod__(self, other: DimLike) -> Dim:
        return _dim(other) % self

    __radd__ = __add__
    __rmul__ = __mul__

    def divided(self, other: DimLike) -> Dim | None:
        """The quotient where `other` divides this dim for every value of the names, else None."""
        return _quotient(self, _dim(other))

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        """The number, with each name's value from `symbols`."""
        total = 0
        for key, factor in self.terms:
            for atom in key:
                factor *= (
                    symbols[atom]
                    if isinstance(atom, str)
                    else int(fold(atom[0], *(side.evaluate(symbols) for side in atom[1:])))  # type: ignore[arg-type]
                )
            total += factor
        return total

    @property
    def expr(self) -> Expr:
        """The size as nested tuples over its names (see `heddle.kernels.spec.Expr`)."""
        total: Expr | None = None
        for key, factor in self.terms:
            parts: list[Expr] = [
                a if isinstance(a, str) else (a[0], a[1].expr, a[2].expr) for a in key
            ]
            if factor < 0 and len(key) == 1 and (rounded_up := _rounded_up(key[0])):
                parts, factor = [rounded_up], -factor
            term: Expr | None = abs(factor) if abs(factor) != 1 or not key else None
            for part in parts:
                term = part if term is None else ("mul", term, part)
            assert term is not None
            if total is None:
                total = term if factor > 0 else fold("sub", 0, term)
            else:
                total = fold("add" if factor > 0 else "sub", total, term)
        return 0 if total is None else total

    @staticmethod
    def from_expr(expr: Expr) -> Dim:
        """The inverse of `expr`; every op of `heddle.kernels.spec.EXPR_OPS` is read."""
        if isinstance(expr, tuple):
            return _binary(expr[0], Dim.from_expr(expr[1]), Dim.from_expr(expr[2]))
        return _make((((expr,), 1),)) if isinstance(expr, str) else _static(expr)

    def __str__(self) -> str:
        text = ""
        for key, factor in self.terms:
            parts = [] if abs(factor) == 1 and key else [str(abs(factor))]
            parts += [atom if isinstance(atom, str) else _atom_text(atom) for atom in key]
            sign = "-" if factor < 0 else "+"
            text += (f" {sign} " if text else sign.strip("+")) + "*".join(parts)
        return text or "0"

    def __repr__(self) -> str:
        limits = f", minimum={self.range[0]}, maximum={self.range[1]}" if self.range else ""
        return f"Dim({self.static if self.static is not None else str(self)!r}{limits})"


def _make(terms: Terms, limits: tuple[int, int] | None = None) -> Dim:
    dim = object.__new__(Dim)
    dim.terms, dim.range = terms, limits
    # Equal to an int or a name, a dim must hash like it.
    static = dim.static
    dim._hash = hash(static if static is not None else dim.name or terms)
    return dim


@lru_cache(maxsize=4096)
def _static(value: int) -> Dim:
    return _make((((), value),) if value else ())


@lru_cache(maxsize=4096)
def _parse(text: str) -> Dim:
    return Dim.from_expr(parse(text))


def _dim(value: DimLike) -> Dim:
    if isinstance(value, Dim):
        return value
    return _static(value) if isinstance(value, int) else Dim(value)


def _order(atom: Atom) -> tuple[bool, str]:
    return (False, atom) if isinstance(atom, str) else (True, _atom_text(atom))


def _term_order(key: Key) -> tuple[Any, ...]:
    return (-len(key), tuple(_order(atom) for atom in key))


def _polynomial(terms: dict[Key, int]) -> Dim:
    kept = sorted((key for key, factor in terms.items() if factor), key=_term_order)
    if not kept or kept == [()]:
        return _static(terms[()] if kept else 0)
    return _make(tuple((key, terms[key]) for key in kept))


def _binary(op: str, a: Dim, b: Dim) -> Dim:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "ceildiv":
            return -(-a // b)
    if op in ("floordiv", "mod") and b.static == 0:
        raise graph_error(f"dim: wanted a divisor other than 0, got {a} {_SIGN[op]} 0")
    if a.static is not None and b.static is not None:
        value = fold(op, a.static, b.static)
        assert isinstance(value, int)
        return _static(value)
    if op in ("floordiv", "mod"):
        quotient = _quotient(a, b)
        if quotient is not None:
            return quotient if op == "floordiv" else _static(0)
    elif a == b:
        return a
    elif str(b) < str(a):
        a, b = b, a
    return _make(((((op, a, b),), 1),))


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Long division by the leading term: exact, or None."""
    if not b.terms:
        return None
    (lead, lead_factor), *_ = b.terms
    quotient, rest = _static(0), a
    while rest.terms:
        key, factor = rest.terms[0]
        left = list(key)
        for atom in lead:
            if atom not in left:
                return None
            left.remove(atom)
        if factor % lead_factor:
            return None
        term = _polynomial({tuple(left): factor // lead_factor})
        quotient, rest = quotient + term, rest - term * b
    return quotient


def _rounded_up(atom: Atom) -> Expr | None:
    """`ceildiv(a, b)`, where `atom` is `-a // b`."""
    if isinstance(atom, str) or atom[0] != "floordiv" or any(f > 0 for _, f in atom[1].terms):
        return None
    return "ceildiv", (-atom[1]).expr, atom[2].expr


_SIGN = {"floordiv": "//", "mod": "%"}


def _atom_text(atom: tuple[str, Dim, Dim]) -> str:
    op, a, b = atom
    return f"(({a}) {_SIGN[op]} ({b}))" if op in _SIGN else f"{op}({a}, {b})"
