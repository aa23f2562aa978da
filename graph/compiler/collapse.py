"""Merges adjacent axes that every operand of a kernel treats alike.

A bias over [batch, sequence, 384] and one over [rows, 384] are the same work. Merging makes them
the same spec: fewer kernels, and loops over rows instead of nests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from heddle.graph.ops.linear import PANEL
from heddle.kernels.spec import Body, Expr, Operand, Spec, product

Axes = tuple[int | None, ...]
"""For each axis of an operand, the axis of the result that it runs along, or None."""


def collapse(spec: Spec) -> Spec:
    """`spec` with runs of axes merged where that changes neither what is read nor written."""
    if spec.gate:
        return replace(collapse(replace(spec, gate=None)), gate=collapse(spec.gate))
    if spec.beside or spec.source:
        first, *others = map(collapse, spec.each)
        return replace(first, beside=tuple(others), source=spec.source and collapse(spec.source))
    rank = len(spec.result.shape)
    maps, begins = _ROOTS.get(spec.op, _opaque)(spec)
    bodies = [body for body in (spec.prologue, spec.epilogue) if body]
    views: list[_Root | _View] = [
        *(_Root(operand.shape, axes) for operand, axes in zip(spec.operands, maps, strict=True)),
        *(_View(operand.shape) for body in bodies for operand in body.inputs),
    ]
    runs: list[list[int]] = []
    for axis in range(rank):
        joins = bool(runs) and axis not in begins
        if joins and all(v.merges(runs[-1], axis, spec.result.shape) for v in views):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) == rank:
        return spec
    return _apply(spec, maps, runs)


@dataclass(frozen=True)
class _Root:
    """An operand of the root: it has an axis of the result in full or not at all."""

    shape: tuple[Expr, ...]
    axes: Axes

    def merges(self, run: list[int], axis: int, result: tuple[Expr, ...]) -> bool:
        if (run[-1] in self.axes) != (axis in self.axes):
            return False
        if axis not in self.axes:
            return True
        return self.axes.index(run[-1]) + 1 == self.axes.index(axis)


@dataclass(frozen=True)
class _View:
    """An input of a body, broadcast to the result's shape by NumPy's rules."""

    shape: tuple[Expr, ...]

    def merges(self, run: list[int], axis: int, result: tuple[Expr, ...]) -> bool:
        real = [a for a in (*run, axis) if result[a] != 1]
        return len({self._stretched(a, len(result)) for a in real}) <= 1

    def _stretched(self, axis: int, rank: int) -> bool:
        position = axis - rank + len(self.shape)
        return position < 0 or self.shape[position] == 1


def _apply(spec: Spec, maps: Sequence[Axes], runs: list[list[int]]) -> Spec:
    rank = len(spec.result.shape)

    def broadcast(operand: Operand) -> Operand:
        missing = rank - len(operand.shape)
        padded = (1,) * missing + operand.shape
        shape = [product(tuple(padded[axis] for axis in run)) for run in runs]
        while shape and shape[0] == 1:
            shape.pop(0)
        return replace(operand, shape=tuple(shape))

    def merge(operand: Operand, axes: Axes) -> Operand:
        shape: list[Expr] = []
        for position, axis in enumerate(axes):
            run = next((run for run in runs if axis in run), None)
            if run is None:
                shape.append(operand.shape[position])
            elif run[0] == axis:
                end = position + len(run)
                shape.append(product(operand.shape[position:end]))
        return replace(operand, shape=tuple(shape))

    def body(value: Body | None) -> Body | None:
        return value and replace(value, inputs=tuple(map(broadcast, value.inputs)))

    whole = tuple(range(rank))
    attrs = dict(spec.attrs)
    if "axis" in attrs:
        attrs["axis"] = sum(run[0] < attrs["axis"] for run in runs)  # type: ignore[operator]
    return replace(
        spec,
        operands=tuple(merge(o, axes) for o, axes in zip(spec.operands, maps, strict=True)),
        result=merge(spec.result, whole),
        outputs=tuple(merge(output, whole) for output in spec.outputs),
        attrs=tuple(sorted(attrs.items())),
        prologue=body(spec.prologue),
        epilogue=body(spec.epilogue),
    )


# Where the operands' axes are in the result, and the result's axes that begin a run.

_Map = tuple[list[Axes], set[int]]


def _opaque(spec: Spec) -> _Map:
    rank = len(spec.result.shape)
    return [(None,) * len(o.shape) for o in spec.operands], set(range(rank))


def _map(spec: Spec) -> _Map:
    return [tuple(range(len(spec.result.shape)))], set()


def _last_axis(spec: Spec) -> _Map:
    last = len(spec.result.shape) - 1
    return [tuple(range(last + 1)), *[(last,)] * (len(spec.operands) - 1)], {last}


def _along_axis(spec: Spec) -> _Map:
    whole = tuple(range(len(spec.result.shape)))
    axis = int(spec.attr("axis"))
    return [whole] * len(spec.operands), {axis, axis + 1}


def _cumsum(spec: Spec) -> _Map:
    """What lies behind its axis and has no size goes with it: then it is the last one."""
    maps, begins = _along_axis(spec)
    axis = int(spec.attr("axis"))
    behind = spec.result.shape[axis + 1 :]
    return maps, {axis} if all(size == 1 for size in behind) else begins


def _matmul(spec: Spec) -> _Map:
    rank = len(spec.result.shape)
    b = spec.operands[1]
    batch = tuple(range(rank - 2)) if len(b.shape) == rank else ()
    right = (*batch, *((rank - 1, None) if spec.attr("transposed") else (None, rank - 1)))
    if spec.attr("turned"):
        return [(*range(rank - 2), None, rank - 2), right], {rank - 2, rank - 1}
    return [(*range(rank - 1), None), right], {rank - 1}


def _matmul_packed(spec: Spec) -> _Map:
    rank, shape = len(spec.result.shape), spec.operands[1].shape
    axes = 3 if shape[-1] == PANEL else 4  # a group along k is the last axis
    batch = tuple(range(len(shape) - axes))
    return [(*range(rank - 1), None), (*batch, *(None,) * axes)], {rank - 1}


def _quantized(spec: Spec) -> _Map:
    rank = len(spec.result.shape)
    others: list[Axes] = [(None,) * len(o.shape) for o in spec.operands[1:]]
    return [(*range(rank - 1), None), *others], {rank - 1}


def _rows(spec: Spec) -> _Map:
    rank = len(spec.result.shape)
    whole = tuple(range(rank))
    return [(*range(rank - 1), None), *[whole] * (len(spec.operands) - 1)], {rank - 1}


def _pack_b(spec: Spec) -> _Map:
    batch = len(spec.operands[0].shape) - 2
    return [(*range(batch), None, None)], set(range(batch, len(spec.result.shape)))


def _gather(spec: Spec) -> _Map:
    axis, extra = spec.attr("axis"), len(spec.operands[1].shape)
    after = range(axis + extra, len(spec.result.shape))
    return [(*range(axis), None, *after), tuple(range(axis, axis + extra))], set()


def _scatter(spec: Spec) -> _Map:
    axis, rank = int(spec.attr("axis")), len(spec.result.shape)
    outer, inner = range(axis), range(axis + 1, rank)
    return [tuple(range(rank)), (*outer, None), (*outer, None, *inner)], {axis, axis + 1}


_ROOTS: dict[str, Callable[[Spec], _Map]] = {
    "map": _map,
    "softmax": _last_axis,
    "layer_norm": _last_axis,
    "rms_norm": _last_axis,
    "cumsum": _cumsum,
    "top_k": _rows,
    "take_along": _rows,
    "random_uniform": _rows,
    "reduce": _along_axis,
    "concat": _along_axis,
    "matmul": _matmul,
    "integer_matmul": _matmul,
    "float8_matmul": _matmul,
    "matmul_packed": _matmul_packed,
    "integer_matmul_packed": _matmul_packed,
    "quantized_matmul": _quantized,
    "quantized_matmul_packed": _quantized,
    "rounded_matmul_packed": _quantized,
    "round_rows": _rows,
    "pack_b": _pack_b,
    "gather": _gather,
    "scatter": _scatter,
}
