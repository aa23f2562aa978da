"""What makers state for CPUs and GPUs that are known here, to be shown beside what was measured."""

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


@dataclass(frozen=True)
class GpuDatasheet:
    """A GPU: bandwidth of its memory, and TFLOP/s by dtype, of products those of tensor cores.

    Products are dense; where a maker states them with sparsity, half of that.
    """

    name: str
    memory_gb_s: float
    tflop_s: Mapping[str, float]
    source: str


_HOPPER = {"FMA float32": 67.0, "FMA float64": 34.0, "tf32": 494.5, "bfloat16": 989.0}
_HOPPER |= {"float16": 989.0, "float8": 1979.0, "int8": 1979.0}
_AMPERE = {"FMA float32": 19.5, "FMA float64": 9.7, "tf32": 156.0, "bfloat16": 312.0}
_AMPERE |= {"float16": 312.0, "int8": 624.0}

_GPUS = {
    "NVIDIA H200": GpuDatasheet("H200 SXM", 4800, _HOPPER, "NVIDIA H200 datasheet"),
    "NVIDIA H100 80GB HBM3": GpuDatasheet("H100 SXM", 3350, _HOPPER, "NVIDIA H100 datasheet"),
    "NVIDIA A100-SXM4-80GB": GpuDatasheet("A100 SXM 80GB", 2039, _AMPERE, "NVIDIA A100 datasheet"),
}


def of_gpu(name: str) -> GpuDatasheet | None:
    """The datasheet of the GPU that its driver calls `name`, or None."""
    return _GPUS.get(name)
