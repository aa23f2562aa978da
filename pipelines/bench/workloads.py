"""What can be benched, by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from itertools import product
from typing import Any

from heddle.graph import Dim, DType, Shape
from heddle.graph.ops import ROWS, OpRow
from heddle.pipelines.bench.product_workloads import PRODUCTS
from heddle.pipelines.bench.workload import Attrs, Operand, Sizes, Workload
from heddle.runtime.errors import InputError

MATRIX = {"m": (4096,), "n": (4096,)}
"""64 MiB in float32: more than the caches hold."""

POSITIVE = ("sqrt", "rsqrt", "log", "log1p", "pow", "div", "floor_divide", "mod")
"""Elementwise ops whose operands are drawn above zero."""


def _elementwise(row: OpRow) -> Workload:
    """An op of that kind on whole matrices, with the attributes of its first sample."""
    sample = row.samples[0]
    values = "positive" if row.name in POSITIVE else "normal"
    operands = [Operand("m n", text.rpartition(":")[0], values=values) for text in sample.operands]
    attrs = _another_dtype if row.name == "cast" else lambda sizes, dtype: sample.attrs
    return Workload(row.name, row.name, tuple(operands), MATRIX, attrs)


def _another_dtype(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    return {"dtype": DType.bfloat16 if dtype is DType.float32 else DType.float32}


def _axis(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    return {"axis": sizes["axis"]}


def _every_other(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    shape = Shape((sizes["m"], sizes["n"] // 2))
    return {"starts": Shape((0, 0)), "steps": (1, 2), "sizes": shape}


def _attrs(**values: Any) -> Attrs:
    return lambda sizes, dtype: values


def _capped(**values: Any) -> Attrs:
    return lambda sizes, dtype: {**values, "softcap": float(sizes["cap"])}


def _values_of_keys(sizes: Sizes, dtype: DType) -> dict[str, Any]:
    """Of the columns of keys as many as in DeepSeek's models: 512 of 576."""
    return {"value_size": sizes["d"] * 8 // 9}


_X, _ROW = Operand("m n"), Operand("n")
_HEADS = Operand("b h s d"), Operand("b h t d"), Operand("b h t d")
_HEAD_SIZES = {"b": (1,), "h": (12,), "s": (128,), "t": (128,), "d": (64,)}
_PAGES = Operand("b*t//block block g d")
_PAGES_FLOAT8 = Operand("b*t//block block g d", "float8_e4m3fn")
_PAGED = (
    Operand("b+1", "int64", values="offsets", below="s"),
    Operand("b", "int64", values="lengths", below="t"),
    Operand("b t//block", "int32", values="blocks", below="t"),
)
_PAGED_SIZES = {"b": (8,), "s": (1,), "t": (1024,), "h": (32,), "g": (8,), "d": (128,)}
_AXIS = {**MATRIX, "axis": (1,)}
_COLUMNS = {"b": (2,), "s": (200, 2048), "n": (4096,)}
_SAMPLING = Operand("m 6", "float32", values="sampling", below="m")
_LOGITS = {"m": (64,), "n": (131072,)}
_TABLE = Operand("rows n"), Operand("m", "int64", values="index", below="rows")
_UPDATES = *_TABLE, Operand("m n")
_ROWS = {"rows": (32768,), "m": (4096,), "n": (1024,)}

_OTHERS = (
    Workload("gelu_tanh", "gelu", (_X,), MATRIX, _attrs(approximate="tanh")),
    *(
        Workload(op, op, (_X,), _AXIS, _axis)
        for op in ("sum", "mean", "max", "min", "argmax", "argmin", "cumsum", "softmax")
    ),
    Workload("cumsum_columns", "cumsum", (Operand("b s n"),), _COLUMNS, _attrs(axis=1)),
    Workload("layer_norm", "layer_norm", (_X, _ROW, _ROW), MATRIX),
    Workload("rms_norm", "rms_norm", (_X, _ROW), MATRIX),
    *(
        Workload(
            op,
            op,
            (Operand("m", "int64", values="index", below="g"),),
            {"m": (8192,), "g": (8,)},
            lambda sizes, dtype: {"groups": sizes["g"]},
        )
        for op in ("group_offsets", "group_order")
    ),
    Workload(
        "conv",
        "conv",
        (Operand("b height width c"), Operand("n c window window", weight=True)),
        {"b": (1, 8), "height": (56,), "width": (56,), "c": (64,), "n": (64,), "window": (3,)},
        lambda sizes, dtype: {"padding": (sizes["window"] // 2,) * 4},
    ),
    Workload(
        "depthwise_conv",
        "conv",
        (Operand("b height width c"), Operand("c 1 window window", weight=True)),
        {"b": (8,), "height": (56,), "width": (56,), "c": (128,), "window": (3,)},
        lambda sizes, dtype: {"padding": (sizes["window"] // 2,) * 4, "groups": sizes["c"]},
    ),
    *(
        Workload(
            op,
            op,
            (Operand("b height width c"),),
            {"b": (8,), "height": (112,), "width": (112,), "c": (64,), "window": (3,)},
            lambda sizes, dtype: {"window": (sizes["window"],) * 2, "strides": (2, 2)},
        )
        for op in ("max_pool", "avg_pool")
    ),
    Workload(
        "rope",
        "rope",
        (Operand("b s h d"), Operand("s 1 d//2"), Operand("s 1 d//2")),
        {"b": (1,), "s": (512,), "h": (32,), "d": (128,)},
    ),
    Workload("attention", "attention", _HEADS, _HEAD_SIZES),
    Workload("attention_causal", "attention", _HEADS, _HEAD_SIZES, _attrs(causal=True)),
    Workload(
        "attention_capped",
        "attention",
        _HEADS,
        {**_HEAD_SIZES, "cap": (50,)},
        _capped(causal=True),
    ),
    Workload(
        "sample_tokens",
        "sample_tokens",
        (
            _X,
            _SAMPLING,
            Operand("m 2", "int64", values="top-k and seed", below="m"),
            Operand("m", "int64", values="lengths", below="n"),
        ),
        _LOGITS,
    ),
    Workload(
        "penalize",
        "penalize",
        (
            _X,
            _SAMPLING,
            Operand("m*s 2", "int64", values="seen", below="n"),
            Operand("m+1", "int64", values="offsets", below="s"),
        ),
        {**_LOGITS, "s": (1024,)},
    ),
    Workload(
        "ragged_attention",
        "ragged_attention",
        (
            Operand("b*s h d"),
            Operand("b*t g d"),
            Operand("b*t g d"),
            Operand("b+1", "int64", values="offsets", below="s"),
            Operand("b+1", "int64", values="offsets", below="t"),
        ),
        {**_PAGED_SIZES, "s": (128,), "t": (128,)},
    ),
    Workload(
        "paged_attention",
        "paged_attention",
        (Operand("b*s h d"), _PAGES, _PAGES, *_PAGED),
        {**_PAGED_SIZES, "block": (16,)},
    ),
    Workload(
        "paged_attention_capped",
        "paged_attention",
        (Operand("b*s h d"), _PAGES, _PAGES, *_PAGED),
        {**_PAGED_SIZES, "block": (16,), "cap": (50,)},
        _capped(),
    ),
    Workload(
        "paged_attention_sinks",
        "paged_attention",
        (
            *(Operand("b*s h d"), _PAGES, _PAGES, *_PAGED),
            Operand("h", "float32", values="sinks", below="t"),
        ),
        {**_PAGED_SIZES, "block": (16,)},
    ),
    Workload(
        "paged_attention_latents",
        "paged_attention",
        (Operand("b*s h d"), Operand("b*t//block block 1 d"), *_PAGED),
        {"b": (8,), "s": (1,), "t": (1024,), "h": (16,), "d": (576,), "block": (64,)},
        _values_of_keys,
        takes=(0, 1, 1, 2, 3, 4),
    ),
    Workload(
        "paged_attention_float8",
        "paged_attention",
        (Operand("b*s h d"), _PAGES_FLOAT8, _PAGES_FLOAT8, *_PAGED),
        {**_PAGED_SIZES, "block": (16,)},
    ),
    Workload(
        "paged_write",
        "paged_write",
        (_PAGES, Operand("b*s g d"), *_PAGED),
        {name: size for name, size in _PAGED_SIZES.items() if name != "h"} | {"block": (16,)},
    ),
    Workload(
        "top_k",
        "top_k_indices",
        (_X,),
        {**_LOGITS, "k": (50,)},
        lambda sizes, dtype: {"k": sizes["k"]},
    ),
    Workload("transpose", "transpose", (_X,), MATRIX, _attrs(permutation=(1, 0))),
    Workload(
        "broadcast_to",
        "broadcast_to",
        (_ROW,),
        MATRIX,
        lambda sizes, dtype: {"shape": Shape((sizes["m"], sizes["n"]))},
    ),
    Workload("concat", "concat", (_X, _X), MATRIX, _attrs(axis=1)),
    Workload("slice", "slice", (_X,), MATRIX, _every_other),
    Workload(
        "random_uniform",
        "random_uniform",
        (Operand("m 2", "int64"),),
        MATRIX,
        lambda sizes, dtype: {"size": Dim(sizes["n"])},
    ),
    Workload(
        "take_along",
        "take_along",
        (_X, Operand("m t", "int64", values="index", below="n")),
        {**MATRIX, "t": (1024,)},
    ),
    Workload("gather", "gather", _TABLE, _ROWS, _attrs(axis=0)),
    Workload("scatter", "scatter", _UPDATES, _ROWS, _attrs(axis=0, reduce="none")),
    Workload("scatter_add", "scatter", _UPDATES, _ROWS, _attrs(axis=0, reduce="add")),
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        *(_elementwise(row) for row in ROWS.values() if row.elementwise and row.public),
        *PRODUCTS,
        *_OTHERS,
    )
}
"""Every workload by name: each elementwise op by its row, the others as listed."""


def find(name: str) -> Workload:
    """The workload called `name`.

    Raises:
        InputError: There is none; the message lists those that exist.
    """
    if name not in WORKLOADS:
        near = [f"--set {name}"] if "=" in name else difflib.get_close_matches(name, WORKLOADS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"kernel: wanted one of {', '.join(WORKLOADS)}; got {name!r}{hint}")
    return WORKLOADS[name]


def grid(workload: Workload, given: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Every combination of sizes, `given` in the place of the defaults.

    Raises:
        InputError: A parameter that the workload does not have; the message lists its own.
    """
    for name in given:
        if name not in workload.sizes:
            own = ", ".join(workload.sizes)
            raise InputError(f"{workload.name}: --set: wanted one of {own}; got {name!r}")
    values = {name: given.get(name, default) for name, default in workload.sizes.items()}
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def dtype_of(workload: Workload, name: str | None) -> DType:
    """The dtype called `name`; float32 for None, or the first that the op takes.

    Raises:
        InputError: The op does not take it; the message lists those that it takes.
    """
    taken = workload.dtypes()
    if name is None:
        return DType.float32 if "float32" in taken else DType[taken[0]]
    if name not in taken:
        wanted = ", ".join(taken)
        raise InputError(f"{workload.name}: --dtype: wanted one of {wanted}; got {name!r}")
    return DType[name]
