"""Gathers ops into kernels: every op that computes ends up in a `heddle.fused` region.

One greedy walk in program order. An elementwise op joins a group that computes one of its operands,
as the end of its epilogue; a root takes over the elementwise group that computes its operand 0, as
its prologue. A group only grows into what a kernel of the registry supports, never computes a value
twice, and never into a cycle. A value that others need as well becomes one more output. A cast that
widens such a value is left to what reads it: less is written, and less read. Then a product becomes
the gate of one of the same left side whose epilogue alone reads it, and products of one left side
become one group: either spares a launch. A norm whose result only they read becomes their source.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.groups import Group, Grouping, outline
from heddle.graph.compiler.parts import BESIDE
from heddle.graph.compiler.specs import has_kernel, request, seen
from heddle.graph.compiler.stages import known_at_init

FOLDED = ("broadcast_to", "transpose")
"""Ops that may end up inside of the kernels that read them, and then are not needed themselves."""

PROLOGUES = ("reduce", "cumsum", "softmax", "layer_norm", "rms_norm", "round_rows")
"""Roots that read each element of operand 0 a fixed number of times; others would recompute it."""

SOURCES = ("layer_norm", "rms_norm")
"""Roots that compute a product's left side row by row."""

MOST_STEPS, MOST_INPUTS, MOST_OUTPUTS = 64, 16, 4
"""Ops and buffers of one group: beyond this a kernel spills what a larger one could save."""


def fuse(module: Any, kind: str) -> None:
    """Puts every op but reshapes, weights and constants into a fused region."""
    fuser = _Fuser(kind, known_at_init(module))
    for operation in m.operations(module):
        fuser.visit(operation)
    fuser.take_gates()
    fuser.put_beside()
    fuser.take_sources()
    end = m.returned(module)
    for node in _schedule(m.operations(module), fuser.grouping):
        if isinstance(node, Group):
            outline(node, end)
        elif (operation := m.owner(node)) is not None:
            operation.move_before(end)
    for operation in reversed(m.operations(module)):
        if m.name(operation) in (*FOLDED, "constant") and not m.users(operation.results[0]):
            operation.erase()


