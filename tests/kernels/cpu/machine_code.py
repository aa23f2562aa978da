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
    blocks, following = _blocks(text)
    before = {
        block: [other for other in following if block in following[other]] for block in following
    }
    bodies: dict[str, set[str]] = {}
    over = _dominators(following, before)
    for tail, heads in following.items():
        for head in heads:
            if head in over[tail]:
                bodies.setdefault(head, {head}).update(_reaching(tail, head, before))
    found = []
    for body in bodies.values():
        names = [name for block in blocks if block in body for name in blocks[block]]
        if holding is None or holding in names:
            found.append((body, names))
    return [names for body, names in found if not any(other < body for other, _ in found)]


def _blocks(text) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The instructions of each basic block, and the blocks that may follow it."""
    blocks: dict[str, list[str]] = {"": []}
    following: dict[str, set[str]] = {"": set()}
    tables = set(re.findall(r"\.long\t(\.LBB\w+)-", text))
    current, open_end = "", True
    for number, line in enumerate(text.splitlines()):
        label = re.match(r"(\.LBB\w+):", line)
        jump = re.match(r"\t(j\w+)\t(\S+)", line)
        code = line.startswith("\t") and not line.startswith("\t.")
        if label or (code and (blocks[current][-1:] or " ")[0][0] == "j"):
            name = label[1] if label else str(number)
            if open_end:
                following[current].add(name)
            current, open_end = name, True
            blocks[current], following[current] = [], set()
        if code:
            blocks[current].append(line.split("\t")[1])
        if jump:
            following[current] |= {jump[2]} if jump[2].startswith(".") else tables
        if re.match(r"\t(jmp|ret)", line):
            open_end = False
    return blocks, following


def _dominators(following, before) -> dict[str, set[str]]:
    """The blocks that each one is reached through, itself among them."""
    over = {block: set(following) for block in following}
    over[""] = {""}
    while True:
        now = {
            block: {block} | set.intersection(*(over[other] for other in before[block]))
            for block in following
            if before[block]
        }
        if all(over[block] == now[block] for block in now):
            return over
        over.update(now)


def _reaching(tail, head, before) -> set[str]:
    """The blocks from which `tail` is reached without `head`."""
    found, left = set(), [tail]
    while left:
        block = left.pop()
        if block not in found and block != head:
            found.add(block)
            left += before[block]
    return found


def products_beside_rows(text: str) -> list[int]:
    """Of each straight piece with rows of exponentials, the most products of tiles between two."""
    straight = re.split(r"\n(?:\.L.*:|\tj.*)", text)
    rows = [part.split("\tvreduceps") for part in straight if part.count("\tvreduceps") >= 48]
    return [max(between.count("\ttdpbf16ps") for between in part) for part in rows]
