"""Several products of one left side as one kernel: the tasks of one follow those of another.

Those that are alike but for their buffers (an attention's queries, keys and values) share code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from heddle.kernels import emit, host, sizes
from heddle.kernels.cpu import _panels
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold


def frames(spec: Spec, machine: Machine) -> Iterator[host.Frame]:
    """Emits the Python body of a `for frame in` this over the products; each has its own tasks."""
    whole = host.frame(spec, machine)
    if not spec.beside:
        yield whole
        return
    done: Size = 0
    read, written = 1, len(spec.inputs)
    for product, alike in groupby(spec.each):
        count = len(list(alike))
        tasks = whole.size(_panels.launch(product).grid[0])
        reads, writes = len(product.inputs) - 1, len(product.outputs)
        for number in emit.loop(0, count):
            before = number * tasks + done
            first = sizes.greatest(whole.first - before, 0)
            last = sizes.least(whole.last - before, tasks)
            with emit.when(emit.compare("less", first, last)):
                yield replace(
                    whole,
                    spec=product,
                    inputs=[whole.inputs[0], *whole.pointers(read + number * reads, reads)],
                    outputs=whole.pointers(written + number * writes, writes),
                    first=first,
                    last=last,
                )
        read, written, done = read + count * reads, written + count * writes, done + count * tasks


def launch(spec: Spec) -> Launch:
    """The tasks of all products."""
    tasks: Expr = 0
    work: Expr = 0
    for each in map(_panels.launch, spec.each):
        tasks, work = fold("add", tasks, each.grid[0]), fold("add", work, each.work)
    return Launch((tasks, 1, 1), work)


def supports_each(supports: Callable[[Spec], str | None]) -> Callable[[Spec], str | None]:
    """A kernel's `supports` for several products, from that for one."""
    return lambda spec: next(filter(None, map(supports, spec.each)), None)
