"""Work across the lanes of a vector: numbering, combining and transposing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect, ir

arith, vector = dialect("arith"), dialect("vector")

_OPEN = -1  # A lane of a shuffle that may be anything.


def numbers(element: Any, lanes: int) -> Any:
    """The integers 0, 1, ... in the lanes of a vector; the constant 0 for one lane."""
    if lanes == 1:
        return emit.constant(element, 0)
    attributes = [ir.IntegerAttr.get(element, lane) for lane in range(lanes)]
    kind = emit.widen(element, lanes)
    return arith.constant(kind, ir.DenseElementsAttr.get(attributes, kind))


def shuffle(a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """A vector of the lanes numbered `lanes` of `a` followed by `b`."""
    return vector.shuffle(a, b, list(lanes))


def parts(value: Any, count: int) -> list[Any]:
    """A vector in `count` of equal length, in order."""
    each = emit.lanes_of(value) // count
    if count == 1:
        return [value]
    return [shuffle(value, value, range(at, at + each)) for at in range(0, count * each, each)]


def joined(parts: Sequence[Any]) -> Any:
    """The inverse of `parts`, for a power of two of them."""
    while len(parts) > 1:
        lanes = range(2 * emit.lanes_of(parts[0]))
        parts = [shuffle(a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def across(value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The lanes of a vector combined to a scalar, in halves."""
    lanes = emit.lanes_of(value)
    while lanes > 1:
        lanes //= 2
        low = shuffle(value, value, range(lanes))
        value = combine(low, shuffle(value, value, range(lanes, 2 * lanes)))
    return vector.extract(value, [], [0]) if isinstance(value.type, ir.VectorType) else value


def sums(vectors: Sequence[Any]) -> Any:
    """The sums of the lanes of as many vectors as each has lanes, a power of two, in their order.

    Neighbours first, then pairs of those, and so on.
    """
    lanes, together = len(vectors), 1
    while len(vectors) > 1:
        # Of runs of so many lanes, one vector's and the other's in turns: the first, the second.
        low = [lane if not lane & together else lane - together + lanes for lane in range(lanes)]
        high = [each + together for each in low]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [shuffle(a, b, low) + shuffle(a, b, high) for a, b in pairs]
        together *= 2
    return vectors[0]


def transposed(rows: Sequence[Any], piece: int = 1) -> list[Any]:
    """The columns of a square tile of as many vectors as each has lanes, a power of two.

    Pieces of so many lanes are turned by interleaving them: of 16 bytes, that is one instruction of
    AVX2 for a vector (`unpack`), where it has none to exchange lanes of 8 or 16 bits.
    """
    rows, lanes = list(rows), range(len(rows))
    for _ in range(piece.bit_length() - 1):
        rows = [row for at in lanes[::piece] for row in _in_pieces(rows[at : at + piece])]
    distance = piece
    while distance < len(rows):
        # Exchanges one bit of the row's number with the same bit of the lane's.
        low = [j if not j & distance else j - distance + len(rows) for j in lanes]
        high = [j + distance if not j & distance else j + len(rows) for j in lanes]
        for i in lanes:
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = shuffle(a, b, low), shuffle(a, b, high)
        distance *= 2
    return rows


def transposed_in_pairs(rows: Sequence[Any]) -> list[Any]:
    """As `transposed`, of twice as many rows as registers are to be in use.

    Lanes of two rows become one of twice the width; then halves of the columns are turned.
    """
    count, element = len(rows), emit.element_of(rows[0])
    word = emit.widen(emit.integer(2 * emit.bits_of(element)), count // 2)
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    orders = [
        [place for lane in range(first, first + count // 2) for place in (lane, lane + count)]
        for first in (0, count // 2)
    ]
    words = [[vector.bitcast(word, shuffle(a, b, k)) for k in orders] for a, b in pairs]
    halves = zip(*words, strict=True)
    return [vector.bitcast(rows[0].type, line) for half in halves for line in transposed(half)]


def _in_pieces(rows: Sequence[Any]) -> list[Any]:
    """Of rows i and i + n / 2 of n, pieces of n lanes interleaved: their first halves, the others.

    The first bit of a row's number becomes the last of its lane's, that of the lane's the row's.
    """
    half, lanes = len(rows) // 2, emit.lanes_of(rows[0])
    places = [[at + j for at in range(0, lanes, 2 * half) for j in range(half)]]
    places.append([place + half for place in places[0]])
    both = [[k for place in some for k in (place, place + lanes)] for some in places]
    return [shuffle(a, b, k) for a, b in zip(rows[:half], rows[half:], strict=True) for k in both]


def interleaved(lines: Sequence[Any]) -> list[Any]:
    """Lane 0 of each vector in turn, then lane 1 of each, and so on, in as many vectors."""
    count, lanes = len(lines), range(emit.lanes_of(lines[0]))
    places = [(place % count, place // count) for place in range(count * len(lanes))]
    return [_chosen(lines, places[n * len(lanes) :][: len(lanes)]) for n in range(count)]


def deinterleaved(run: Sequence[Any]) -> list[Any]:
    """The inverse of `interleaved`."""
    count, lanes = len(run), emit.lanes_of(run[0])
    places = [divmod(place, lanes) for place in range(count * lanes)]
    return [_chosen(run, places[n::count]) for n in range(count)]


def _chosen(vectors: Sequence[Any], places: Sequence[tuple[int, int]]) -> Any:
    """The vector whose lanes are those of `vectors` at `places`: number of vector, lane."""
    lanes, found = len(places), vectors[0]
    for n, vector_ in enumerate(vectors[1:], 1):
        order = []
        for lane, (m, k) in enumerate(places):
            before = k if n == 1 else lane  # Once chosen, a lane is where it stays.
            order.append(before if m < n else lanes + k if m == n else _OPEN)
        found = shuffle(found, vector_, order)
    return found


def each_across(values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """The vector of what `across` gives of each vector, of which there are no more than lanes.

    All are combined in one order. Lanes beyond the last vector repeat it.
    """
    lanes = range(emit.lanes_of(values[0]))
    values, distance = [*values, *[values[-1]] * (len(lanes) - len(values))], 1
    while len(values) > 1:
        # Of a pair of vectors, the first is in the lanes whose number lacks this bit. Half of the
        # numbers stay in their lanes: to blend them is cheaper than to move them.
        kept = [j if not j & distance else j + len(lanes) for j in lanes]
        moved = [j + distance if not j & distance else j - distance + len(lanes) for j in lanes]
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [combine(shuffle(a, b, kept), shuffle(a, b, moved)) for a, b in pairs]
        distance *= 2
    return values[0]
