"""Lanes that run PTX together, and how instructions find their operands among the registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from emulator.grid import WARP, Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.structs import Pending

from ptx.text import Address, Immediate, Kernel, Operand, Register, Symbol
from ptx.values import BOOL, SIGNED, Pair, read_as, write_as

GENERIC_SHARED = 1 << 60
"""Generic addresses of shared memory: so far from those of buffers that none is taken for one."""
PARAMETERS = 1 << 59
"""Addresses in parameter space: a page for each parameter."""
PAGE = 4096


@dataclass
class State:
    """Registers of lanes, by number, and which lanes are active.

    `at` are the lanes' blocks and `until` those where lanes that were parted are one again; `tried`
    are waits that have been in vain once; `settled` accumulators that nobody changed since wgmma.
    """

    grid: Grid
    values: list
    mask: Mask
    at: np.ndarray
    until: np.ndarray
    full: bool = True
    tried: set[int] = field(default_factory=set)
    settled: dict[int, tuple[Pending, np.ndarray]] = field(default_factory=dict)

    def write(self, slot: int, found: np.ndarray) -> None:
        old = self.values[slot]
        if not self.full and old is not None:
            found = np.where(self.mask, found, old)
        self.values[slot] = found

    def check_converged(self, name: str) -> None:
        """Whether the active warps are whole, and not inside of a branch that parted them."""
        warps = self.mask.reshape(-1, WARP)
        if (warps.any(axis=1) != warps.all(axis=1)).any() or (self.until[self.mask] > 0).any():
            raise EmulatorError(f"divergent: {name} wants all threads of a warp")


Read = Callable[[State], np.ndarray]


class Operands:
    """What makes, of the operands of instructions, functions that find their values.

    `constants` are values of registers that stand for immediates.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.parameters = list(kernel.parameters)
        self.slots: dict[Register, int] = {}
        self.constants: dict[int, np.ndarray] = {}

    def slot(self, operand: Operand, bits: int) -> int:
        """The number of a register, or of one for a constant of so many bits."""
        if isinstance(operand, Register):
            return self.slots.setdefault(operand, len(self.slots))
        if not isinstance(operand, Immediate):
            raise EmulatorError(f"wanted a register or a number, got {operand}")
        number = self.slots.setdefault(
            Register(f"{operand.value} of {bits}", bits), len(self.slots)
        )
        held = operand.value & (1 << bits) - 1
        if bits == 1:
            self.constants[number] = np.array([held != 0])
        else:
            self.constants[number] = np.array([held], f"u{bits // 8}").view(SIGNED[bits])
        return number

    def read(self, operand: Operand, kind: np.dtype | Pair | None = None) -> Read:
        """The value of a register or number as `kind`; registers hold signed integers."""
        bits = 32 if kind is None else bits_of(kind)
        if isinstance(operand, Register):
            bits = operand.bits
        slot = self.slot(operand, bits)
        convert = None if kind is None else read_as(kind, held_by(bits))
        if convert is None:
            return lambda state: state.values[slot]
        return lambda state: convert(state.values[slot])

    def number(self, operand: Operand) -> int:
        if not isinstance(operand, Immediate):
            raise EmulatorError(f"wanted a number, got {operand}")
        return operand.value

    def numbers(self, operand: Operand, kind: np.dtype | None = None) -> list[Read]:
        """The values of a vector, or of one that is alone."""
        parts = operand if isinstance(operand, tuple) else (operand,)
        return [self.read(part, kind) for part in parts]

    def address(self, operand: Operand) -> Read:
        """The address that `[...]` means, in its state space: int64."""
        if not isinstance(operand, Address):
            raise EmulatorError(f"wanted an address, got {operand}")
        base, offset = operand.base, operand.offset
        if isinstance(base, Symbol):
            find = self.symbol(base)
            return lambda state: find(state) + offset
        slot = self.slot(base, base.bits)
        if base.bits == 32:
            return lambda state: state.values[slot].view(np.uint32).astype(np.int64) + offset
        if offset == 0:
            return lambda state: state.values[slot]
        return lambda state: state.values[slot] + offset

    def symbol(self, symbol: Symbol) -> Read:
        """The address of a shared array or of a parameter, each in its own space."""
        name = symbol.name
        if name in self.kernel.arrays:
            return lambda state: np.array([state.grid.addresses[name]], np.int64)
        if name in self.parameters:
            place = np.array([PARAMETERS + PAGE * self.parameters.index(name)])
            return lambda state: place
        raise EmulatorError(f"nobody declared {name}")

    def write(self, operand: Operand) -> Callable[[State, np.ndarray], None]:
        """Gives a result of any type to a register, or to nobody."""
        if operand is None:
            return lambda state, found: None
        if not isinstance(operand, Register):
            raise EmulatorError(f"wanted a register for a result, got {operand}")
        slot, held = self.slot(operand, operand.bits), held_by(operand.bits)
        return lambda state, found: state.write(slot, write_as(found, held))

    def writes(self, operand: Operand) -> Callable[[State, Iterable[np.ndarray]], None]:
        """The same for a vector."""
        parts = operand if isinstance(operand, tuple) else (operand,)
        setters = [self.write(part) for part in parts]

        def run(state: State, found: Iterable[np.ndarray]) -> None:
            for setter, value in zip(setters, found, strict=True):
                setter(state, value)

        return run


def bits_of(kind: np.dtype | Pair) -> int:
    """Of a register that holds a value or two."""
    if isinstance(kind, Pair):
        return 16 * kind.dtype.itemsize
    return 1 if kind == BOOL else 8 * kind.itemsize


def held_by(bits: int) -> np.dtype:
    """How a register of so many bits is held."""
    return BOOL if bits == 1 else SIGNED[bits]
