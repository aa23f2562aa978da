"""The assembly that a kernel ships as, for tests that look at it."""

import re

import amx_emulation

from heddle.graph.compiler.codegen import cpu


def assembly(spec, machine) -> str:
    """The kernel of `spec` for `machine` as LLVM writes it."""
    module, target = cpu.optimized(amx_emulation.llvm_ir(spec, machine), machine)
    return target.emit_assembly(module)


def loops(text) -> list[list[str]]:
    """The instructions of each innermost loop."""
    lines = text.splitlines()
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.startswith(".L")}
    found = []
    for number, line in enumerate(lines):
        jump = re.match(r"\tj\w+\t(\S+)", line)
        if jump and labels.get(jump[1], number) < number:
            body = [part.split("\t")[1] for part in lines[labels[jump[1]] : number] if "\t" in part]
            if not any(name.startswith("j") for name in body):
                found.append(body)
    return found
