"""Reads PTX: a kernel's parameters, shared arrays, registers, labels and instructions.

PTX ISA 9.0, "Syntax", "State Spaces, Types, and Variables", "Instructions: Format and Semantics".
What LLVM writes is read, and nothing beyond it: anything else is refused by its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from emulator.memory import EmulatorError

BITS = {"pred": 1} | {f"{kind}{bits}": bits for kind in "busf" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Register:
    """A virtual register; names of an inner scope are made unique."""

    name: str
    bits: int


@dataclass(frozen=True)
class Immediate:
    """A number as its bits."""

    value: int


@dataclass(frozen=True)
class Symbol:
    """A label, a special register, a parameter or a shared array."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, or `[base, {coordinates}]` of a tensor."""

    base: Register | Symbol
    offset: int = 0
    coordinates: tuple = ()


Operand = Register | Immediate | Symbol | Address | tuple | None
"""A tuple is a vector; None is a result that nobody wants (`_`)."""


@dataclass(frozen=True)
class Instruction:
    """`guard` is a predicate and the value under which the instruction is executed."""

    name: str
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    text: str


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, in bytes."""

    size: int
    alignment: int


@dataclass
class Kernel:
    """One `.entry`; `labels` say before which instruction they stand.

    `arrays` are shared: bytes (0: dynamic) and alignment.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    threads: int = 0
    registers: int = 0
    cluster: int = 1


_SHARED = re.compile(r"\.shared \.align (\d+) \.(\w+) ([\w$]+)(\[(\d*)\])?;")
_PARAMETER = re.compile(
    r"\.param (?:\.align (\d+) )?\.(\w+) (?:\.ptr \.align \d+ )?(\w+)(?:\[(\d+)\])?"
)
_PIECE = re.compile(r"\s*(?:(?P<scope>[{}])|(?P<label>[$\w]+):(?!:)|(?P<statement>[^;]+);)")
_STATEMENT = re.compile(r"(?:@(!?)([%\w]+) )?([a-z][\w.:]*) ?(.*)$")
_REGISTERS = re.compile(r"\.reg \.(\w+) (%?\w+)(?:<(\d+)>)?")
_NO_EFFECT = re.compile(r'//[^\n]*|\.pragma "used_bytes_mask \w+";')
"""Comments; and which bytes of what is loaded next are used."""

_OPERANDS = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^,\s]+")


def parse(text: str) -> Kernel:
    """The one kernel of a module.

    Raises:
        EmulatorError: There is something that LLVM does not write for our kernels.
    """
    text = _NO_EFFECT.sub("", text)
    head, brace, body = text.partition("\n{\n")
    body, _, rest = body.rpartition("}")
    if not brace or rest.strip() or head.count(".entry") != 1:
        raise EmulatorError("wanted one kernel and nothing behind it")
    kernel = Kernel()
    _read_head(kernel, " ".join(head.split()))
    _read_body(kernel, body)
    return kernel


def _read_head(kernel: Kernel, head: str) -> None:
    for array in _SHARED.finditer(head):
        _add_array(kernel, array)
    listed = head[head.index("(") + 1 : head.index(")")]
    for piece in filter(None, listed.split(", ")):
        found = _PARAMETER.fullmatch(piece.strip())
        if found is None:
            raise EmulatorError(f"cannot read the parameter {piece!r}")
        item = BITS[found[2]] // 8
        size = item * int(found[4] or 1)
        kernel.parameters[found[3]] = Parameter(size, int(found[1] or item))
    limits = dict(re.findall(r"\.(\w+) (\d+)", head[head.index(")") :]))
    kernel.threads = int(limits.get("reqntid", 0))
    kernel.registers = int(limits.get("maxnreg", 0))
    kernel.cluster = int(limits.get("reqnctapercluster", 1))


def _add_array(kernel: Kernel, found: re.Match) -> None:
    item = BITS[found[2]] // 8
    count = 1 if found[4] is None else int(found[5] or 0)
    kernel.arrays[found[3]] = item * count, int(found[1])


class _Scopes:
    """What names mean, from the outermost block to the one that is open."""

    def __init__(self) -> None:
        self._names: list[dict[str, Register | str]] = [{}]
        self._opened = 0

    def open(self) -> None:
        self._names.append({})
        self._opened += 1

    def close(self) -> None:
        self._names.pop()

    def declare(self, name: str, bits: int) -> None:
        self._names[-1][name] = Register(self._unique(name), bits)

    def find(self, name: str) -> Register | None:
        return next((names[name] for names in reversed(self._names) if name in names), None)

    def label(self, name: str) -> str:
        """The unique name of a label of the block that is open."""
        return self._unique(name)

    def _unique(self, name: str) -> str:
        return f"{name}@{self._opened}" if len(self._names) > 1 else name


def _read_body(kernel: Kernel, body: str) -> None:
    scopes, at = _Scopes(), 0
    body = body.rstrip()
    while at < len(body):
        piece = _PIECE.match(body, at)
        if piece is None:
            raise EmulatorError(f"cannot read {body[at : at + 60]!r}")
        at = piece.end()
        if piece["scope"]:
            scopes.open() if piece["scope"] == "{" else scopes.close()
        elif piece["label"]:
            kernel.labels[scopes.label(piece["label"])] = len(kernel.instructions)
        else:
            _read_statement(kernel, scopes, " ".join(piece["statement"].split()))


def _read_statement(kernel: Kernel, scopes: _Scopes, line: str) -> None:
    if declared := _REGISTERS.fullmatch(line):
        kind, name, count = declared.groups()
        for one in [name] if count is None else [f"{name}{i}" for i in range(int(count))]:
            scopes.declare(one, BITS[kind])
    elif array := _SHARED.fullmatch(f"{line};"):
        _add_array(kernel, array)
    else:
        found = _STATEMENT.fullmatch(line)
        if found is None:
            raise EmulatorError(f"cannot read {line!r}")
        inverted, guard, name, rest = found.groups()
        operands = tuple(_operand(scopes, part) for part in _OPERANDS.findall(rest))
        if name.startswith("bra"):
            operands = (Symbol(_target(kernel, scopes, rest)),)
        held = _register(scopes, guard) if guard else None
        kernel.instructions.append(
            Instruction(name, operands, (held, not inverted) if held else None, line)
        )


def _target(kernel: Kernel, scopes: _Scopes, name: str) -> str:
    return name if name.startswith("$") else scopes.label(name)


def _register(scopes: _Scopes, name: str) -> Register:
    found = scopes.find(name)
    if found is None:
        raise EmulatorError(f"nobody declared the register {name}")
    return found


def _operand(scopes: _Scopes, text: str) -> Operand:
    if text == "_":
        return None
    if text[0] == "{":
        return tuple(_operand(scopes, part) for part in text[1:-1].replace(",", " ").split())
    if text[0] == "[":
        return _address(scopes, text[1:-1])
    if found := scopes.find(text):
        return found
    if text[0].isdigit() or text[0] == "-":
        return Immediate(_number(text))
    return Symbol(text)


def _address(scopes: _Scopes, text: str) -> Address:
    place, _, rest = text.partition(",")
    base, _, offset = place.strip().partition("+")
    coordinates = _operand(scopes, rest.strip()) if rest else ()
    return Address(scopes.find(base) or Symbol(base), int(offset or 0), coordinates)


def _number(text: str) -> int:
    """`0f` and `0d` are the bits of a float."""
    if text[:2] in ("0f", "0d"):
        return int(text[2:], 16)
    return int(text.rstrip("U"), 0)
