"""The kernels that the tests run and assemble: each op and dtype, with and without fused bodies."""

from collections.abc import Callable
from dataclasses import replace

import row_groups

from heddle.kernels.emit import ITEM_SIZE
from heddle.kernels.registry import AHEAD, find
from heddle.kernels.spec import Body, Operand, Spec, Step

DTYPES = tuple(ITEM_SIZE)
FLOATS = ("float16", "bfloat16", "float32", "float64")
DIMS = {"d0": 5, "d1": 19}


def tensor(dtype: str, *shape) -> Operand:
    return Operand(dtype, shape)


def plain(op: str, operands: list[Operand], result: Operand, starts=(), **attrs) -> Spec:
    named = tuple(sorted(attrs.items()))
    return Spec(op, tuple(operands), result, (result,), named, starts=starts)


def fused(spec: Spec, prologue: bool = True, outputs: int = 2) -> Spec:
    """`spec` with a body before it, x * scale + bias, and one after it, with a second output."""
    x, result = spec.operands[0], spec.result
    dtype = x.dtype
    before = Body(
        (x, tensor(dtype, *x.shape[-1:]), tensor(dtype)),
        (Step("mul", (0, 1), dtype), Step("add", (3, 2), dtype)),
        (4,),
    )
    after = Body(
        (result, tensor(dtype, *result.shape[-1:])),
        (
            Step("add", (0, 1), result.dtype),
            Step("constant", (), result.dtype, (("value", 0.5),)),
            Step("mul", (2, 4), result.dtype),
            Step("maximum", (5, 3), result.dtype),
        ),
        (6, 3)[:outputs],
    )
    return Spec(
        spec.op,
        spec.operands,
        result,
        (result,) * outputs,
        spec.attrs,
        before if prologue else None,
        after,
        starts=spec.starts,
    )


def elementwise(dtype: str, *shape) -> Spec:
    x, row, scalar = tensor(dtype, *shape), tensor(dtype, shape[-1]), tensor(dtype)
    steps = [
        Step("maximum", (0, 1), dtype),
        Step("less", (3, 2), "bool"),
        Step("where", (4, 1, 3), dtype),
        Step("cast", (5,), "float32"),
    ]
    if dtype in FLOATS:
        steps += [Step("gelu", (5,), dtype, (("approximate", "none"),)), Step("exp", (7,), dtype)]
    body = Body((x, row, scalar), tuple(steps), (len(steps) + 2, 6))
    outputs = (tensor(dtype if dtype in FLOATS else "float32", *shape), tensor("float32", *shape))
    return Spec("map", (outputs[0],), outputs[0], outputs, (), body)


def unknown_step() -> Spec:
    x = tensor("float32", 8)
    return Spec("map", (x,), x, (x,), (), Body((x,), (Step("surprise", (0,), "float32"),), (1,)))


def moves(dtype: str) -> dict[str, Spec]:
    x = tensor(dtype, 2, "d0", 24)
    return {
        "map": elementwise(dtype, "d0", 24),
        "reduce rows": plain(
            "reduce",
            [x],
            tensor(dtype, 2, "d0", 1),
            axis=2,
            kind="max" if dtype == "bool" else "sum",
        ),
        "reduce columns": plain("reduce", [x], tensor(dtype, 2, 1, 24), axis=1, kind="min"),
        "transpose": plain("transpose", [x], tensor(dtype, 24, "d0", 2), permutation=(2, 1, 0)),
        "concat": plain(
            "concat",
            [x, tensor(dtype, 2, 3, 24)],
            tensor(dtype, 2, ("add", "d0", 3), 24),
            axis=1,
        ),
        "slice": plain(
            "slice",
            [x],
            tensor(dtype, 2, 2, 16),
            starts=(0, ("sub", "d0", 3), 8),
            steps=(1, 2, 1),
        ),
        "gather": plain(
            "gather",
            [tensor(dtype, 7, 24), tensor("int64", "d0", 3)],
            tensor(dtype, "d0", 3, 24),
            axis=0,
        ),
    }


def attention(dtype: str, mask: Operand | None = None, head: int = 32, **attrs) -> Spec:
    q, k = tensor(dtype, 2, "d0", 4, head), tensor(dtype, 2, "d1", 2, head)
    if attrs.get("layout") == "bhsd":
        q, k = tensor(dtype, 2, 4, "d0", head), tensor(dtype, 2, 2, "d1", head)
    operands = [q, k, k, *([mask] if mask else [])]
    options = {"causal": False, "layout": "bshd", "masked": mask is not None, "scale": 0.2}
    return plain("attention", operands, q, **{**options, **attrs})


