"""Modules of kernels as LLVM IR, made readable for the older LLVM inside llvmlite.

The one difference that kernels meet is how floating point constants are written. LLVM 24 prints
`f0x3F4C422A`, shortest decimals that are not exact (`4.4715e-02`) and `+inf`; up to LLVM 22 the
language takes exact decimals, the bits of a double (`0x3FE9884540000000`), `0xH` for half and `0xR`
for bfloat.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from heddle.kernels.mlir import dialect, passmanager

_TOKEN = re.compile(
    r"\b(?P<kind>half|bfloat|float|double)\b"
    r"|\bf0x(?P<bits>[0-9A-Fa-f]+)\b"
    r"|(?<![\w.%@])(?P<number>-?\d+\.\d+e[+-]\d+|[+-]inf|[+-]q?nan)\b"
)
_MARKS = ("f0x", "e+", "e-", "inf", "nan")
"""What a line with such a constant has; its type is in the same line."""

_FORMATS = {"half": ("<e", "<H"), "float": ("<f", "<I"), "double": ("<d", "<Q")}
_DIGITS = {4: "half", 8: "float", 16: "double"}


def lowered(module: Any, passes: str) -> str:
    """The LLVM IR of a verified module, which MLIR's `passes` lower in place."""
    manager = passmanager.PassManager.parse(f"builtin.module({passes})")
    # Between the passes of others nothing is verified; LLVM looks at what comes out of them.
    manager.enable_verifier(False)
    manager.run(module.operation)
    return for_older_llvm(dialect("llvm").translate_module_to_llvmir(module.operation))


def for_older_llvm(text: str) -> str:
    """`text` with every floating point constant as bits that all LLVM versions read."""
    kind = "double"

    def rewrite(token: re.Match[str]) -> str:
        nonlocal kind
        if token["kind"]:
            kind = token["kind"]  # A constant is of the type that was named last before it.
            return token[0]
        if token["bits"] and kind == "bfloat":
            return f"0xR{token['bits']}"
        if token["bits"]:
            number, width = _FORMATS[_DIGITS[len(token["bits"])]]
            value = struct.unpack(number, struct.pack(width, int(token["bits"], 16)))[0]
        else:
            value = float(token["number"].replace("qnan", "nan"))
        if kind == "bfloat":
            bits = struct.unpack("<I", struct.pack("<f", value))[0]
            return f"0xR{bits + 0x7FFF + (bits >> 16 & 1) >> 16:04X}"
        number, width = _FORMATS[kind]
        rounded = struct.pack(number, value)
        if kind == "half":
            return f"0xH{struct.unpack(width, rounded)[0]:04X}"
        exact = struct.pack("<d", struct.unpack(number, rounded)[0])
        return f"0x{struct.unpack('<Q', exact)[0]:016X}"

    lines = text.splitlines(keepends=True)
    return "".join(
        _TOKEN.sub(rewrite, line) if any(mark in line for mark in _MARKS) else line
        for line in lines
    )
