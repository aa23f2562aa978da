"""The peers that a kernel is timed beside, each on the very same buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.graph import DType
from heddle.graph.ops import OpRow
from heddle.pipelines.bench import data, products
from heddle.pipelines.bench.missing import MissingError
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.bench.case import Case, Prepared
    from heddle.pipelines.bench.measure import Call
    from heddle.runtime import Buffer

Run = Callable[..., object]
"""Called with the operands, then `out`, an array of the result's shape, and the op's attributes."""


REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, MemoryError)
"""What peers raise where they do not take a dtype or a size, or it takes more than there is."""


def check(name: str) -> None:
    """Raises InputError, with the baselines that exist, unless `name` is one of them."""
    if name not in BASELINES:
        raise InputError(f"--baseline: wanted one of {', '.join(BASELINES)}; got {name!r}")


def calls(name: str, case: Case, prepared: Prepared) -> list[Call]:
    """The baseline's work on each set, of which the first was done once.

    Raises:
        MissingError: It is not installed, or it has nothing for this case, or refuses it.
    """
    check(name)
    target = "cuda" if name in ON_CUDA else "cpu"
    if case.target != target:
        raise MissingError(f"{name}: runs on {target} alone here; use --target {target}")
    try:
        made = BASELINES[name](case, prepared)
        made[0]()
    except REFUSALS as error:
        reason = str(error).partition("\n")[0]
        raise MissingError(f"{name}: {case.name} of {case.dtype}: {reason}") from None
    return made


def result_of(name: str, returned: object, out: Buffer, dtype: DType) -> NDArray[Any]:
    """What a candidate computed: what it returned, or what it wrote to `out`."""
    if isinstance(returned, np.ndarray):
        return returned
    if name in ("torch", "onednn"):
        return np.asarray(returned.double())  # type: ignore[attr-defined]
    return data.array_of(out, dtype)


# NumPy


def _numpy(case: Case, prepared: Prepared) -> list[Call]:
    workload = prepared.workload
    result = workload.result(case.sizes, prepared.dtype)
    types = [*workload.types(case.sizes, prepared.dtype), result]
    if DType.bfloat16 in [type.dtype for type in types]:
        raise MissingError("numpy: has no bfloat16; use --dtype float32, or --baseline torch")
    attrs = workload.canonical(case.sizes, prepared.dtype)
    if workload.op == "erf" or attrs.get("approximate") == "none":
        raise MissingError("numpy: has no erf; use --baseline torch")
    run = numpy_function(workload.row) or _as_declared(workload.row.compute)
    views = [[buffer.to_numpy() for buffer in buffers] for buffers in prepared.sets]
    outputs = [buffer.to_numpy() for buffer in prepared.outputs]
    return [
        partial(run, *workload.arguments(arrays), out=out, **attrs)
        for arrays, out in zip(views, outputs, strict=True)
    ]


def _as_declared(compute: Callable[..., Any]) -> Run:
    """The op's declared NumPy function, which makes a new result."""

    def run(*arrays: Any, out: Any, **attrs: Any) -> object:
        result: object = compute(*arrays, **attrs)
        return result

    return run


def _copy(source: Callable[..., Any]) -> Run:
    def run(*arrays: Any, out: Any, **attrs: Any) -> None:
        np.copyto(out, source(*arrays, **attrs), casting="unsafe")

    return run


def _sliced(x: Any, starts: Any, steps: Any, sizes: Any) -> Any:
    """The view of `x` for steps that are positive."""
    ends = [int(a) + b * int(n) for a, b, n in zip(starts, steps, sizes, strict=True)]
    return x[tuple(slice(a, z, b) for a, z, b in zip(starts, ends, steps, strict=True))]


RENAMED = {
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "pow": np.power,
    "round": np.rint,
}
"""NumPy's universal functions for ops of another name."""

NUMPY: dict[str, Run] = {
    **{name: partial(getattr(np, name), keepdims=True) for name in ("sum", "mean", "max", "min")},
    "relu": lambda x, out: np.maximum(x, x.dtype.type(0), out=out),
    "matmul": lambda a, b, out, precision: np.matmul(a, b, out=out),
    "cast": _copy(lambda x, dtype: x),
    "transpose": _copy(lambda x, permutation: np.transpose(x, permutation)),
    "broadcast_to": _copy(lambda x, shape: x),
    "slice": _copy(_sliced),
    "concat": lambda *xs, out, axis: np.concatenate(xs, axis, out=out),
    "gather": lambda x, i, out, axis: np.take(x, i, axis, out=out, mode="clip"),
}
"""Functions that write to `out` and take the op's attributes; what is not here is a universal one.

On CPUs a product is exact, whatever `precision` would allow."""


def numpy_function(row: OpRow) -> Run | None:
    """NumPy's own function for an op, or None where it has none."""
    if row.name in NUMPY:
        return NUMPY[row.name]
    own: Run | None = RENAMED.get(row.name) or getattr(np, row.name, None)
    return own if isinstance(own, np.ufunc) else None


def is_reference(name: str, row: OpRow) -> bool:
    """Whether the baseline is the op's declared reference, written to be clear, not fast."""
    return name == "numpy" and numpy_function(row) is None


def makes_result(name: str, row: OpRow) -> bool:
    """Whether the baseline makes a new result in each call, where others are given a place."""
    return (
        name == "onednn" or is_reference(name, row) or (name == "torch" and row.name in NEW_RESULTS)
    )


