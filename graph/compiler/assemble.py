"""From planned modules and machine code to the artifact's records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from heddle.graph import attributes
from heddle.graph.compiler import module as m
from heddle.graph.compiler.constants import Constants, constant_bytes, settled
from heddle.graph.compiler.passes.plan import (
    Place,
    awaits_calls,
    byte_size,
    root_value,
    split,
    stage,
    wanted_of,
    workspace,
)
from heddle.graph.compiler.passes.select import kernel_name
from heddle.graph.compiler.sizes import substitute
from heddle.graph.compiler.specs import Request
from heddle.graph.dim import Dim
from heddle.kernels import registry
from heddle.kernels import spec as spec_rows
from heddle.kernels.emit import ITEM_SIZE
from heddle.kernels.spec import Expr, Spec, fold
from heddle.runtime.artifact import (
    Buffer,
    BufferKind,
    Code,
    Copy,
    Dispatch,
    Kernel,
    Launch,
    Program,
    Routine,
    Symbol,
    Tensor,
    TensorMap,
    Weight,
)

STATUS_BYTES = 32
"""The status word: four int64 (docs/design.md)."""

COUNTER_BYTES = 4


def requests(module: Any, kind: str) -> list[tuple[Any, Request]]:
    """Each fused op of a lowered module with what it asks of kernels for `kind`, in program order.

    An op asks several times where kernels share its calls.
    """
    return [
        (op, part)
        for op in m.operations(module)
        if m.name(op) == "fused" and stage(op) != "compile"
        for part in split(wanted_of(op, kind), kind)
    ]


def signature(
    module: Any,
) -> tuple[tuple[Symbol, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The symbols, inputs and outputs of a graph's module."""
    main, body = m.main(module), m.block(module)
    ranges = attributes.read_symbols(main.attributes["heddle.symbols"])
    inputs = [item["heddle.name"].value for item in main.arg_attrs] if len(body.arguments) else []
    outputs = [text.value for text in main.attributes["heddle.outputs"]]
    return (
        tuple(Symbol(name, low, high) for name, (low, high) in ranges.items()),
        tuple(map(_tensor, inputs, body.arguments)),
        tuple(map(_tensor, outputs, m.returned(module).operands)),
    )


def _tensor(name: str, value: Any) -> Tensor:
    kind = m.tensor(value)
    return Tensor(name, kind.dtype.name, tuple(dim.expr for dim in kind.shape))


@dataclass
class _Table:
    """Records that are referred to by number, each once."""

    rows: list[Any] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)

    def number(self, key: Any, make: Callable[[], Any]) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            self.rows.append(make())
        return self.numbers[key]


def program(
    module: Any,
    kind: str,
    asked: Sequence[tuple[Any, Request]],
    codes: Callable[[Spec], tuple[Code, ...]],
    weights: Sequence[Weight],
    constants: Constants,
) -> Program:
    """The program of a planned module.

    Args:
        module: A module after all passes.
        kind: `"cpu"` or `"cuda"`.
        asked: The module's `requests`.
        codes: The code of a spec for every machine of the target.
        weights: The weights of the artifact.
        constants: Takes the constants that the program reads.
    """
    places = _places(module, weights, constants)
    kernels, buffers = _Table(), _Table()

    def buffer(value: Any) -> int:
        value = root_value(value)
        place, size = places[value], byte_size(value)
        return _buffer(buffers, place, size)

    routines: dict[str, list[Dispatch | Copy]] = {"init": [], "main": []}
    for operation, wanted in asked:
        spec = wanted.spec
        row = registry.find(spec.op, kind)
        assert row is not None, "select has checked this"
        launches = row.launches(spec)

        def kernel(row: registry.Kernel = row, spec: Spec = spec) -> Kernel:
            return _kernel(row, spec, codes(spec))

        values = dict(zip(spec.dims, wanted.dims, strict=True))

        def size(expr: Expr, values: Mapping[str, Expr] = values) -> Expr:
            return substitute(expr, lambda name: values[name])

        def tensor_map(described: spec_rows.TensorMap, spec: Spec = spec) -> TensorMap:
            item = ITEM_SIZE[spec.buffers[described.buffer].dtype]
            shape, strides = tuple(map(size, described.shape)), tuple(map(size, described.strides))
            return TensorMap(
                described.buffer, item, shape, strides, described.box, described.swizzle
            )

        given = [*operation.operands, *operation.results]
        passed = [buffer(given[number]) for number in wanted.buffers]
        for number in range(row.updates):
            routines[stage(operation)] += _update(operation, passed, number)
        for extra in row.extras(spec):
            match extra:
                case "workspace":
                    # One of no bytes has no place of its own.
                    at = operation.attributes
                    known = "workspace" in at
                    place = Place.parse(at["workspace"].value) if known else Place("arena")
                    passed.append(_buffer(buffers, place, workspace(operation, kind)))
                case "counters":
                    most = max(launch.counters for launch in launches)
                    passed.append(_buffer(buffers, Place("counters"), COUNTER_BYTES * most))
                case "status":
                    passed.append(_buffer(buffers, Place("status"), STATUS_BYTES))
        routines[stage(operation)].append(
            Dispatch(
                kernels.number(spec, kernel),
                tuple(passed),
                wanted.dims,
                tuple(
                    tuple(map(size, (fold("mul", wanted.condition, x), *others)))
                    for x, *others in (launch.grid for launch in launches)
                ),
                size(launches[0].work),
                m.label(operation),
                tuple(tensor_map(one) for launch in launches for one in launch.tensor_maps),
            )
        )
    routines["main"] += _copies(module, places, buffers)
    sizes = m.main(module).attributes

    def total(name: str) -> Expr:
        return Dim(sizes[f"heddle.{name}"].value).expr

    state = total("state")
    assert isinstance(state, int), "only values of static shape are computed by init"
    return Program(
        target="cpu" if kind == "cpu" else "cuda",
        kernels=tuple(kernels.rows),
        buffers=tuple(buffers.rows),
        init=Routine(tuple(routines["init"]), total("init_arena")),
        main=Routine(tuple(routines["main"]), total("main_arena")),
        state=state,
        overlaps=kind == "cuda" and not awaits_calls(module, kind),
    )


