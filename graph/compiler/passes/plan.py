"""Gives every value its place: an output, the state that init fills, or bytes of an arena.

A producer writes an output in place. A reshape is the value that it renames. What init computes
for main stays in the state; everything else lives in the arena of its routine only from its
producer to its last reader, and shares memory with what lives at other times. A kernel that reads
each element of an input just before it writes the result to its place may write over that input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from heddle.graph import attributes
from heddle.graph.compiler import memory
from heddle.graph.compiler import module as m
from heddle.graph.compiler.parts import parts_of
from heddle.graph.compiler.sizes import Ranges, align, maximum, substitute, weigh
from heddle.graph.compiler.specs import Request, request
from heddle.graph.dim import Dim
from heddle.kernels import registry
from heddle.kernels.mlir import ir
from heddle.kernels.spec import Expr, Spec, fold


@dataclass(frozen=True)
class Place:
    """Where a value is: `"input"`, `"output"`, `"weight"`, `"constant"`, `"state"`, `"arena"`.

    `index` numbers the first four, `offset` is in bytes.
    """

    kind: str
    index: int = 0
    offset: Expr = 0

    def __str__(self) -> str:
        if self.kind in ("state", "arena"):
            return f"{self.kind} {Dim.from_expr(self.offset)}"
        return f"{self.kind} {self.index}"

    @staticmethod
    def parse(text: str) -> Place:
        """The inverse of `str`."""
        kind, _, rest = text.partition(" ")
        if kind in ("state", "arena"):
            return Place(kind, offset=Dim(rest).expr)
        return Place(kind, int(rest))


def plan(module: Any, kind: str) -> None:
    """Gives each fused op its results' `places` and its `workspace`, where its kernel takes one.

    The function gets the sizes of its memories.
    """
    main = m.main(module)
    ranges = attributes.read_symbols(main.attributes["heddle.symbols"])
    places: dict[Any, Place] = {}
    _place_outputs(module, places)
    _place_updates(module, kind, places)
    state = _place_state(module, places)
    sizes = {
        "state": state,
        "init_arena": _place_arena(module, kind, places, ranges, "init"),
        "main_arena": _place_arena(module, kind, places, ranges, "main"),
    }
    for operation in _fused(module):
        if operation in places:
            operation.attributes["workspace"] = ir.StringAttr.get(str(places[operation]))
        texts = [ir.StringAttr.get(str(places[value])) for value in operation.results]
        operation.attributes["places"] = ir.ArrayAttr.get(texts)
    for name, size in sizes.items():
        main.attributes[f"heddle.{name}"] = ir.StringAttr.get(str(Dim.from_expr(size)))


def stage(operation: Any) -> str:
    """When a fused op runs: `"compile"`, or in the routine `"init"` or `"main"`."""
    return operation.attributes["stage"].value if "stage" in operation.attributes else "main"


def root_value(value: Any) -> Any:
    """What a reshape renames, at any distance; else `value`."""
    while m.owner_name(value) == "reshape":
        value = m.owner(value).operands[0]  # type: ignore[union-attr]
    return value


def readers(value: Any) -> list[Any]:
    """The fused ops that read a value or a reshape of it; None stands for the caller."""
    found: list[Any] = []
    for user in m.users(value):
        if m.name(user) == "reshape":
            found += readers(user.results[0])
        else:
            found.append(user if m.name(user) == "fused" else None)
    return found


def byte_size(value: Any) -> Expr:
    """The bytes of a value."""
    kind = m.tensor(value)
    return (kind.shape.elements * kind.dtype.size).expr


def workspace(operation: Any, kind: str) -> Expr:
    """The bytes of scratch memory that a fused op's kernels take."""
    wanted = wanted_of(operation, kind)
    row = registry.find(wanted.spec.op, kind)
    specs = [part.spec for part in split(wanted, kind)] if row else []
    sizes = {launch.workspace for spec in specs for launch in row.launches(spec)} if row else set()
    most: Expr = 0
    for size in sorted(sizes - {0}, key=str):
        most = fold("max", most, size) if most else size
    values = dict(zip(wanted.spec.dims, wanted.dims, strict=True))
    return substitute(most, lambda name: values[name])


