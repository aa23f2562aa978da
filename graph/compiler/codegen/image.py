"""An x86-64 object file to one flat image, with nothing left to link.

Sources: the ELF object file format, and the System V ABI for x86-64 (section 4.4, relocations).
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_RELOC_TYPE_x64 as RELOCATIONS

from heddle.runtime.errors import CompileError

_PC_RELATIVE = (RELOCATIONS["R_X86_64_PC32"], RELOCATIONS["R_X86_64_PLT32"])
_NAMES = {number: name for name, number in RELOCATIONS.items()}


@dataclass(frozen=True)
class Image:
    """Code and constants that run wherever they lie; `entry` is an offset into `data`."""

    data: bytes
    entry: int
    alignment: int


def flatten(file: bytes, symbol: str) -> Image:
    """Lays out code and read-only data of an object file and resolves its relocations.

    Raises:
        CompileError: It needs a symbol from elsewhere, writable data, or a relocation that is not
            relative to its own place.
    """
    elf: Any = ELFFile(io.BytesIO(file))
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    places: dict[int, int] = {}
    data = bytearray()
    alignment = 1
    for index, section in enumerate(elf.iter_sections()):
        if not _kept(section):
            continue
        step = max(section["sh_addralign"], 1)
        alignment = max(alignment, step)
        data += bytes(-len(data) % step)
        places[index] = len(data)
        data += section.data()
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_RELA" and section["sh_info"] in places:
            for relocation in section.iter_relocations():
                _resolve(data, places, places[section["sh_info"]], relocation, symbols)
    entry = next(s for s in symbols if s.name == symbol)
    return Image(bytes(data), places[entry["st_shndx"]] + entry["st_value"], alignment)


def _kept(section: Any) -> bool:
    """Whether the section is part of what runs; unwind tables are not."""
    flags = section["sh_flags"]
    if not flags & SH_FLAGS.SHF_ALLOC or section.name == ".eh_frame":
        return False
    if flags & SH_FLAGS.SHF_WRITE and section["sh_size"]:
        raise CompileError(f"image: wanted code and constants only, found section {section.name}")
    return bool(section["sh_size"])


def _resolve(
    data: bytearray, places: dict[int, int], base: int, relocation: Any, symbols: list[Any]
) -> None:
    symbol = symbols[relocation["r_info_sym"]]
    if symbol["st_shndx"] == "SHN_UNDEF":
        raise CompileError(f"image: wanted no outside symbol, found {symbol.name!r}")
    kind = relocation["r_info_type"]
    if kind not in _PC_RELATIVE:
        raise CompileError(f"image: wanted relative addresses only, found {_NAMES[kind]}")
    where = base + relocation["r_offset"]
    target = places[symbol["st_shndx"]] + symbol["st_value"] + relocation["r_addend"]
    struct.pack_into("<i", data, where, target - where)
