"""Einsum by products of matrices: https://numpy.org/doc/stable/reference/generated/numpy.einsum.html."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heddle.graph import Dim, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.linear import matrix_product

DOTS = "..."


def contracted(node: Node, equation: str, operands: Sequence[TensorValue]) -> TensorValue:
    """The sums that the equation says, from the left, two operands at a time.

    Raises:
        GraphError: Terms do not fit the operands, or a letter stands twice where sizes are not
            known.
    """
    left, arrow, right = equation.partition("->")
    terms = _spelled(node, left.split(","), operands)
    dots = max((term for term in terms), key=lambda term: sum(c.isdigit() for c in term))
    around = "".join(sorted(letter for letter in dots if letter.isdigit()))
    if arrow:
        result = right.replace(DOTS, around)
    else:
        letters = "".join(terms)
        result = around + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and not c.isdigit())
        )
    diagonals = [_diagonal(node, *pair) for pair in zip(operands, terms, strict=True)]
    operands, terms = [x for x, _ in diagonals], [term for _, term in diagonals]
    value, term = operands[0], terms[0]
    for number, (other, named) in enumerate(zip(operands[1:], terms[1:], strict=True), 2):
        later = set(result).union(*terms[number:])
        value, term = _product(value, term, other, named, later)
    for letter in [c for c in term if c not in result]:
        axis = term.index(letter)
        value = ops.squeeze(ops.sum(value, axis=axis), axis)
        term = term.replace(letter, "")
    return ops.permute(value, [term.index(letter) for letter in result])


def _spelled(node: Node, terms: Sequence[str], operands: Sequence[TensorValue]) -> list[str]:
    """The terms with digits in the place of dots, the last axis of them 9."""
    if len(terms) != len(operands):
        node.refuse(f"wanted {len(operands)} terms, got {len(terms)}")
    spelled = []
    for term, operand in zip(terms, operands, strict=True):
        count = operand.rank - len(term.replace(DOTS, ""))
        if count < 0 or (count and DOTS not in term) or count > 10:
            node.refuse(f"wanted as many letters as axes in {operand.shape}, got {term!r}")
        spelled.append(term.replace(DOTS, "0123456789"[10 - count :]))
    return spelled


def _diagonal(node: Node, x: TensorValue, term: str) -> tuple[TensorValue, str]:
    """The elements whose places along axes of one letter are the same, in one axis."""
    for letter in sorted({c for c in term if term.count(c) > 1}):
        while term.count(letter) > 1:
            axes = [i for i, c in enumerate(term) if c == letter][:2]
            size, other = (x.shape[axis].static for axis in axes)
            if size is None or size != other:
                node.refuse(f"wanted two axes of one known size for {letter!r}, got {x.shape}")
            rest = [i for i in range(x.rank) if i not in axes]
            flat = ops.permute(x, [*rest, *axes])
            flat = ops.reshape(flat, [*flat.shape[:-2], size * size])
            x = ops.gather(flat, ops.constant(np.arange(size) * (size + 1)), axis=-1)
            term = "".join(term[i] for i in rest) + letter
    return x, term


def _product(
    a: TensorValue, a_term: str, b: TensorValue, b_term: str, later: set[str]
) -> tuple[TensorValue, str]:
    """The product of two operands, summed over what nobody reads later."""
    a, a_term = _summed(a, a_term, later | set(b_term))
    b, b_term = _summed(b, b_term, later | set(a_term))
    shared = [c for c in a_term if c in b_term]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    rows = [c for c in a_term if c not in shared]
    columns = [c for c in b_term if c not in shared]
    sizes = dict(zip(b_term, b.shape, strict=True))
    for letter, dim in zip(a_term, a.shape, strict=True):
        if sizes.get(letter, Dim(1)) == 1:
            sizes[letter] = dim
    left = _matrix(a, a_term, batch, rows, inner, sizes)
    right = _matrix(b, b_term, batch, inner, columns, sizes)
    value = matrix_product(left, right)
    term = "".join([*batch, *rows, *columns])
    return ops.reshape(value, [sizes[letter] for letter in term]), term


def _summed(x: TensorValue, term: str, kept: set[str]) -> tuple[TensorValue, str]:
    for letter in [c for c in term if c not in kept]:
        axis = term.index(letter)
        x, term = ops.squeeze(ops.sum(x, axis=axis), axis), term.replace(letter, "")
    return x, term


def _matrix(
    x: TensorValue,
    term: str,
    batch: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    sizes: dict[str, Dim],
) -> TensorValue:
    """`x` as [*batch, rows, columns]."""
    x = ops.permute(x, [term.index(c) for c in (*batch, *rows, *columns)])
    x = ops.broadcast_to(x, [sizes[c] for c in (*batch, *rows, *columns)])
    first, last = (Shape([sizes[c] for c in side]).elements for side in (rows, columns))
    return ops.reshape(x, [*(sizes[c] for c in batch), first, last])
