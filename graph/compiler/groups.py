"""Groups of ops that become one kernel, and what they depend on while they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from heddle.graph import dialect
from heddle.graph.compiler import module as m
from heddle.graph.compiler.parts import Parts
from heddle.graph.compiler.specs import request
from heddle.kernels.mlir import ir
from heddle.kernels.spec import Spec


@dataclass(frozen=True)
class Group:
    """Ops in order: elementwise ones before the root, the root, elementwise ones after it.

    Then the groups `beside` it, which have roots of the same operand 0. `source` is in front of
    all: it has a root that computes operand 0 row by row. So is `gate`: it has a root of the same
    operand 0, and one result, which is for `after` alone.
    """

    number: int
    before: tuple[Any, ...] = ()
    root: Any | None = None
    after: tuple[Any, ...] = ()
    beside: tuple[Group, ...] = ()
    source: Group | None = None
    gate: Group | None = None

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self.number == other.number

    @property
    def ops(self) -> list[Any]:
        """All ops."""
        first = [op for group in (self.source, self.gate) if group for op in group.ops]
        own = [*first, *self.before, *([self.root] if self.root else []), *self.after]
        return own + [op for group in self.beside for op in group.ops]

    @property
    def results(self) -> list[Any]:
        """The values that are read outside of the group."""
        values = [op.results[0] for op in self.ops]
        members = set(values)
        return [v for v in values if any(m.result(use.owner) not in members for use in v.uses)]

    @property
    def each(self) -> tuple[Group, ...]:
        """This group without its source and those beside it, then those."""
        return (replace(self, beside=(), source=None), *self.beside)

    def parts(self) -> Parts:
        """The group as what a spec is made from."""
        beside = tuple(group.parts() for group in self.beside)
        results = tuple(self.each[0].results)
        source = self.source.parts() if self.source else None
        gate = self.gate.parts() if self.gate else None
        return Parts(self.before, self.root, self.after, results, beside, source, gate)

    def with_tail(self, ops: Sequence[Any]) -> Group:
        """This group with elementwise `ops` at its end."""
        if self.root:
            return Group(self.number, self.before, self.root, (*self.after, *ops))
        return Group(self.number, (*self.before, *ops))

    def with_prologue(self, ops: Sequence[Any]) -> Group:
        """This group with elementwise `ops` before its root."""
        return Group(self.number, tuple(ops), self.root, self.after)

    def with_beside(self, other: Group) -> Group:
        """This group and another one whose root has the same operand 0."""
        return replace(self, beside=(*self.beside, other))

    def with_gate(self, gate: Group) -> Group:
        """This group, with one whose result its tail reads."""
        return replace(self, gate=gate)

    def with_source(self, source: Group) -> Group:
        """This group, with one that computes operand 0 of all its roots."""
        return replace(self, source=source)


class Grouping:
    """All groups of a module while it is being fused, with their dependencies."""

    def __init__(self) -> None:
        self._group_of: dict[Any, Group] = {}  # by the value that the group computes
        self._needs: dict[int, int] = {}  # group -> a bit for each group that it depends on
        self._readers: dict[int, set[int]] = {}  # group -> those that read it, some of them gone
        self._count = 0

    def add(self, before: Sequence[Any] = (), root: Any | None = None) -> Group:
        """A new group."""
        group = Group(self._count, tuple(before), root)
        self._count += 1
        self._set(group)
        return group

    def replace(self, group: Group, absorbed: Sequence[Group], grown: Group) -> None:
        """`grown` takes the place of `group` and of the groups that it `absorbed`."""
        for other in absorbed:
            del self._needs[other.number]
            self._readers[group.number] |= self._readers.pop(other.number)
        self._set(grown)
        reached = 1 << group.number | self._needs[group.number]
        above = [group.number]
        while above:
            for number in self._readers[above.pop()]:
                needs = self._needs.get(number, reached)
                if number != group.number and needs | reached != needs:
                    self._needs[number] = needs | reached
                    above.append(number)

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order in which they were added."""
        return sorted(set(self._group_of.values()), key=lambda group: group.number)

    def of(self, value: Any) -> Group | None:
        """The group that computes `value`."""
        return self._group_of.get(value)

    def producers(self, operation: Any) -> set[Group]:
        """The groups behind the operands of `operation`, seen through ops in no group."""
        direct = {group for value in operation.operands if (group := self.of(value))}
        return direct | self.behind(operation)

    def behind(self, operation: Any) -> set[Group]:
        """Those of `producers` that are reached through an op in no group: a reshape of a value."""
        found: set[Group] = set()
        above = [m.owner(value) for value in operation.operands if self.of(value) is None]
        while above:
            op = above.pop()
            for value in op.operands if op is not None else ():
                if group := self.of(value):
                    found.add(group)
                else:
                    above.append(m.owner(value))
        return found

    def depends(self, group: Group, other: Group) -> bool:
        """Whether `group` needs `other`, directly or through others."""
        return bool(self._needs[group.number] >> other.number & 1)

    def _set(self, group: Group) -> None:
        for operation in group.ops:
            self._group_of[operation.results[0]] = group
        above = {g for op in group.ops for g in self.producers(op)} - {group}
        needs = 0
        for other in above:
            needs |= 1 << other.number | self._needs[other.number]
            self._readers[other.number].add(group.number)
        self._needs[group.number] = needs
        self._readers.setdefault(group.number, set())