# torch


def _torch(case: Case, prepared: Prepared) -> list[Call]:
    torch = products.torch_for("torch")
    torch.set_num_threads(case.threads)
    workload = prepared.workload
    attrs = workload.canonical(case.sizes, prepared.dtype)
    functions = torch_functions(torch)
    if workload.op not in functions:
        raise MissingError(f"torch: no function for {workload.op} here; use --baseline numpy")
    if attrs.get("causal") and case.sizes["s"] != case.sizes["t"]:
        raise MissingError("torch: lets query i see the first i keys; give s and t the same size")
    if attrs.get("softcap"):
        raise MissingError("torch: its attention caps no scores; use --baseline numpy")
    run = functions[workload.op]

    try:
        tensors = [[torch.from_dlpack(b) for b in buffers] for buffers in prepared.sets]
        outputs = [torch.from_dlpack(buffer) for buffer in prepared.outputs]
    except (RuntimeError, TypeError, BufferError) as error:
        raise MissingError(f"torch: {case.dtype}: {error}; use --baseline numpy") from None
    # No tensor wants a gradient. To enter inference mode takes as long as a small operation.
    return [partial(run, *ins, out=out, **attrs) for ins, out in zip(tensors, outputs, strict=True)]


TORCH = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "neg", "abs", "sqrt", "rsqrt", "exp"),
    *("expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "pow", "floor_divide"),
    *("floor", "ceil", "round", "logical_and", "logical_or", "logical_xor", "logical_not", "where"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
)
"""Ops that torch has by the same name, with `out`."""

TORCH_RENAMED = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "mod": "remainder",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}

NEW_RESULTS = ("conv", "max_pool", "avg_pool", "layer_norm", "rms_norm", "attention")
"""Ops whose functions take no `out` in torch."""


def _first(x: Any) -> Any:
    """`x` with its last axis, the channels, behind the batch, where torch wants it."""
    return x.movedim(-1, 1)


def _last(x: Any) -> Any:
    """What `_first` did, undone."""
    return x.movedim(1, -1)


def torch_functions(torch: Any) -> dict[str, Run]:
    """Torch's functions by op; those of `NEW_RESULTS` write to no `out`."""
    functional, fused = torch.nn.functional, torch._C._nn

    def copied(source: Callable[..., Any]) -> Run:
        return lambda *xs, out, **attrs: out.copy_(source(*xs, **attrs))

    def normalized(function: Any) -> Run:
        return lambda x, *p, out, epsilon: function(x, x.shape[-1:], *p, eps=epsilon)

    def reduced(function: Any) -> Run:
        return lambda x, out, axis: function(x, axis, keepdim=True, out=out)

    def pooled(function: Any) -> Run:
        # No workload pads.
        return lambda x, out, window, strides, **others: _last(function(_first(x), window, strides))

    return {
        **{name: getattr(torch, name) for name in TORCH},
        **{name: getattr(torch, function) for name, function in TORCH_RENAMED.items()},
        "isnan": lambda x, out: torch.ne(x, x, out=out),
        "relu": lambda x, out: torch.clamp_min(x, 0, out=out),
        "silu": fused.silu,
        "softplus": fused.softplus,
        "gelu": fused.gelu,
        "sum": reduced(torch.sum),
        "mean": reduced(torch.mean),
        "max": reduced(torch.amax),
        "min": reduced(torch.amin),
        "argmax": reduced(torch.argmax),
        "argmin": reduced(torch.argmin),
        "cumsum": lambda x, out, axis: torch.cumsum(x, axis, out=out),
        "top_k_indices": lambda x, out, k: (
            torch.topk(x, k, out=(x.new_empty(out.shape), out)).indices
        ),
        "softmax": lambda x, out, axis: torch.softmax(x, axis, out=out),
        "layer_norm": normalized(functional.layer_norm),
        "rms_norm": normalized(functional.rms_norm),
        "matmul": lambda a, b, out, precision: torch.matmul(a, b, out=out),
        # No workload pads one side more than the other.
        "conv": lambda x, w, out, strides, padding, dilations, groups, layout: _last(
            functional.conv2d(_first(x), w, None, strides, padding[::2], dilations, groups)
        ),
        "max_pool": pooled(functional.max_pool2d),
        "avg_pool": pooled(functional.avg_pool2d),
        # No workload has a window, or another layout than torch's.
        "attention": lambda q, k, v, out, scale, causal, window, softcap, layout: (
            functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        ),
        "cast": copied(lambda x, dtype: x),
        "transpose": copied(lambda x, permutation: x.permute(permutation)),
        "broadcast_to": copied(lambda x, shape: x),
        "slice": copied(_sliced),
        "concat": lambda *xs, out, axis: torch.cat(xs, axis, out=out),
        "gather": lambda x, i, out, axis: torch.index_select(x, axis, i, out=out),
        "take_along": lambda x, i, out: torch.gather(x, -1, i, out=out),
        # No workload has more than one run of places.
        "scatter": lambda x, i, updates, out, axis, reduce: (
            torch.index_copy if reduce == "none" else torch.index_add
        )(x, axis, i, updates, out=out),
    }


BASELINES: dict[str, Callable[..., list[Call]]] = {
    "numpy": _numpy,
    "torch": _torch,
    "onednn": products.onednn,
    "cublas": products.cublas,
}
"""The baselines by name."""

ON_CUDA = ("cublas",)
"""Those for `--target cuda`."""
