"""What a kernel is asked to do, as plain data.

A `Spec` is the boundary between the compiler and the kernels, between the parent and the codegen
child (as JSON), and the key of the kernel cache (as sha256 of that JSON). It names no user symbol:
runtime dimensions are `"d0"`, `"d1"`, ... in order of first appearance, so the six layers of a
model ask for one and the same kernel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

Expr = int | str | tuple[str, Any, Any]
"""A size: a number, a runtime dimension (`"d0"`), or `(op, a, b)` with an op of `EXPR_OPS`."""

EXPR_OPS = ("add", "sub", "mul", "floordiv", "ceildiv", "mod", "min", "max")

Attr = int | float | str | bool | tuple[int, ...] | None


@dataclass(frozen=True)
class Operand:
    """A dense row-major tensor: its dtype's name (`"float32"`) and its shape."""

    dtype: str
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class Step:
    """One elementwise operation of a body, on value numbers; `op` is the graph op's name.

    Operands already have the dtype that the op computes in: a change of dtype is a `cast` step.
    Steps are equal where their text is: the constant 0.0 is another one than -0.0.
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    attrs: tuple[tuple[str, Attr], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and repr(self) == repr(other)


@dataclass(frozen=True)
class Body:
    """Elementwise work around a kernel's root, evaluated at each point of an iteration shape.

    Values are numbered: first `inputs` (buffers, broadcast to the iteration shape by NumPy's rules:
    only a static 1 stretches), then one for each step. In an epilogue value 0 is the root's result
    and the buffers follow. A splat constant is a step `constant` with attr `value`.
    """

    inputs: tuple[Operand, ...] = ()
    steps: tuple[Step, ...] = ()
    results: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spec:
    """One kernel: a root op with an optional elementwise prologue and epilogue.

    Attributes:
        op: The root's registry name; `"map"` is the root of purely elementwise groups (its one
            operand is the prologue's result and it has no epilogue).
        operands: The root's operands as the root sees them. With a prologue, operand 0 is computed
            by it and has no buffer of its own.
        result: The root's result before the epilogue.
        outputs: What is written: the epilogue's results, or `result` where there is none (for
            `map`: the prologue's results). An epilogue's outputs have the result's shape. Where a
            root has several results of its own, `result` is the first of them.
        attrs: The root's attributes, sorted by name.
        beside: What is computed of operand 0 as well by the same root op: specs of their own.
        source: A kernel of rows whose one result is operand 0, which has no buffer of its own.
        gate: What is computed of operand 0 as well, by the same root op, for the epilogue alone:
            its one result is the last of the epilogue's inputs, which has no buffer of its own.
        starts: Where a slice begins along each axis, or counting: sizes no operand need have.

    Buffers are passed in the order of `buffers`: the inputs of prologue or source, the operands
    that are not computed, the epilogue's inputs, those of `gate` and of `beside` without their
    operand 0, and the outputs. `docs/design.md` says what follows them.
    """

    op: str
    operands: tuple[Operand, ...]
    result: Operand
    outputs: tuple[Operand, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    prologue: Body | None = None
    epilogue: Body | None = None
    beside: tuple[Spec, ...] = ()
    source: Spec | None = None
    gate: Spec | None = None
    starts: tuple[Expr, ...] = ()

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The buffers that are read, in call order."""
        feeding = self.prologue or self.source
        operands = self.operands[1:] if feeding else self.operands
        before = feeding.inputs if feeding else ()
        own = before + operands + self.behind
        others = (*((self.gate,) if self.gate else ()), *self.beside)
        return own + tuple(operand for spec in others for operand in spec.inputs[1:])

    @property
    def behind(self) -> tuple[Operand, ...]:
        """The epilogue's inputs that are buffers."""
        inputs = self.epilogue.inputs if self.epilogue else ()
        return inputs[:-1] if self.gate else inputs

    @property
    def written(self) -> tuple[Operand, ...]:
        """The buffers that are written, in call order."""
        return self.outputs + tuple(operand for spec in self.beside for operand in spec.outputs)

    @property
    def buffers(self) -> tuple[Operand, ...]:
        """Every buffer in call order, without the status word."""
        return self.inputs + self.written

    @property
    def each(self) -> tuple[Spec, ...]:
        """This spec without its source and what is beside it, then that."""
        return (replace(self, beside=(), source=None), *self.beside)

    @property
    def products(self) -> tuple[Spec, ...]:
        """Each of `each`, with its gate behind it."""
        return tuple(found for one in self.each for found in (one, one.gate) if found)

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """For each of `each`, the numbers of its buffers in `buffers`; there is no source."""
        read, written = 1, len(self.inputs)
        found = []
        for spec in self.each:
            inputs, outputs = len(spec.inputs) - 1, len(spec.outputs)
            found.append((0, *range(read, read + inputs), *range(written, written + outputs)))
            read, written = read + inputs, written + outputs
        return tuple(found)

    @property
    def dims(self) -> tuple[str, ...]:
        """The runtime dimensions in use, `("d0", "d1", ...)`, in the order of passing."""
        found: set[str] = set()
        for spec in (*((self.source,) if self.source else ()), *self.each):
            for operand in (*spec.operands, spec.result, *spec.buffers):
                for size in operand.shape:
                    found |= names(size)
            for size in spec.starts:
                found |= names(size)
        return tuple(sorted(found, key=lambda name: int(name[1:])))

    def attr(self, name: str, default: Any = None) -> Any:
        """The root attribute `name`, or `default`."""
        return dict(self.attrs).get(name, default)

    def with_attr(self, name: str, value: Attr) -> Spec:
        """This spec, of whose `products` each has the attribute `name`."""
        attrs = tuple(sorted({**dict(self.attrs), name: value}.items()))
        beside = tuple(one.with_attr(name, value) for one in self.beside)
        gate = self.gate and self.gate.with_attr(name, value)
        return replace(self, attrs=attrs, beside=beside, gate=gate)

    def to_json(self) -> str:
        """The canonical text of this spec: same spec, same bytes."""
        return json.dumps(_plain(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Spec:
        """The inverse of `to_json`."""
        return _spec(json.loads(text))

    @property
    def digest(self) -> str:
        """sha256 of `to_json`, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class TensorMap:
    """How TMA copies boxes of a buffer (CUDA driver API, `cuTensorMapEncodeTiled`).

    What lies outside of `shape` is read as zeros and not written. The map is valid where the
    buffer's address and all strides are multiples of 16 bytes; elsewhere the kernel gets zeros in
    its place, has to see that for itself, and to do without.

    Attributes:
        buffer: The buffer's number in `Spec.buffers`; its dtype is that of the elements.
        shape: The sizes, outermost first, 1 to 5 of them.
        strides: The bytes from one element to the next along each axis but the last, which is
            dense.
        box: The elements of a box along each axis, at most 256 each.
        swizzle: The bytes of a line in shared memory within which chunks of 16 are permuted: 32,
            64, 128, or 0 for none.
    """

    buffer: int
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True)
class Launch:
    """How the runtime starts a kernel, and what it gives it beside its buffers.

    Attributes:
        grid: CPU: `grid[0]` is the number of tasks of the one-dimensional task range, `grid[1]`
            how many a thread takes at once where its share has them: what they read is then read
            once. CUDA: blocks.
        work: An estimate of the whole dispatch in elementary operations or bytes, whichever is
            larger: the thread pool keeps small work on one thread by it.
        workspace: Bytes of scratch memory, at a multiple of 64, contents unknown.
        counters: 32-bit words that are zero at the start, and that the kernel leaves as zeros.

    The rest is for CUDA:
        block: Threads of a block.
        shared: Bytes of dynamic shared memory of a block.
        cluster: Blocks of a cluster, along x; divides `grid[0]`.
        resident: Where not 0, no more blocks are started than this for each multiprocessor, in
            whole clusters: each takes work in steps of the grid that it sees.
        overlaps: The kernel is started before the one in front of it has ended, and waits for that
            (`griddepcontrol.wait`) before all else; set by `Kernel.launch_on`.
        tensor_maps: What it copies by TMA.
    """

    grid: tuple[Expr, Expr, Expr]
    work: Expr
    block: tuple[int, int, int] = field(default=(1, 1, 1))
    shared: int = 0
    cluster: int = 1
    resident: int = 0
    overlaps: bool = False
    workspace: Expr = 0
    counters: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()


def names(size: Expr) -> set[str]:
    """The runtime dimensions that `size` depends on."""
    if isinstance(size, str):
        return {size}
    return names(size[1]) | names(size[2]) if isinstance(size, tuple) else set()


def fold(op: str, a: Expr, b: Expr) -> Expr:
    """`(op, a, b)`, folded where both sides are numbers or one is neutral."""
    if op not in EXPR_OPS:
        raise ValueError(f"size: wanted one of {', '.join(EXPR_OPS)}, got {op!r}")
    if isinstance(a, int) and isinstance(b, int):
        return _FOLD[op](a, b)
    if op == "mul" and 1 in (a, b):
        return b if a == 1 else a
    if op == "add" and 0 in (a, b):
        return b if a == 0 else a
    if op in ("floordiv", "ceildiv") and b == 1:
        return a
    return (op, a, b)


def product(sizes: tuple[Expr, ...]) -> Expr:
    """The product of `sizes`; 1 for none."""
    one: Expr = 1
    return reduce(partial(fold, "mul"), sizes, one)


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _operands(values: list[Any]) -> tuple[Operand, ...]:
    return tuple(Operand(v["dtype"], _tuple(v["shape"])) for v in values)


def _body(value: Any) -> Body:
    steps = tuple(Step(**{k: _tuple(v) for k, v in step.items()}) for step in value["steps"])
    return Body(_operands(value["inputs"]), steps, _tuple(value["results"]))


def _spec(value: dict[str, Any]) -> Spec:
    return Spec(
        op=value["op"],
        operands=_operands(value["operands"]),
        result=_operands([value["result"]])[0],
        outputs=_operands(value["outputs"]),
        attrs=_tuple(value["attrs"]),
        prologue=value["prologue"] and _body(value["prologue"]),
        epilogue=value["epilogue"] and _body(value["epilogue"]),
        beside=tuple(map(_spec, value["beside"])),
        source=value["source"] and _spec(value["source"]),
        gate=value["gate"] and _spec(value["gate"]),
        starts=_tuple(value["starts"]),
    )