def floating(dtype: str) -> dict[str, Spec]:
    x, row = tensor(dtype, "d0", 24), tensor(dtype, 24)
    wide, widths = tensor(dtype, "d0", "d1"), tensor(dtype, "d1")
    columns = tensor(dtype, 2, "d0", "d1")
    return {
        "cumsum": plain("cumsum", [x], x, axis=1),
        "cumsum blocks": plain("cumsum", [wide], wide, axis=1),
        "cumsum columns": plain("cumsum", [columns], columns, axis=1),
        "softmax": plain("softmax", [x], x),
        "softmax blocks": plain("softmax", [wide], wide),
        "layer_norm": plain("layer_norm", [x, row, row], x, epsilon=1e-5),
        "layer_norm blocks": plain("layer_norm", [wide, widths, widths], wide, epsilon=1e-5),
        "rms_norm": plain("rms_norm", [x, row], x, epsilon=1e-6),
        "rms_norm blocks": plain("rms_norm", [wide, widths], wide, epsilon=1e-6),
        "reduce mean": plain("reduce", [wide], tensor(dtype, "d0", 1), axis=1, kind="mean"),
        "matmul": plain(
            "matmul",
            [tensor(dtype, 2, "d0", 40), tensor(dtype, 40, 72)],
            tensor(dtype, 2, "d0", 72),
            transposed=False,
        ),
        "matmul transposed": plain(
            "matmul",
            [tensor(dtype, 2, 3, "d0", 40), tensor(dtype, 3, "d1", 40)],
            tensor(dtype, 2, 3, "d0", "d1"),
            transposed=True,
        ),
        "attention": attention(dtype, tensor("bool", 2, 1, 1, "d1")),
        "attention causal": attention(dtype, causal=True),
        "attention of odd heads": attention(dtype, tensor(dtype, "d0", "d1"), 6, layout="bhsd"),
    }


def quantized(dtype: str, bits: int) -> Spec:
    weight = tensor("int8", 72, 96) if bits == 8 else tensor("uint8", 72, 48)
    operands = [tensor(dtype, 2, "d0", 96), weight, tensor(dtype, 72, 3)]
    return plain("quantized_matmul", operands, tensor(dtype, 2, "d0", 72), bits=bits, group=32)


def integers(dtype: str) -> Spec:
    if dtype == "int8":
        operands = [tensor(dtype, 2, 3, "d0", 40), tensor("int8", 3, "d1", 40)]
        result = tensor("int32", 2, 3, "d0", "d1")
        return plain("integer_matmul", operands, result, transposed=True)
    operands = [tensor(dtype, 2, "d0", 40), tensor("int8", 40, 72)]
    return plain("integer_matmul", operands, tensor("int32", 2, "d0", 72), transposed=False)


def large(dtype: str) -> dict[str, Spec]:
    x, row = tensor(dtype, "d0", 4096), tensor(dtype, 4096)
    return {
        **{f"attention {head}": attention(dtype, head=head) for head in (64, 128, 256)},
        "layer_norm 4096": plain("layer_norm", [x, row, row], x, epsilon=1e-5),
    }


ALL: dict[str, Spec] = {
    **{f"{name}, {dtype}": spec for dtype in DTYPES for name, spec in moves(dtype).items()},
    **{f"{name}, {dtype}": spec for dtype in FLOATS for name, spec in floating(dtype).items()},
}
"""Each kernel for each dtype that it takes, by name."""

ALL |= {
    f"quantized_matmul {bits} bits, {dtype}": quantized(dtype, bits)
    for dtype in ("float16", "bfloat16", "float32")
    for bits in (8, 4)
}

ALL |= {f"integer_matmul, {dtype}": integers(dtype) for dtype in ("int8", "uint8")}

LARGE: dict[str, Spec] = {
    f"{name}, {dtype}": spec for dtype in FLOATS for name, spec in large(dtype).items()
}
"""Sizes at which registers or shared memory might not suffice."""


def beside(first: Spec, *others: Spec) -> Spec:
    """Products of the same left side as one op."""
    return replace(first, beside=others)