def wanted_of(operation: Any, kind: str) -> Request:
    """What a fused op asks of a kernel: it may read ahead what the graph is given."""
    wanted = request(parts_of(operation))
    ahead = _ahead(operation, wanted.spec, kind)
    if not ahead or not all(_is_given(value, operation) for value in ahead):
        return wanted
    return replace(wanted, spec=wanted.spec.with_attr(registry.AHEAD, True))


def _ahead(operation: Any, spec: Spec, kind: str) -> list[Any]:
    """What a fused op that asks for `spec` could read before the kernels in front have ended."""
    row = registry.find(spec.op, kind)
    return [root_value(operation.operands[i]) for i in row.ahead(spec)] if row else []


def _is_given(value: Any, operation: Any) -> bool:
    """Whether no kernel writes a value in the routine that runs `operation`."""
    made = m.owner(value)
    return made is None or m.name(made) != "fused" or stage(made) != stage(operation)


def awaits_calls(module: Any, kind: str) -> bool:
    """Whether main reads ahead what a call brings, so that it starts behind all in front of it."""
    for operation in _fused(module, "main"):
        spec = wanted_of(operation, kind).spec
        ahead = _ahead(operation, spec, kind) if spec.attr(registry.AHEAD) else []
        if any(m.owner(value) is None for value in ahead):
            return True
    return False


def split(wanted: Request, kind: str) -> list[Request]:
    """The portions of a request: see `heddle.kernels.registry.Kernel.split`."""
    row = registry.find(wanted.spec.op, kind)
    if row is None:
        return [wanted]
    values = dict(zip(wanted.spec.dims, wanted.dims, strict=True))

    def request(portion: registry.Portion) -> Request:
        dims = tuple(values[name] for name in portion.spec.dims)
        buffers = wanted.buffers if portion.buffers is None else portion.buffers
        return Request(portion.spec, dims, wanted.inputs, buffers, portion.condition)

    return [request(portion) for portion in row.split(wanted.spec)]


def _fused(module: Any, routine: str | None = None) -> list[Any]:
    ops = [op for op in m.operations(module) if m.name(op) == "fused"]
    return [op for op in ops if stage(op) in ((routine,) if routine else ("init", "main"))]


def _place_outputs(module: Any, places: dict[Any, Place]) -> None:
    """What main computes and returns is written where it is returned; a second return copies it."""
    for index, value in enumerate(m.returned(module).operands):
        value = root_value(value)
        producer = m.owner(value)
        if producer is not None and m.name(producer) == "fused" and stage(producer) == "main":
            places.setdefault(value, Place("output", index))


def _place_updates(module: Any, kind: str, places: dict[Any, Place]) -> None:
    """A value that ends in an update that is returned is in that output from the start."""
    operations = _fused(module, "main")
    position = {value: index for index, op in enumerate(operations) for value in op.results}
    for operation in reversed(operations):
        inputs = [root_value(value) for value in operation.operands]
        pairs = list(zip(inputs, operation.results, strict=False))
        row = registry.find(request(parts_of(operation)).spec.op, kind)
        for source, result in pairs[: _updates(row)]:
            others = inputs.copy()
            others.remove(source)
            if source not in position or source in places or source in others:
                continue
            last = all(
                reader is not None and position[m.result(reader)] <= position[result]
                for reader in readers(source)
            )
            if result in places and last:
                places[source] = places[result]


def _updates(row: registry.Kernel | None) -> int:
    return row.updates if row else 0


def _place_state(module: Any, places: dict[Any, Place]) -> Expr:
    """Puts what main or the caller reads of init's values one after another."""
    offset: Expr = 0
    for operation in _fused(module, "init"):
        for value in operation.results:
            if any(reader is None or stage(reader) == "main" for reader in readers(value)):
                places[value] = Place("state", offset=offset)
                offset = fold("add", offset, align(byte_size(value)))
    return offset


