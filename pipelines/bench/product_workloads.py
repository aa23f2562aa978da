"""The products that can be benched."""

from __future__ import annotations

from heddle.pipelines.bench.workload import Attrs, Operand, Workload


def _quantized(bits: int, activations: str = "float") -> Attrs:
    attrs = {"bits": bits, "activations": activations}
    return lambda sizes, dtype: {**attrs, "group": sizes["group"]}


_A, _B = Operand("m k"), Operand("k n")
_PRODUCT = {"m": (1, 64, 512), "k": (2048,), "n": (2048,)}
_GROUPS = {"g": (8,), "s": (1, 16, 256), "k": (2048,), "n": (2048,)}
_OFFSETS = Operand("g+1", "int64", values="offsets", below="s")
_HELD = (8, "int8"), (4, "uint8")

PRODUCTS = (
    Workload("matmul", "matmul", (_A, Operand("k n", weight=True)), _PRODUCT),
    Workload("matmul_inputs", "matmul", (_A, _B), _PRODUCT),
    *(
        Workload(
            name,
            "integer_matmul",
            (Operand("m k", dtype), Operand("k n", "int8", weight=True)),
            _PRODUCT,
        )
        for name, dtype in (("integer_matmul", "int8"), ("integer_matmul_unsigned", "uint8"))
    ),
    Workload(
        "matmul_batch",
        "matmul",
        (Operand("b m k"), Operand("b k n")),
        {"b": (12,), "m": (128,), "k": (64,), "n": (128,)},
    ),
    Workload(
        "grouped_matmul",
        "grouped_matmul",
        (
            Operand("g*s k"),
            Operand("g k n", weight=True),
            _OFFSETS,
        ),
        _GROUPS,
    ),
    *(
        Workload(
            f"quantized_grouped_matmul_{bits}" + "_minimums" * least,
            "quantized_grouped_matmul",
            (
                Operand("g*s k"),
                Operand(f"g n k*{bits}//8", dtype, weight=True),
                Operand("g n k//group", weight=True),
                _OFFSETS,
                *[Operand("g n k//group", weight=True)] * least,
            ),
            {**_GROUPS, "group": (128,)},
            _quantized(bits),
        )
        for bits, dtype, least in (*((*held, 0) for held in _HELD), (4, "uint8", 1))
    ),
    *(
        Workload(
            f"quantized_matmul_{bits}{suffix}",
            "quantized_matmul",
            (
                _A,
                Operand(f"n k*{bits}//8", dtype, weight=True),
                Operand("n k//group", weight=True),
            ),
            {"m": (1, 8), "k": (2048,), "n": (8192,), "group": (32,)},
            _quantized(bits, activations),
            products,
        )
        for bits, dtype in _HELD
        for suffix, activations, products in (("", "float", ""), ("_by_int8", "int8", "int8"))
    ),
    *(
        Workload(
            f"quantized_matmul_{bits}_minimums",
            "quantized_matmul",
            (
                _A,
                Operand(f"n k*{bits}//8", "uint8", weight=True),
                *[Operand("n k//group", weight=True)] * 2,
            ),
            {"m": (1, 8), "k": (2048,), "n": (8192,), "group": (32,)},
            _quantized(bits),
        )
        for bits in (8, 4)
    ),
    Workload(
        "quantized_matmul_float8",
        "quantized_matmul",
        (_A, Operand("n k", "float8_e4m3fn", weight=True), Operand("n k//group", weight=True)),
        {"m": (1, 8), "k": (2048,), "n": (8192,), "group": (32,)},
        _quantized(8),
    ),
    Workload(
        "float8_matmul",
        "float8_matmul",
        (Operand("m k", "float8_e4m3fn"), Operand("k n", "float8_e4m3fn", weight=True)),
        _PRODUCT,
    ),
)
"""By weights of 16, 8 and 4 bits, of rows that are sorted by group, and of integers."""
