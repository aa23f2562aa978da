"""What makers state for CPUs that are known here, to be shown beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Datasheet:
    """A generation of CPUs: memory bandwidth of a socket, and what a core does in a cycle.

    `operations` counts additions and multiplications by instruction set and dtype.
    """

    name: str
    memory_gb_s: float
    operations: Mapping[str, int]
    source: str


_WIDE = {"AVX-512 float32": 64, "AVX-512 float64": 32, "AVX2 float32": 32, "AVX2 float64": 16}
_NARROW = {**_WIDE, "AVX-512 float32": 32, "AVX-512 float64": 16}
_TILES = {"AMX bfloat16": 2048, "AMX int8": 4096}

_INTEL = "Intel ARK; Intel Optimization Reference Manual"
_AMD = "AMD EPYC datasheets; AMD Software Optimization Guides"

# (vendor, family, first and last model of the generation)
_KNOWN = {
    ("GenuineIntel", 6, 106, 106): Datasheet("Ice Lake", 204.8, _WIDE, _INTEL),
    ("GenuineIntel", 6, 143, 143): Datasheet("Sapphire Rapids", 307.2, _WIDE | _TILES, _INTEL),
    ("GenuineIntel", 6, 207, 207): Datasheet("Emerald Rapids", 358.4, _WIDE | _TILES, _INTEL),
    ("AuthenticAMD", 25, 0, 15): Datasheet(
        "Milan", 204.8, {name: _WIDE[name] for name in ("AVX2 float32", "AVX2 float64")}, _AMD
    ),
    ("AuthenticAMD", 25, 16, 31): Datasheet("Genoa", 460.8, _NARROW, _AMD),
    ("AuthenticAMD", 26, 0, 31): Datasheet("Turin", 614.4, _WIDE, _AMD),
}


def of(fields: Mapping[str, str]) -> Datasheet | None:
    """The datasheet for the CPU that /proc/cpuinfo's `fields` describe, or None."""
    vendor = fields.get("vendor_id", "")
    family, model = (int(fields.get(name, "-1")) for name in ("cpu family", "model"))
    for (maker, generation, first, last), sheet in _KNOWN.items():
        if (vendor, family) == (maker, generation) and first <= model <= last:
            return sheet
    return None