def outline(group: Group, end: Any) -> Any:
    """Moves the ops of `group` into a new `heddle.fused` before `end`; returns it.

    Operands are in the order of `Request.inputs`: one that both the prologue and the epilogue read
    is passed twice.
    """
    parts = group.parts()
    wanted = request(parts)
    members = {op.results[0] for op in group.ops}
    locations = [op.location for op in ([group.root] if group.root else []) + group.ops]
    fused = dialect.create(
        "heddle.fused",
        results=[value.type for value in parts.written],
        operands=wanted.inputs,
        regions=1,
        loc=ir.Location.fused(locations),
        ip=ir.InsertionPoint(end),
    )
    types = [value.type for value in wanted.inputs]
    block = fused.regions[0].blocks.append(*types, arg_locs=[fused.location] * len(types))
    inputs = list(zip(wanted.inputs, block.arguments, strict=True))
    shared: list[tuple[Any, Any]] = []
    if group.source and wanted.spec.source:
        count = len(wanted.spec.source.inputs)
        _fill(group.source, wanted.spec.source, inputs[:count], block, members)
        inputs = inputs[count:]
    for each, spec in zip(group.each, wanted.spec.each, strict=True):
        computed = bool(shared or group.source)
        count = len(spec.inputs) - computed
        own = [*shared, *inputs[:count]]
        if each.gate and spec.gate:
            end = len(own) - len(spec.gate.inputs) + 1
            _fill(each.gate, spec.gate, [*own[:1], *own[end:]], block, members)
            own = own[:end]
        _fill(each, spec, own, block, members)
        if not computed:
            shared = inputs[:1]
        inputs = inputs[count:]
    for value, result in zip(parts.written, fused.results, strict=True):
        for use in list(value.uses):
            if m.result(use.owner) not in members:
                use.owner.operands[use.operand_number] = result
    dialect.create(
        "heddle.yield",
        operands=parts.written,
        loc=fused.location,
        ip=ir.InsertionPoint(block),
    )
    return fused


def _fill(
    group: Group, spec: Spec, inputs: list[tuple[Any, Any]], block: Any, members: set[Any]
) -> None:
    """Moves the ops of `group` to the end of `block`; `inputs` are values and their arguments."""
    first = len(spec.prologue.inputs) if spec.prologue else 0
    last = len(inputs) - len(spec.behind)
    sections = (
        (group.before, slice(0, first) if group.root else slice(None)),
        ([group.root] if group.root else [], slice(first, last)),
        (group.after, slice(last, None)),
    )
    for ops, section in sections:
        local = dict(inputs[section])
        for op in ops:
            _move(op, block, local, members)


def _move(op: Any, block: Any, local: dict[Any, Any], members: set[Any]) -> None:
    """Moves `op` to the end of `block`, reading `local` values; free ops come along as copies."""

    def inside(value: Any) -> Any:
        if value in local:
            return local[value]
        if value in members:
            return value
        source = m.owner(value)
        assert source is not None, "an argument of the function is always an input"
        copy = source.clone(ip=ir.InsertionPoint(block)).operation
        if len(copy.operands):
            copy.operands[0] = inside(copy.operands[0])
            copy.move_after(list(block.operations)[-1])
        local[value] = copy.results[0]
        return local[value]

    operands = [inside(value) for value in op.operands]
    block.append(op)
    for index, value in enumerate(operands):
        op.operands[index] = value