def _place_arena(
    module: Any, kind: str, places: dict[Any, Place], ranges: Ranges, routine: str
) -> Expr:
    """Plans what is left of a routine's values; returns the bytes that they need."""
    operations = _fused(module, routine)
    position = {op.results[0]: index for index, op in enumerate(operations)}
    for value in (v for op in operations for v in _untouched(op, kind)):
        places[value] = Place("arena", offset=0)
    values = {v: [v] for op in operations for v in op.results if v not in places}

    spans: dict[Any, tuple[int, int]] = {}

    def span(value: Any) -> tuple[int, int]:
        if value not in spans:
            first = position[m.result(m.owner(value))]
            spans[value] = first, max([first, *(position[m.result(r)] for r in readers(value))])
        return spans[value]

    scratch = {op: size for op in operations if (size := workspace(op, kind)) != 0}
    for operation in operations:
        for result, source in _overwritten(operation, kind):
            if source in values and result in values and span(source)[1] == span(result)[0]:
                values[result] = values.pop(source) + values[result]
    lifetimes = [
        memory.Lifetime(byte_size(chain[0]), span(chain[0])[0], span(chain[-1])[1])
        for chain in values.values()
    ]
    layout = _with_scratch(
        lifetimes, {position[m.result(op)]: n for op, n in scratch.items()}, ranges
    )
    for chain, offset in zip(values.values(), layout.offsets, strict=False):
        for value in chain:
            places[value] = Place("arena", offset=offset)
    for operation, offset in zip(scratch, layout.offsets[len(values) :], strict=True):
        places[operation] = Place("arena", offset=offset)
    return layout.total


def _with_scratch(
    lifetimes: list[memory.Lifetime], scratch: dict[int, Expr], ranges: Ranges
) -> memory.Layout:
    """Where values lie, and behind them the scratch memory of steps: each among the values.

    Or all in one place behind them, where that takes no more: sizes stay short.
    """
    layout = memory.plan(lifetimes, ranges)
    if not scratch:
        return layout
    most = maximum([Dim.from_expr(align(size)) for size in scratch.values()], ranges)
    total = Dim.from_expr(layout.total) + most
    among = memory.plan(
        [*lifetimes, *(memory.Lifetime(size, step, step) for step, size in scratch.items())], ranges
    )
    if weigh(Dim.from_expr(among.total), ranges) < weigh(total, ranges):
        return among
    return memory.Layout((*layout.offsets, *[layout.total] * len(scratch)), total.expr)


def _untouched(operation: Any, kind: str) -> list[Any]:
    """Results that no kernel has as a buffer: that of a gate where no kernel computes it alone."""
    wanted = wanted_of(operation, kind)
    if wanted.spec.gate is None:
        return []
    found = {number for part in split(wanted, kind) for number in part.buffers}
    given = [*operation.operands, *operation.results]
    return [value for number, value in enumerate(given) if number not in found]


def _overwritten(operation: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of a result and what it may lie over: an input that is read there and nowhere else.

    Where that is what the kernel updates, it is no longer copied.
    """
    spec = request(parts_of(operation)).spec
    row = registry.find(spec.op, kind)
    inputs = [root_value(value) for value in operation.operands]
    for result, source in list(zip(operation.results, inputs, strict=False))[: _updates(row)]:
        if inputs.count(source) == 1:
            yield result, source
    after = len(spec.epilogue.inputs) if spec.epilogue and not spec.beside else 0
    count = {"": 0, "epilogue": after, "all": len(inputs)}[row.overwrites if row else ""]
    own = list(zip(inputs, spec.inputs, strict=True))[len(inputs) - count :]
    free = {value: seen for value, seen in own if inputs.count(value) == 1}
    for result, output in zip(operation.results, spec.written, strict=spec.gate is None):
        source = next((value for value, seen in free.items() if seen == output), None)
        if source is not None:
            del free[source]
            yield result, source
