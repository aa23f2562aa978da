"""One kernel for what a decoder does to its cache in a step, in place of four.

Keys and queries are rotated by the same tables, keys and values are written to places of the same
blocks: `paged_write(rope(k))`, `paged_write(v)` and `rope(q)`. Each is far too small to fill a
machine, and each would cost a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from heddle.graph import dialect
from heddle.graph.compiler import module as m
from heddle.graph.dtype import DType
from heddle.kernels.mlir import ir
from heddle.kernels.rotation import ROTATED


def join(module: Any, kind: str) -> None:
    """Puts the fused ops of such steps together."""
    place = {m.result(op): index for index, op in enumerate(m.operations(module))}
    fused = [op for op in m.operations(module) if m.name(op) == "fused"]
    writes, ropes = ([op for op in fused if alike(op)] for alike in (_writes, _rotates))
    while (step := next(_steps(writes, ropes, place), None)) is not None:
        writes, ropes = ([op for op in ops if op not in step.parts] for ops in (writes, ropes))
        last = max(step.parts, key=lambda part: place[m.result(part)])
        number = place[m.result(last)]
        place[m.result(_replace(step, last))] = number


@dataclass(frozen=True)
class _Step:
    """The fused ops of a step, in the order in which they are computed."""

    key: Any
    query: Any
    keys: Any
    values: Any

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.key, self.query, self.keys, self.values

    @property
    def results(self) -> list[Any]:
        """What others read, in the order of the kernel's outputs."""
        return [part.results[0] for part in (self.keys, self.values, self.query)]

    @property
    def operands(self) -> list[Any]:
        """What is read, in the order of the kernel's operands."""
        caches = [self.keys.operands[0], self.values.operands[0]]
        new = [self.key.operands[0], self.values.operands[1], self.query.operands[0]]
        return [*caches, *new, *list(self.key.operands)[1:], *list(self.keys.operands)[2:]]


def _steps(writes: list[Any], ropes: list[Any], place: dict[Any, int]) -> Iterator[_Step]:
    """The steps among the fused ops, by the op that writes their keys."""
    for keys in writes:
        key = next((rope for rope in ropes if rope.results[0] == keys.operands[1]), None)
        if key is None or len(m.users(key.results[0])) > 1:
            continue
        rows, tables = list(keys.operands)[2:], list(key.operands)[1:]
        for values, query in product(writes, ropes):
            step = _Step(key, query, keys, values)
            alike = (
                values != keys
                and query != key
                and values.operands[1] != query.results[0]
                and values.operands[0].type == keys.operands[0].type
                and values.operands[1].type == keys.operands[1].type
                and list(values.operands)[2:] == rows
                and list(query.operands)[1:] == tables
            )
            if alike and _may(step, place):
                yield step


def _writes(fused: Any) -> bool:
    return [m.name(op) for op in m.inner(fused)] == ["paged_write"]


def _rotates(fused: Any) -> bool:
    """Whether the op is a rotation of heads by one table for a token, rounded once."""
    if [m.name(op) for op in m.inner(fused)] not in (["rope"], ["rope", "cast"]):
        return False
    if len(fused.results) != 1:
        return False
    x, cos, result = (m.tensor(v) for v in (*list(fused.operands)[:2], fused.results[0]))
    heads = x.rank == cos.rank == 3 and cos.shape[0] == x.shape[0] and cos.shape[1] == 1
    return heads and x.dtype.name in ROTATED and x.dtype in (DType.float32, result.dtype)


def _may(step: _Step, place: dict[Any, int]) -> bool:
    """Whether nobody reads a result before all of them can be there, and both ropes are alike."""
    last = max(place[m.result(part)] for part in step.parts)
    forms = [m.attrs(m.inner(rope)[0]) for rope in (step.key, step.query)]
    readers = [reader for value in step.results for reader in m.users(value)]
    after = (place.get(m.result(reader), last + 1) > last for reader in readers)
    shapes = [m.tensor(rope.operands[0]).shape for rope in (step.key, step.query)]
    alike = forms[0] == forms[1] and shapes[0][::2] == shapes[1][::2]
    return alike and all(after)


def _replace(step: _Step, before: Any) -> Any:
    """Moves the ops of all parts into one region, in the place of the part that is the last."""
    location = ir.Location.fused([part.location for part in step.parts])
    fused = dialect.create(
        "heddle.fused",
        results=[value.type for value in step.results],
        operands=step.operands,
        regions=1,
        loc=location,
        ip=ir.InsertionPoint(before),
    )
    types = [value.type for value in step.operands]
    block = fused.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
    local = dict(zip(step.operands, block.arguments, strict=True))
    for part in step.parts:
        inner = part.regions[0].blocks[0]
        known = {a: local[v] for a, v in zip(inner.arguments, part.operands, strict=True)}
        for op in m.inner(part):
            copy = op.clone(ip=ir.InsertionPoint(block)).operation
            for index, value in enumerate(op.operands):
                copy.operands[index] = known[value]
            known[op.results[0]] = copy.results[0]
            local[part.results[0]] = copy.results[0]
    yielded = [local[value] for value in step.results]
    dialect.create("heddle.yield", operands=yielded, loc=location, ip=ir.InsertionPoint(block))
    for value, result in zip(step.results, fused.results, strict=True):
        value.replace_all_uses_with(result)
    for part in reversed(step.parts):
        part.erase()
    return fused
