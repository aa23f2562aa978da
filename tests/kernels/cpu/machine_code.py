"""The assembly that a kernel ships as, for tests that look at it."""

import re

import native

from heddle.graph.compiler.codegen import cpu


def assembly(spec, machine) -> str:
    """The kernel of `spec` for `machine` as LLVM writes it."""
    module, target = cpu.optimized(native.llvm_ir(spec, machine), machine)
    return target.emit_assembly(module)


def loops(text, holding=None) -> list[list[str]]:
    """The instructions of each innermost loop; of those `holding` one, if it is given."""
    lines = text.splitlines()
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.startswith(".L")}
    spans = []
    for number, line in enumerate(lines):
        jump = re.match(r"\tj\w+\t(\S+)", line)
        if jump and labels.get(jump[1], number) < number:
            spans.append((labels[jump[1]], number))
    found = {
        (first, last): [part.split("\t")[1] for part in lines[first:last] if "\t" in part]
        for first, last in spans
    }
    return [
        body
        for (first, last), body in found.items()
        if (holding is None or holding in body)
        and not any(
            first <= start and stop <= last and (start, stop) != (first, last)
            for (start, stop), inside in found.items()
            if holding is None or holding in inside
        )
    ]
