"""Several products of one left side as one kernel: the tasks of one follow those of another.

Those that are alike but for their buffers (an attention's queries, keys and values) share code.

Where a norm is their source, each thread normalises a single row on the stack for the tasks that it
takes at a time, which spares a launch. More rows are normalised once, into the workspace, by a
kernel in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from heddle.kernels import emit, host, sizes
from heddle.kernels.cpu import layer_norm, rms_norm
from heddle.kernels.cpu.products import panels
from heddle.kernels.registry import Machine, Portion
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

SHARES = 8
"""Parts of all tasks, of which a thread takes one at a time where it normalises the row for it."""

ROOM = 2**17
"""Bytes of stack for a normalised row, at most."""

NORMS: dict[str, Any] = {"layer_norm": layer_norm, "rms_norm": rms_norm}

STAGE = "norm"
"""The attribute of specs that share calls: a norm is `inside`, or a kernel `before` the `rest`."""


def frames(spec: Spec, machine: Machine, block: int = panels.BLOCK) -> Iterator[host.Frame]:
    """Emits the Python body of a `for frame in` this over the products.

    Each has its own tasks, of `block` rows.
    """
    whole = host.frame(spec, machine)
    if not spec.beside and spec.source is None:
        yield whole
        return
    left, stage = whole.inputs[0], spec.attr(STAGE)
    if spec.source is not None:
        left = _room(whole) if stage == "inside" else whole.pointers(len(spec.buffers), 1)[0]
        if stage != "rest":
            _normalise(whole, left)
        if stage == "before":
            return
    done: Size = 0
    read = len(spec.source.inputs) if spec.source else 1
    written = len(spec.inputs)
    for one, alike in groupby(spec.each):
        count = len(list(alike))
        tasks = whole.size(panels.launch(one, block).grid[0])
        reads, writes = len(one.inputs) - 1, len(one.outputs)
        for number in emit.loop(0, count):
            before = number * tasks + done
            first = sizes.greatest(whole.first - before, 0)
            last = sizes.least(whole.last - before, tasks)
            with emit.when(emit.compare("less", first, last)):
                yield replace(
                    whole,
                    spec=one,
                    inputs=[left, *whole.pointers(read + number * reads, reads)],
                    outputs=whole.pointers(written + number * writes, writes),
                    first=first,
                    last=last,
                )
        read, written, done = read + count * reads, written + count * writes, done + count * tasks


def _room(frame: host.Frame) -> Any:
    """Stack for one row."""
    a = frame.spec.operands[0]
    assert isinstance(a.shape[-1], int)
    return host.byte_buffer(a.shape[-1] * emit.ITEM_SIZE[a.dtype])


def _normalise(whole: host.Frame, place: Any) -> None:
    """Emits the norm: of the one row, or of those that are the tasks of a kernel of its own."""
    source = whole.spec.source
    assert source is not None
    count = len(source.inputs)
    frame = replace(whole, spec=source, inputs=whole.pointers(0, count), outputs=[place])
    if whole.spec.attr(STAGE) == "inside":
        frame = replace(frame, first=emit.index(0), last=emit.index(1))
    NORMS[source.op].emit_rows(frame)


def split(spec: Spec) -> tuple[Portion, ...]:
    """With a norm: the calls of one row; the norm of more, and what is behind it."""
    if spec.source is None:
        return (Portion(spec),)
    rows = product(spec.operands[0].shape[:-1])
    more: Expr = int(rows > 1) if isinstance(rows, int) else ("min", 1, ("floordiv", rows, 2))
    found = (("inside", fold("sub", 1, more)), ("before", more), ("rest", more))
    return tuple(
        Portion(spec.with_attr(STAGE, stage), condition)
        for stage, condition in found
        if condition != 0
    )


def launch(spec: Spec, block: int = panels.BLOCK, together: Expr = 1) -> Launch:
    """The tasks of all products, or of the norm in front of them.

    A task has at most `block` rows; a thread takes so many `together`.
    """
    a, stage = spec.operands[0], spec.attr(STAGE)
    workspace = product((*a.shape, emit.ITEM_SIZE[a.dtype])) if stage in ("before", "rest") else 0
    if spec.source is not None and stage == "before":
        norm: Launch = NORMS[spec.source.op].launch(spec.source)
        return replace(norm, workspace=workspace)
    tasks: Expr = 0
    work: Expr = 0
    for one in spec.each:
        each = panels.launch(one, block)
        tasks, work = fold("add", tasks, each.grid[0]), fold("add", work, each.work)
    share = fold("ceildiv", tasks, SHARES) if stage == "inside" else 1
    return Launch((tasks, fold("max", share, together), 1), work, workspace=workspace)


def supports_each(supports: Callable[[Spec], str | None]) -> Callable[[Spec], str | None]:
    """A kernel's `supports` for several products and their source, from that for one."""

    def supports_all(spec: Spec) -> str | None:
        a = spec.operands[0]
        if spec.gate is not None:
            return "it takes no gate"
        if spec.source is not None:
            k = a.shape[-1]
            if not isinstance(k, int) or k * emit.ITEM_SIZE[a.dtype] > ROOM:
                return f"a norm: wanted rows of at most {ROOM} bytes, got {k} of {a.dtype}"
        return next(filter(None, map(supports, spec.each)), None)

    return supports_all
