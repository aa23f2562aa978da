"""The writer: the same bytes for the same record, and a clear refusal of each broken rule."""

import dataclasses
import importlib.util
import operator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.runtime import _core
from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Constant,
    Copy,
    Dispatch,
    Kernel,
    Launch,
    Program,
    Routine,
    Symbol,
    Tensor,
    TensorMap,
    Weight,
)
from heddle.runtime.artifact_writer import write
from heddle.runtime.errors import ArtifactError, ArtifactReason, CompileError, InputError

GOLDEN = Path(__file__).parents[1] / "golden"


def _golden(name: str) -> ArtifactRecord:
    source = importlib.util.spec_from_file_location(f"make_{name}", GOLDEN / f"make_{name}.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module.record()


TINY = _golden("tiny")
EMPTY = ArtifactRecord("empty", (), (), (), (), (), ())
X = Tensor("x", "float32", ("n",))
CODE = Code("x86-64-v3", "image", b"\xc3")


def program(**changes):
    plain = Program("cpu", (), (), Routine(()), Routine(()))
    return dataclasses.replace(plain, **changes)


def one(**changes):
    """An artifact with the input x of shape [n]."""
    plain = dataclasses.replace(EMPTY, symbols=(Symbol("n", 0, 100),), inputs=(X,))
    return dataclasses.replace(plain, **changes)


@pytest.mark.parametrize("name", ["tiny", "check"])
def test_the_golden_file_comes_out_again(name):
    assert write(_golden(name)).to_bytes() == (GOLDEN / f"{name}.heddle").read_bytes()


def test_an_empty_record_is_an_artifact():
    assert write(EMPTY).name == "empty"


def test_embedded_weights_may_be_views():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    record = one(weights=(Weight("w", "float32", (2, 3), data=data.data),))
    assert data.tobytes() in write(record).to_bytes()


def test_the_reader_refuses_what_the_writer_did_not_write():
    data = bytearray(write(TINY).to_bytes())
    data[-1] ^= 1
    with pytest.raises(ArtifactError, match="section weight data: checksum") as refused:
        _core.Artifact.from_bytes(bytes(data))
    assert refused.value.reason is ArtifactReason.CHECKSUM


def dispatch(kernel=0, buffers=(), dims=(), grid=(1, 1, 1), work=1):
    return Dispatch(kernel, buffers, dims, (grid,), work, "op at file.py:1")


def mapped(**changes):
    """An artifact whose one kernel takes a tensor map, with changes of it."""
    row = TensorMap(0, 2, (4, 32), (64,), (4, 32), 64)
    return one(
        programs=(
            program(
                target="cuda",
                kernels=(Kernel("k", (), launches=(Launch(tensor_maps=1),)),),
                buffers=(Buffer("arena", 256),),
                main=Routine(
                    (
                        dataclasses.replace(
                            dispatch(buffers=(0,)),
                            tensor_maps=(dataclasses.replace(row, **changes),),
                        ),
                    ),
                ),
            ),
        )
    )


RULES = {
    "launches without end": (
        one(programs=(program(kernels=(Kernel("k", (), launches=(Launch(),) * 65),)),)),
        "section kernels, record 0, launches: wanted 1 to 64, got 65",
    ),
    "map of no argument": (mapped(buffer=1), "argument: wanted a number below 1, got 1"),
    "item of a map": (mapped(item=3), "item: wanted 1, 2, 4 or 8 bytes, got 3"),
    "map without axes": (
        mapped(shape=(), strides=(), box=()),
        "shape: wanted 1 to 5 axes, got 0",
    ),
    "strides of a map": (
        mapped(strides=(64, 2)),
        "strides: wanted all axes but the last, got 2",
    ),
    "box of a map": (
        mapped(box=(257, 32)),
        "box: wanted 1 to 256 along each axis, then zeros, got 257",
    ),
    "box with more axes": (
        mapped(box=(4, 32, 1)),
        "box: wanted 1 to 256 along each axis, then zeros, got 1",
    ),
    "lines of a box": (
        mapped(box=(4, 31)),
        "box: wanted lines of whole 16 bytes within the swizzle, got 62",
    ),
    "lines wider than the swizzle": (
        mapped(swizzle=32),
        "box: wanted lines of whole 16 bytes within the swizzle, got 64",
    ),
    "swizzle": (mapped(swizzle=96), "swizzle: wanted 0, 32, 64 or 128 bytes, got 96"),
    "unknown symbol": (
        one(outputs=(Tensor("y", "float32", ("m",)),)),
        "size 'm': wanted a number or the name of a symbol",
    ),
    "unknown operation": (
        one(outputs=(Tensor("y", "float32", (("pow", "n", 2),)),)),
        r"operation of size \('pow', 'n', 2\): wanted one of add, sub, .*, got 'pow'",
    ),
    "division by zero": (
        one(outputs=(Tensor("y", "float32", (("mod", 3, 0),)),)),
        r"size \('mod', 3, 0\): wanted a divisor, got zero",
    ),
    "unknown dtype": (
        one(outputs=(Tensor("y", "float31", ("n",)),)),
        "dtype of 'y': wanted one of bool, .*, got 'float31'",
    ),
    "weight dtype": (
        one(weights=(Weight("w", "complex64", (1,)),)),
        "dtype of 'w': wanted one of bool, .*, got 'complex64'",
    ),
    "weight data": (
        one(weights=(Weight("w", "float32", (2,), data=b"1234"),)),
        "weight 'w': wanted 8 bytes of data, got 4",
    ),
    "target": (one(programs=(program(target="tpu"),)), "target: wanted .*, got 'tpu'"),
    "code format": (
        one(programs=(program(kernels=(Kernel("k", (Code("v3", "elf", b"1"),)),)),)),
        "code format: wanted .*, got 'elf'",
    ),
    "buffer kind": (
        one(programs=(program(buffers=(Buffer("heap", 4),)),)),
        "buffer kind: wanted .*, got 'heap'",
    ),
    "arity": (
        one(
            programs=(
                program(
                    kernels=(Kernel("k", (CODE,)),),
                    buffers=(Buffer("input", 0),),
                    main=Routine((dispatch(), dispatch(buffers=(0,)))),
                ),
            )
        ),
        "wanted 0 buffers and 0 dims, as before for the same kernel, got 1 and 0",
    ),
    "overflow": (
        one(outputs=(Tensor("y", "float32", (1 << 63,)),)),
        "artifact 'empty': a value does not fit: ",
    ),
    "surrogate": (dataclasses.replace(EMPTY, name="\ud800"), "a value does not fit: "),
    "symbol range": (
        one(symbols=(Symbol("n", 5, 4),)),
        "section symbols, record 0, range: wanted 0 <= minimum",
    ),
    "unbound symbol": (
        one(symbols=(Symbol("n", 0, 1), Symbol("m", 0, 1))),
        "none that binds 'm'",
    ),
    "rank": (
        one(outputs=(Tensor("y", "float32", (1,) * 17),)),
        "section tensors, record 1, shape: wanted at most 16 dimensions, got 17",
    ),
    "long name": (
        one(outputs=(Tensor("y" * 4097, "float32", ()),)),
        "name: wanted at most 4096 bytes, got 4097",
    ),
    "same name": (
        one(outputs=(Tensor("y", "int8", ()), Tensor("y", "int8", ()))),
        "wanted names that differ, got 'y' twice",
    ),
    "two programs": (
        one(programs=(program(), program())),
        "section programs, record 1, target: wanted one program for each, in ascending order",
    ),
    "many codes": (
        one(programs=(program(kernels=(Kernel("k", (CODE,) * 65),)),)),
        "section kernels, record 0, codes: wanted at most 64, got 65",
    ),
    "kernel number": (
        one(programs=(program(main=Routine((dispatch(3),))),)),
        "section instructions, record 0, kernel: wanted a number below 0, got 3",
    ),
    "symbol in init": (
        one(programs=(program(init=Routine((), arena="n")),)),
        "section programs, record 0, init arena: wanted a size that is a number, got 'n'",
    ),
    "odd state": (
        one(programs=(program(buffers=(Buffer("state", 4, offset=4),), state=64),)),
        "section buffers, record 0, offset: wanted a multiple of 64 inside the state, got 4",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_named(rule):
    record, message = RULES[rule]
    with pytest.raises(CompileError, match=message):
        write(record)


_PYTHON = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": operator.mod,
    "min": min,
    "max": max,
}

exprs = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(["n", "m"])),
    lambda part: st.tuples(st.sampled_from(sorted(_PYTHON)), part, part),
    max_leaves=6,
)


