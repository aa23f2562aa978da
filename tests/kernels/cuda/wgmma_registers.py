"""What may happen to the registers of wgmma in PTX, which the emulator of MLIR cannot see.

PTX ISA 9.0, "wgmma.fence": a fence stands between an access to a register and a wgmma that has it
as an accumulator or in A, but for accumulators that only wgmma of one shape have had since.
"wgmma.wait_group": until the wait for its group, nobody accesses accumulators or changes A.
LLVM copies registers where it likes, so that what kernels emit does not settle it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"([$\w]+):$")
_BRANCH = re.compile(r"(?:@!?%p\d+ )?bra(?:\.uni)? +([$\w]+);")
_REGISTER = re.compile(r"%[a-z]+\d+")
_PRODUCT = re.compile(r"wgmma\.mma_async\S*\.(m\d+n\d+k\d+)\S* \{([^}]*)\}, *(\{[^}]*\})?")
_NO_TARGET = ("st.", "red.", "bra", "bar", "prefetch", "cp.", "mbarrier.init", "stmatrix", "setmax")


class WgmmaError(AssertionError):
    """PTX touches a register that it may not."""


@dataclass(frozen=True)
class _State:
    """Registers: touched since the last fence, and of wgmma in flight by group, the open one last.

    A register of a group is there with whether it is an accumulator.
    """

    touched: frozenset[str] = frozenset()
    groups: tuple[frozenset[tuple[str, bool]], ...] = (frozenset(),)

    def join(self, other: _State) -> _State:
        count = max(len(self.groups), len(other.groups))
        sides = [(frozenset(),) * (count - len(s.groups)) + s.groups for s in (self, other)]
        groups = tuple(a | b for a, b in zip(*sides, strict=True))
        return _State(self.touched | other.touched, groups)


def check(text: str) -> int:
    """How many wgmma the PTX of a kernel has; the registers of each are as the manual wants them.

    Raises:
        WgmmaError: They are not.
    """
    lines = _instructions(text)
    labels = {match[1]: i for i, line in enumerate(lines) if (match := _LABEL.match(line))}
    states: dict[int, _State] = {}
    waiting, products = [(0, _State())], set()
    while waiting:
        at, state = waiting.pop()
        while at < len(lines):
            if _LABEL.match(lines[at]):
                merged = states[at].join(state) if at in states else state
                if states.get(at) == merged:
                    break
                states[at] = state = merged
            elif branch := _BRANCH.match(lines[at]):
                waiting.append((labels[branch[1]], state))
                if not lines[at].startswith("@"):
                    break
            elif lines[at] == "ret;":
                break
            else:
                products |= {at} if "wgmma.mma_async" in lines[at] else set()
                state = _after(lines[at], state)
            at += 1
    return len(products)


def _instructions(text: str) -> list[str]:
    """Labels and instructions, one a line; a wait at an mbarrier, which loops, is one of them."""
    body = re.sub(r"//[^\n]*", "", text[text.index("{\n") :])
    body = re.sub(r"\{\s*\.reg \.pred\s+P1;.*?\n\s*\}", "mbarrier.wait;", body, flags=re.S)
    body = re.sub(r"\{\s*\.reg \.pred p;.*?(wgmma[^;]*;)\s*\}", r"\1", body, flags=re.S)
    found = []
    for piece in re.findall(r"[$\w]+:(?=\s)|[^;:]+;", body):
        line = " ".join(piece.split()).lstrip("{} ")
        if line and not line.startswith("."):
            found.append(line)
    return found


def _after(line: str, state: _State) -> _State:
    """The state behind an instruction."""
    *older, last = state.groups
    if line.startswith("wgmma.fence"):
        return _State(frozenset(), state.groups)
    if line.startswith("wgmma.commit_group"):
        return _State(state.touched, (*state.groups, frozenset()))
    if line.startswith("wgmma.wait_group"):
        left = int(line.split()[1].rstrip(";"))
        return _State(state.touched, (*older[len(older) - left :], last))
    if product := _PRODUCT.search(line):
        sums, a = (set(_REGISTER.findall(part or "")) for part in product.groups()[1:])
        if early := (sums | a) & state.touched:
            raise WgmmaError(
                f"no wgmma.fence since {_some(early)} were touched, before {line[:70]}"
            )
        own = {(name, True) for name in sums} | {(name, False) for name in a}
        return _State(state.touched, (*older, last | own))
    names = _REGISTER.findall(line)
    targets = set() if line.startswith(_NO_TARGET) else set(_targets(line))
    busy = {(name, is_sum) for group in state.groups for name, is_sum in group}
    wrong = {name for name, is_sum in busy if name in targets or (is_sum and name in names)}
    if wrong:
        raise WgmmaError(f"{_some(wrong)} of wgmma in flight are touched by {line[:70]}")
    return _State(state.touched | frozenset(names), state.groups)


def _targets(line: str) -> list[str]:
    """The registers that an instruction writes: its first operand."""
    match = re.match(r"(?:@!?%p\d+ )?[\w.:]+ +(\{[^}]*\}|[^,;]*)", line)
    return _REGISTER.findall(match[1]) if match else []


def _some(names: set[str]) -> str:
    first, *others = sorted(names)
    return f"{first} and {len(others)} others" if others else first