def of_decoder(product: Callable[[int], Spec]) -> Spec:
    """Queries, keys and values of an 8B-shaped model for few rows, from the product of a width."""
    return of_few_rows(beside(*map(product, (4096, 1024, 1024))))


def of_few_rows(spec: Spec) -> Spec:
    """The kernel of a product's calls of few rows, whose right side is a weight."""
    return find(spec.op, "cuda").split(spec)[0].spec.with_attr(AHEAD, True)


def by_scaled(n: int, bits: int) -> Spec:
    weight = tensor("int8", n, 4096) if bits == 8 else tensor("uint8", n, 2048)
    operands = [tensor("bfloat16", "d0", 4096), weight, tensor("bfloat16", n, 32)]
    result = tensor("bfloat16", "d0", n)
    return plain("quantized_matmul", operands, result, bits=bits, group=128)


def by_rows(n: int) -> Spec:
    operands = [tensor("bfloat16", "d0", 4096), tensor("bfloat16", n, 4096)]
    return plain("matmul", operands, tensor("bfloat16", "d0", n), transposed=True)


BESIDE = {
    "matmul beside, bfloat16": of_decoder(by_rows),
    "quantized_matmul beside, 8 bits": of_decoder(lambda n: by_scaled(n, 8)),
    "quantized_matmul beside, 4 bits": of_decoder(lambda n: by_scaled(n, 4)),
}
"""Products of one left side and few rows, of which two blocks share a multiprocessor."""

LARGE |= BESIDE


def gated(spec: Spec, bias: bool = False) -> Spec:
    """`silu(gate) * product` as a decoder has it: computed in float32, and rounded at the end."""
    result = spec.result
    wide, row = replace(result, dtype="float32"), Operand("float32", result.shape[-1:])
    output = replace(result, dtype="bfloat16") if result.dtype == "int32" else result
    inputs = (row,) if bias else ()
    own = len(inputs) + 1
    added = [Step("add", (1, own), "float32")] if bias else []
    last = own + len(added)
    steps = (Step("cast", (0,), "float32"), *added, Step("silu", (last,), "float32"))
    gate = replace(spec, outputs=(wide,), epilogue=Body(inputs, steps, (last + 1,)))
    added = [Step("add", (1, own + 1), "float32")] if bias else []
    last = own + 1 + len(added)
    steps = (
        *(Step("cast", (0,), "float32"), *added),
        *(Step("mul", (own, last), "float32"), Step("cast", (last + 1,), output.dtype)),
    )
    body = Body((*inputs, wide), steps, (last + 2,))
    return replace(spec, outputs=(output,), epilogue=body, gate=gate)


def of_inner(held: str, n: int = 14336) -> Spec:
    """The gate of an 8B-shaped model, and what it multiplies, by weights of a kind."""
    if held == "bfloat16":
        return gated(by_rows(n))
    bits = 4 if held == "uint8" else 8
    spec = by_scaled(n, bits)
    x, weight, scales = spec.operands
    return gated(replace(spec, operands=(x, replace(weight, dtype=held), scales)))


def of_experts(bits: int) -> tuple[Spec, Spec]:
    """The kernels of few rows and of more by 128 experts of a 30B-shaped model, with a gate."""
    spec = row_groups.scaling(
        "quantized_grouped_matmul",
        "bfloat16",
        "int8" if bits == 8 else "uint8",
        2048,
        768,
        "d0",
        128,
        group=128,
        epilogue=row_groups.gated("bfloat16", "d0", 768),
    )
    few, more = find(spec.op, "cuda").split(spec)
    return few.spec, more.spec


LARGE |= {
    f"quantized_grouped_matmul of {rows} rows, {bits} bits": spec
    for bits in (8, 4)
    for rows, spec in zip(("few", "more"), of_experts(bits), strict=True)
}

GATED = {
    f"{op} gated, {held}": of_inner(held)
    for op, held in (
        ("matmul", "bfloat16"),
        *(("quantized_matmul", held) for held in ("int8", "uint8", "float8_e4m3fn")),
    )
}
"""Products with a gate, of rows that are known when they run."""

LARGE |= {name: of_few_rows(spec) for name, spec in GATED.items()}

FUSED: dict[str, Spec] = {
    f"{name}, fused, {dtype}": fused(spec, prologue=name != "map")
    for dtype in ("float32", "bfloat16")
    for name, spec in {**moves(dtype), **floating(dtype)}.items()
    if name != "map"
}
"""The same with a body before and after them."""