class _Fuser:
    def __init__(self, kind: str, early: set[Any]) -> None:
        self.kind = kind
        self.early = early
        self.grouping = Grouping()

    def visit(self, operation: Any) -> None:
        name, result = m.name(operation), operation.results[0]
        if name in m.SOURCES or name == "reshape":
            return
        if name == "broadcast_to":
            if not all(m.elementwise(user) for user in m.users(result)):
                self.grouping.add(before=[operation])  # somebody needs it in memory
        elif name == "transpose" and all(seen(result, u) != result for u in m.users(result)):
            return  # a matmul does it while it reads
        elif m.elementwise(operation):
            if self._left_to_reader(operation) or not self._join(operation):
                self.grouping.add(before=[operation])
        else:
            group = self.grouping.add(root=operation)
            self._take_prologue(group, operation)

    def _left_to_reader(self, operation: Any) -> bool:
        """Whether it is a cast that widens a value for one op, which something else feeds too.

        As others read the value, the cast would be one more output of what computes it.
        """
        if m.name(operation) != "cast":
            return False
        source, result = operation.operands[0], operation.results[0]
        wide, user = m.tensor(result), m.only_user(result)
        if m.tensor(source).dtype.size >= wide.dtype.size or m.only_user(source) is not None:
            return False
        if user is None or not m.elementwise(user):
            return False
        others = {
            self.grouping.of(value)
            for value in user.operands
            if value != result and m.tensor(value).shape == wide.shape
        }
        return bool(others - {None, self.grouping.of(source)})

    def take_gates(self) -> None:
        """Puts a product into the group of another one of its left side that alone reads it."""
        for group in self.grouping.groups:
            if group.root is None or self.grouping.of(m.result(group.root)) != group:
                continue  # It has become a gate meanwhile.
            read = {g for op in group.after for g in self.grouping.producers(op)} - {group}
            for gate in sorted(read, key=lambda g: g.number):
                if self._is_gate(gate, group) and self._fits(grown := group.with_gate(gate)):
                    self.grouping.replace(group, [gate], grown)
                    break

    def _is_gate(self, gate: Group, group: Group) -> bool:
        """Whether a product's one result is read by the epilogue of another one alone."""
        if gate.before or gate.gate or group.before or not self._of_one_side(gate, group):
            return False
        return len(gate.results) == 1 and all(
            any(user == op for op in group.after) for user in m.users(gate.results[0])
        )

    def put_beside(self) -> None:
        """Puts products of one left side into one group, where none of them needs another."""
        known: dict[Any, list[Group]] = {}  # by what is alike, those that have room for more
        for group in self.grouping.groups:
            root = group.root
            if root is None or m.name(root) not in BESIDE or group.before:
                continue
            firsts = known.setdefault((m.name(root), root.operands[0], self._early(root)), [])
            for place, first in enumerate(firsts):
                if self._needs_either(first, group):
                    continue
                if self._fits(grown := first.with_beside(group)):
                    self.grouping.replace(first, [group], grown)
                    full = len(grown.parts().written) >= MOST_OUTPUTS
                    firsts[place : place + 1] = [] if full else [grown]
                    break
            else:
                firsts.append(group)

    def take_sources(self) -> None:
        """Makes a norm that only the products of one group read the source of that group."""
        for group in self.grouping.groups:
            if group.root is None or m.name(group.root) not in BESIDE:
                continue
            left = group.root.operands[0]
            source = self.grouping.of(left)
            roots = {m.result(each.root) for each in group.each}
            if (
                source is not None
                and source.root is not None
                and m.name(source.root) in SOURCES
                and source.results == [left]
                and all(m.result(user) in roots for user in m.users(left))
                and self._early(source.root) == self._early(group.root)
            ):
                grown = group.with_source(source)
                if self._fits(grown):
                    self.grouping.replace(group, [source], grown)

    def _needs_either(self, first: Group, other: Group) -> bool:
        """Whether one of them needs the other."""
        return self.grouping.depends(other, first) or self.grouping.depends(first, other)

    def _of_one_side(self, first: Group, other: Group) -> bool:
        """Whether both have a product, by one op and at one time, of one left side."""
        one, two = first.root, other.root
        if one is None or two is None or m.name(one) != m.name(two) or m.name(one) not in BESIDE:
            return False
        return one.operands[0] == two.operands[0] and self._early(one) == self._early(two)

    def _join(self, operation: Any) -> bool:
        result = operation.results[0]
        shape = m.tensor(result).shape
        producers = {
            group
            for value in operation.operands
            if (group := self.grouping.of(value)) and m.tensor(value).shape == shape
        }
        producers = {g for g in producers if self._early(g.ops[0]) == self._early(operation)}
        # Roots first, the latest first: its other operands are most likely done by then.
        for group in sorted(producers, key=lambda g: (g.root is None, -g.number)):
            merged = [
                other for other in producers if other != group and self._only_for(other, operation)
            ]
            for absorbed in (merged, []) if merged else ([],):
                if self._grow(group, operation, absorbed):
                    return True
        return False

    def _grow(self, group: Group, operation: Any, absorbed: list[Group]) -> bool:
        """Adds `operation` and the groups `absorbed` to `group`, where that is sound and fits."""
        grown = group.with_tail([op for other in absorbed for op in other.before] + [operation])
        inside = {group, *absorbed}
        outside = {g for op in grown.ops for g in self.grouping.producers(op)} - inside
        if any(self.grouping.behind(op) & inside for op in grown.ops):
            return False
        if any(self.grouping.depends(other, member) for other in outside for member in inside):
            return False
        if len(grown.ops) > MOST_STEPS or not self._fits(grown):
            return False
        self.grouping.replace(group, absorbed, grown)
        return True

    def _take_prologue(self, group: Group, root: Any) -> None:
        if not len(root.operands):
            return
        feeding = self.grouping.of(root.operands[0])
        if feeding is None or feeding.root or not self._only_for(feeding, root):
            return
        if self._early(feeding.ops[0]) != self._early(root):
            return
        grown = group.with_prologue(feeding.before)
        if request(grown.parts()).spec.op in PROLOGUES and self._fits(grown):
            self.grouping.replace(group, [feeding], grown)

    def _only_for(self, group: Group, operation: Any) -> bool:
        """Whether the elementwise `group` makes one value, for one operand of `operation`."""
        results = group.results
        user = m.only_user(results[0]) if group.root is None and len(results) == 1 else None
        return user is not None and user == operation

    def _fits(self, group: Group) -> bool:
        spec = request(group.parts()).spec
        if len(spec.inputs) > MOST_INPUTS or len(spec.written) > MOST_OUTPUTS:
            return False
        return has_kernel(spec, self.kind)

    def _early(self, operation: Any) -> bool:
        return operation.results[0] in self.early


def _schedule(operations: list[Any], grouping: Grouping) -> Iterator[Any]:
    """Groups and the values outside of them, each after what it reads, near program order."""
    nodes: dict[Any, int] = {}
    for position, operation in enumerate(operations):
        value = operation.results[0]
        group = grouping.of(value)
        if group or m.name(operation) not in FOLDED:
            nodes[group or value] = position
    readers: dict[Any, list[Any]] = {node: [] for node in nodes}
    waiting: dict[Any, int] = {}
    for node in nodes:
        ops = node.ops if isinstance(node, Group) else [m.owner(node)]
        sources = _reads(ops, grouping) - {node}
        waiting[node] = len(sources)
        for read in sources:
            readers[read].append(node)
    ready = [(place, node) for node, place in nodes.items() if not waiting[node]]
    heapq.heapify(ready)
    while ready:
        _, node = heapq.heappop(ready)
        yield node
        for reader in readers[node]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (nodes[reader], reader))


def _reads(operations: Iterable[Any], grouping: Grouping) -> set[Any]:
    """The groups and ungrouped values that `operations` read, folded ones seen through."""
    found: set[Any] = set()
    for operation in operations:
        for value in operation.operands:
            node = grouping.of(value)
            while node is None and m.owner_name(value) in FOLDED:
                value = m.owner(value).operands[0]  # type: ignore[union-attr]
                node = grouping.of(value)
            if m.owner(value) is not None:
                found.add(node or value)
    return found