def _kernel(row: registry.Kernel, spec: Spec, codes: tuple[Code, ...]) -> Kernel:
    """A kernel, each of its codes with the launch of its architecture."""
    launches = row.launches(spec)
    numbers = [launches.index(row.launch_on(spec, registry.MACHINES[c.arch])) for c in codes]
    return Kernel(
        kernel_name(spec),
        tuple(replace(code, launch=n) for code, n in zip(codes, numbers, strict=True)),
        row.checks,
        tuple(
            Launch(
                launch.block,
                launch.shared,
                launch.cluster,
                launch.resident,
                launch.overlaps,
                len(launch.tensor_maps),
            )
            for launch in launches
        ),
    )


def _buffer(buffers: _Table, place: Place, size: Expr) -> int:
    kind = cast("BufferKind", place.kind)
    return buffers.number((place, size), lambda: Buffer(kind, size, place.index, place.offset))


def _places(module: Any, weights: Sequence[Weight], constants: Constants) -> dict[Any, Place]:
    """Where each value of the function is that no reshape makes."""
    numbers = {weight.name: number for number, weight in enumerate(weights)}
    places = {value: Place("input", i) for i, value in enumerate(m.block(module).arguments)}
    for value, made in settled(module, {weight.name: weight for weight in weights}).items():
        places[value] = Place("constant", constants.number(*made))
    for operation in m.operations(module):
        match m.name(operation):
            case "weight":
                number = numbers[operation.attributes["name"].value]
                places[operation.results[0]] = Place("weight", number)
            case "constant":
                data = constant_bytes(operation)
                number = constants.number(hashlib.sha256(data).digest(), data)
                places[operation.results[0]] = Place("constant", number)
            case "fused" if stage(operation) != "compile":
                texts: Sequence[Any] = operation.attributes["places"]
                for value, text in zip(operation.results, texts, strict=True):
                    places[value] = Place.parse(text.value)
    return places


def _update(operation: Any, passed: list[int], number: int) -> list[Copy]:
    """Passes result `number` as that operand too, after a copy where they are not one memory yet.

    The copy is the last to read its source here, so that a caller can pass one memory as both.
    """
    source, target = passed[number], passed[len(operation.operands) + number]
    passed[number] = target
    if source == target:
        return []
    return [Copy(source, target, byte_size(operation.results[number]), m.label(operation))]


def _copies(module: Any, places: Mapping[Any, Place], buffers: _Table) -> list[Copy]:
    """What is returned without being computed in place: inputs, weights, and repeated outputs."""
    found = []
    returned = m.returned(module)
    for index, value in enumerate(returned.operands):
        source, target = places[root_value(value)], Place("output", index)
        if source != target:
            size = byte_size(value)
            pair = _buffer(buffers, source, size), _buffer(buffers, target, size)
            found.append(Copy(*pair, size, f"output {index} ({m.line(returned)})"))
    return found
