"""The elementwise steps of a `Body`, on registers: one function for each op, for both targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.emit import compare, is_float, is_unsigned, select
from heddle.kernels.functions import division, gelu, power, trigonometry
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.functions.powers_of_two import narrow_exp, narrow_sigmoid, narrow_silu
from heddle.kernels.mlir import dialect
from heddle.kernels.spec import Body, Spec, Step

arith = dialect("arith")


def evaluate(
    body: Body, inputs: Sequence[Any], dtypes: Sequence[str], lanes: int, stored: bool = False
) -> list[Any]:
    """The results of `body` for the register values `inputs` of `dtypes`.

    All have `lanes` lanes. An epilogue's first input is the root's result, so `dtypes` is not
    always that of `body.inputs`. Where results are `stored` and no more than that, a cast that
    comes last leaves the rounding to the store.
    """
    values, kinds = list(inputs), list(dtypes)
    computed: set[int] = set()
    read = {number for step in body.steps for number in step.args}
    narrow = _narrow(body, len(values))
    for step in body.steps:
        arguments = [values[number] for number in step.args]
        if _jumps(step):
            arguments = [
                convert.rounded(value, kinds[number]) if number in computed else value
                for value, number in zip(arguments, step.args, strict=True)
            ]
        if step.op == "constant":
            number: Any = dict(step.attrs)["value"]
            value = emit.constant(emit.register_type(step.dtype), number, lanes)
        elif step.op == "cast":
            rounds = not stored or len(values) in read
            value = convert.cast(arguments[0], kinds[step.args[0]], step.dtype, rounds)
        elif step.op in _NARROW_STEPS and len(values) in narrow and step.dtype != "float64":
            value = _NARROW_STEPS[step.op](step, narrow[len(values)], *arguments)
        else:
            # A comparison's result is bool; what it computes in is the dtype of its operands.
            value = _STEPS[step.op](step, kinds[step.args[-1]], *arguments)
        if step.dtype in _NARROW and step.op not in ("constant", "cast"):
            computed.add(len(values))
        values.append(value)
        kinds.append(step.dtype)
    return [values[number] for number in body.results]


def _jumps(step: Step) -> bool:
    """Whether the least error of what it reads may change all of its result.

    So what it reads of 16 bits is rounded, as it is where it is stored: a sum that is shown as 256
    equals 256.
    """
    if step.op == "cast":
        return step.dtype not in _WIDER
    return step.dtype == "bool" or step.op in ("floor", "ceil", "round", "floor_divide", "mod")


def _narrow(body: Body, inputs: int) -> dict[int, str]:
    """The numbers of values that are rounded to 16 bits, after products at most, and to which."""
    wanted: dict[int, set[str]] = {number: set() for number in range(inputs + len(body.steps))}
    for number, step in reversed([*enumerate(body.steps, inputs)]):
        if number in body.results:
            wanted[number].add(step.dtype)
        rounds = step.op == "cast" and step.dtype in _NARROW
        passed = wanted[number] if step.op in _KEEP_ERRORS else {"float32"}
        for argument in step.args:
            wanted[argument] |= {step.dtype} if rounds else passed
    return {
        number: max(dtypes)  # float16, where it is both
        for number, dtypes in wanted.items()
        if dtypes and dtypes <= _NARROW
    }


_NARROW = {"bfloat16", "float16"}
_WIDER = {*_NARROW, "float32", "float64"}
_KEEP_ERRORS = {"mul", "div", "neg", "abs", "relu", "maximum", "minimum", "where"}
"""Operations whose results are, relatively, no further from the truth than what they read."""


def work(body: Body | None) -> int:
    """Elementary operations or bytes read at each point, whichever are more."""
    if body is None:
        return 0
    read = sum(emit.ITEM_SIZE[operand.dtype] for operand in body.inputs)
    return max(read, sum(_WORK.get(step.op, 1) for step in body.steps))


def dtypes(body: Body) -> set[str]:
    """Those of all that `body` reads and computes."""
    return {each.dtype for each in body.inputs} | {step.dtype for step in body.steps}


def long(body: Body | None) -> bool:
    """Whether it has a function of many steps that wait for each other."""
    return any(_WORK.get(step.op, 1) >= _WORK["exp"] for step in (body.steps if body else ()))


def unsupported(body: Body | None) -> str | None:
    """Why `body` cannot be emitted, or None."""
    for step in body.steps if body else ():
        if step.op not in OPS:
            return f"no elementwise code for {step.op!r}"
    return None


def unsupported_in(spec: Spec) -> str | None:
    """Why a kernel of every dtype and body does not take `spec`, or None."""
    return unsupported(spec.prologue) or unsupported(spec.epilogue)


def of_numbers(spec: Spec, what: str) -> str | None:
    """Why a kernel that finds `what` of numbers, with any body, does not take `spec`, or None."""
    if spec.operands[0].dtype == "bool":
        return f"no {what} of bool"
    return unsupported_in(spec)


def maximum(dtype: str, a: Any, b: Any) -> Any:
    """The larger one; NaN where either is."""
    return _or_nan(dtype, b, emit.maximum(b, a, is_unsigned(dtype)))


def minimum(dtype: str, a: Any, b: Any) -> Any:
    """The smaller one; NaN where either is."""
    return _or_nan(dtype, b, emit.minimum(b, a, is_unsigned(dtype)))


def _or_nan(dtype: str, b: Any, result: Any) -> Any:
    """NaN where `b` is; not `b`, of which LLVM would make two comparisons instead of one."""
    return select(compare("not_equal", b, b), math.nan, result) if is_float(dtype) else result


def _absolute(step: Step, dtype: str, x: Any) -> Any:
    return x if is_unsigned(dtype) else emit.absolute(x)


def _relu(step: Step, dtype: str, x: Any) -> Any:
    return x if is_unsigned(dtype) else select(compare("less", x, 0), 0, x)


def _gelu(step: Step, dtype: str, x: Any) -> Any:
    return (gelu.gelu_tanh if _by_tanh(step) else gelu.gelu)(x)


def _narrow_gelu(step: Step, result: str, x: Any) -> Any:
    return (gelu.narrow_gelu_tanh if _by_tanh(step) else gelu.narrow_gelu)(x)


def _by_tanh(step: Step) -> bool:
    return dict(step.attrs)["approximate"] == "tanh"


def _where(step: Step, dtype: str, condition: Any, a: Any, b: Any) -> Any:
    return select(condition, a, b)


def _compare(step: Step, dtype: str, a: Any, b: Any) -> Any:
    return compare(step.op, a, b, is_unsigned(dtype))


def _left_shift(step: Step, dtype: str, x: Any, places: Any) -> Any:
    return select(_has_place(dtype, places), x << places, 0)


def _right_shift(step: Step, dtype: str, x: Any, places: Any) -> Any:
    known = _has_place(dtype, places)
    if is_unsigned(dtype):
        return select(known, x >> places, 0)
    return arith.shrsi(x, select(known, places, 8 * emit.ITEM_SIZE[dtype] - 1))


def _has_place(dtype: str, places: Any) -> Any:
    return compare("less", places, 8 * emit.ITEM_SIZE[dtype], unsigned=True)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda step, dtype, *arguments: function(*arguments)


_STEPS: dict[str, Callable[..., Any]] = {
    "add": _plain(lambda a, b: a + b),
    "sub": _plain(lambda a, b: a - b),
    "mul": _plain(lambda a, b: a * b),
    "div": _plain(lambda a, b: a / b),
    "neg": _plain(lambda x: -x),
    "sqrt": _plain(emit.sqrt),
    "rsqrt": _plain(vm.rsqrt),
    "exp": _plain(vm.exp),
    "expm1": _plain(vm.expm1),
    "log": _plain(vm.log),
    "log1p": _plain(vm.log1p),
    "softplus": _plain(vm.softplus),
    "tanh": _plain(vm.tanh),
    "erf": _plain(vm.erf),
    "sigmoid": _plain(vm.sigmoid),
    "silu": _plain(vm.silu),
    "sin": _plain(trigonometry.sin),
    "cos": _plain(trigonometry.cos),
    "pow": _plain(power.power),
    "floor": _plain(division.floor),
    "ceil": _plain(division.ceil),
    "round": _plain(division.round_even),
    "floor_divide": lambda step, *arguments: division.floor_divide(*arguments),
    "mod": lambda step, *arguments: division.mod(*arguments),
    "isnan": _plain(lambda x: compare("not_equal", x, x)),
    "logical_and": _plain(lambda a, b: a & b),
    "logical_or": _plain(lambda a, b: a | b),
    "logical_xor": _plain(lambda a, b: a ^ b),
    "logical_not": _plain(lambda x: x ^ 1),
    "bitwise_and": _plain(lambda a, b: a & b),
    "bitwise_or": _plain(lambda a, b: a | b),
    "bitwise_xor": _plain(lambda a, b: a ^ b),
    "bitwise_not": _plain(lambda x: x ^ -1),
    "left_shift": _left_shift,
    "right_shift": _right_shift,
    "abs": _absolute,
    "gelu": _gelu,
    "maximum": lambda step, *arguments: maximum(*arguments),
    "minimum": lambda step, *arguments: minimum(*arguments),
    "relu": _relu,
    "where": _where,
    **dict.fromkeys(
        ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _compare
    ),
}

_NARROW_STEPS: dict[str, Callable[..., Any]] = {
    "gelu": _narrow_gelu,
    "exp": _plain(narrow_exp),
    "sigmoid": _plain(narrow_sigmoid),
    "silu": lambda step, result, x: narrow_silu(x, result),
}

OPS = frozenset({*_STEPS, "constant", "cast"})
"""The ops that a `Step` may have."""

_WORK = {
    **dict.fromkeys(("exp", "expm1", "log", "tanh", "erf", "sigmoid", "silu", "gelu"), 16),
    **dict.fromkeys(("log1p", "softplus"), 32),
    **dict.fromkeys(("div", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(("sin", "cos", "floor_divide", "mod"), 24),
    "pow": 64,
}