def evaluate(size, symbols):
    if isinstance(size, tuple):
        return _PYTHON[size[0]](evaluate(size[1], symbols), evaluate(size[2], symbols))
    return symbols.get(size, size)


@settings(max_examples=150, deadline=None)
@given(size=exprs, n=st.integers(0, 9), m=st.integers(0, 9))
def test_sizes_mean_what_python_says(size, n, m):
    """The output's only dim is `size`; what the runtime makes of it is its value."""
    record = dataclasses.replace(
        EMPTY,
        symbols=(Symbol("n", 0, 9), Symbol("m", 0, 9)),
        inputs=(Tensor("x", "int8", ("n", "m")),),
        outputs=(Tensor("y", "int8", (size,)),),
        programs=(program(),),
    )
    try:
        artifact = write(record)
    except CompileError as error:
        if "wanted a divisor, got zero" not in str(error):
            raise
        return
    model = _core.Session([_core.CPU()], 1, False).load(artifact, None)
    try:
        wanted = evaluate(size, {"n": n, "m": m})
    except ZeroDivisionError:
        wanted = None
    if wanted is None or wanted < 0 or wanted > 1 << 20:
        with pytest.raises(InputError):
            model.execute(np.zeros((n, m), np.int8))
    else:
        (y,) = model.execute(np.zeros((n, m), np.int8))
        assert y.shape == (wanted,)


def test_an_input_is_returned_as_it_is():
    size = ("mul", "n", 4)
    record = one(
        outputs=(Tensor("y", "float32", ("n",)),),
        constants=(Constant(b"1234"),),
        programs=(
            program(
                buffers=(Buffer("input", size), Buffer("output", size)),
                main=Routine((Copy(0, 1, size, "copy at file.py:1"),)),
            ),
        ),
    )
    artifact = write(record)
    model = _core.Session([_core.CPU()], 1, False).load(artifact, None)
    x = np.arange(7, dtype=np.float32)
    (y,) = model.execute(x)
    assert y.to_numpy().tolist() == x.tolist()
