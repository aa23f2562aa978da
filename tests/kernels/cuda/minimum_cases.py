"""Products by weights of 8 and 4 bits whose groups have minimums: those of an 8B-shaped model."""

from dataclasses import replace

import cuda_cases as cases

from heddle.kernels.registry import find
from heddle.kernels.spec import Spec


def with_minimums(spec: Spec) -> Spec:
    """The same product by weights without a sign, whose groups have minimums.

    So is its gate, and what is beside it.
    """
    x, weight, scales, *offsets = spec.operands
    return replace(
        spec,
        operands=(x, replace(weight, dtype="uint8"), scales, *offsets, scales),
        gate=spec.gate and with_minimums(spec.gate),
        beside=tuple(map(with_minimums, spec.beside)),
    )


def by_scaled(bits: int, group: int) -> Spec:
    """As `cuda_cases` has it, with such groups."""
    spec = cases.by_scaled(4096, bits)
    x, weight, scales = spec.operands
    scales = replace(scales, shape=(4096, 4096 // group))
    attrs = tuple(sorted({**dict(spec.attrs), "group": group}.items()))
    return replace(spec, operands=(x, weight, scales), attrs=attrs)


def many(bits: int, group: int) -> dict[str, Spec]:
    """The kernels for 17 to 64 rows, and for more."""
    _, some, more = find("quantized_matmul", "cuda").split(with_minimums(by_scaled(bits, group)))
    return {"64": some.spec, "more": more.spec}


FEW: dict[str, Spec] = {
    **{
        f"{name} with minimums": with_minimums(spec)
        for name, spec in cases.BESIDE.items()
        if name.startswith("quantized")
    },
    **{
        f"quantized_matmul gated, {bits} bits with minimums": with_minimums(
            cases.of_few_rows(cases.of_inner(held))
        )
        for bits, held in ((8, "int8"), (4, "uint8"))
    },
}
"""Of few rows, of which two blocks share a multiprocessor."""

ALL = FEW | {
    **{
        f"quantized_matmul of {rows} rows, {bits} bits, groups of {group} with minimums": spec
        for bits in (8, 4)
        for group in (32, 64, 128)
        for rows, spec in many(bits, group).items()
    },
    **{
        f"quantized_grouped_matmul of {rows} rows, {bits} bits with minimums": with_minimums(spec)
        for bits in (8, 4)
        for rows, spec in zip(("few", "more"), cases.of_experts(bits), strict=True)
    },
}
