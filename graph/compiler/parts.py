"""The ops of a group, by what they are to its root."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from heddle.graph.compiler import module as m

FREE = ("broadcast_to", "constant")
"""Ops that cost nothing inside a body: an input is read as broadcast, a splat is an immediate."""

BESIDE = (
    *("matmul_packed", "integer_matmul_packed"),
    *("quantized_matmul_packed", "rounded_matmul_packed"),
    *("matmul", "integer_matmul", "float8_matmul", "quantized_matmul"),
)
"""Ops whose kernels compute several products of one left side."""


@dataclass(frozen=True)
class Parts:
    """The ops of a group in order, and the values that others read.

    `before` computes operand 0 of the root, `after` reads its result. A group without a root is
    all `before`. Free ops need not be listed, but where they are all of `before`. `beside` has the
    parts of other roots of the same operand 0, `source` those of what computes it row by row,
    `gate` those of another such root, whose one result is for `after` alone. Where it `leaves`,
    no other group reads the results: they are the graph's.
    """

    before: tuple[Any, ...]
    root: Any | None
    after: tuple[Any, ...]
    results: tuple[Any, ...]
    beside: tuple[Parts, ...] = ()
    source: Parts | None = None
    gate: Parts | None = None
    leaves: bool = False

    @property
    def written(self) -> tuple[Any, ...]:
        """The values that others read of all roots, then the gate's, for kernels that share."""
        others = (*self.beside, *((self.gate,) if self.gate else ()))
        return self.results + tuple(value for parts in others for value in parts.results)


def parts_of(fused: Any) -> Parts:
    """The parts of a `heddle.fused` op."""
    parts = _parts(m.inner(fused), tuple(m.yielded(fused)))
    leaves = all(map(_leaves, fused.results))
    beside = tuple(replace(other, leaves=leaves) for other in parts.beside)
    return replace(parts, beside=beside, leaves=leaves)


def _leaves(value: Any) -> bool:
    """Whether `value` is a result of the graph, maybe reshaped, and nothing else."""
    readers = m.users(value)
    return all(
        m.name(reader) == "func.return"
        or (m.name(reader) == "reshape" and _leaves(reader.results[0]))
        for reader in readers
    )


def _parts(ops: list[Any], results: tuple[Any, ...]) -> Parts:
    roots = [op for op in ops if not m.elementwise(op) and m.name(op) not in FREE]
    root = roots[-1] if roots else None  # a transpose before it belongs to its operand
    if root is None:
        return Parts(tuple(ops), None, (), results)
    writes = [op for op in roots if m.name(op) == "paged_write"]
    if len(writes) == 2:
        before = tuple(op for op in ops if m.name(op) != "paged_write")
        return Parts(before, writes[0], (writes[1],), results)
    if m.name(root) in BESIDE:
        return _products(ops, results)
    feeding = _feeding(root.operands[0]) if len(root.operands) else set()
    before = tuple(op for op in ops if op.results[0] in feeding)
    after = tuple(op for op in ops if m.elementwise(op) and op.results[0] not in feeding)
    return Parts(before, root, after, results)


def _products(ops: list[Any], results: tuple[Any, ...]) -> Parts:
    """The parts of products, each of which has its own ops behind it, and of their source."""
    starts = [number for number, op in enumerate(ops) if m.name(op) in BESIDE]
    found = []
    for start, stop in zip(starts, [*starts[1:], len(ops)], strict=True):
        own = {op.results[0] for op in ops[start:stop]}
        after = tuple(op for op in ops[start + 1 : stop] if m.elementwise(op))
        found.append(Parts((), ops[start], after, tuple(v for v in results if v in own)))
    first, *others = found
    read = {value for other in others for op in other.after for value in op.operands}
    if read & set(first.results):
        (product,) = others
        return replace(product, gate=first)
    left = ops[starts[0]].operands[0]
    source = _parts(ops[: starts[0]], (left,)) if m.owner(left) else None
    return replace(first, beside=tuple(others), source=source)


def _feeding(value: Any) -> set[Any]:
    """`value` and every value of the region that it depends on."""
    found: set[Any] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            operation = m.owner(value)
            stack += operation.operands if operation is not None else ()
    return found
