"""What `heddle bench run` is asked for: names, sizes and dtypes, and what is no case."""

import re

import pytest
from bench_commands import call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "kernel: wanted one of .*; got 'nope'; did you mean 'rope'\\?$"),
        (["softmx"], "kernel: wanted one of .*; got 'softmx'; did you mean 'softmax'\\?$"),
        (["exp", "--set", "m=2", "n=3"], "got 'n=3'; did you mean '--set n=3'\\?$"),
        (["exp", "--set", "q=1"], "exp: --set: wanted one of m, n; got 'q'"),
        (["exp", "--dtype", "int8"], "exp: --dtype: wanted one of .*; got 'int8'"),
        (["softmax", "--set", "axis=5"], "softmax: m=4096 n=4096 axis=5: wanted an axis from -2"),
        (
            ["paged_attention", "--set", "t=10"],
            "paged_attention: .* t=10 .*: t: wanted a multiple of block = 16, got 10$",
        ),
        (["paged_attention", "--set", "block=0"], "block: wanted at least 1, got 0$"),
        (["quantized_matmul_4", "--set", "k=33"], "k: wanted a multiple of group = 32, got 33$"),
        (["rope", "--set", "d=7"], "rope: .*: d: wanted a multiple of 2, got 7$"),
        (
            ["softmax", "--set", f"m={10**20}"],
            "softmax: m=1.* wanted at most .* GiB, this machine's memory, got .* GiB: operands and "
            "a result, 3 of each",
        ),
        (["exp", "--baseline", "mkl"], "--baseline: wanted one of numpy, .*; got 'mkl'"),
    ],
)
def test_unknown_names_list_what_exists_and_nothing_runs(cases, arguments, message):
    assert re.search(message, call("run", *arguments, code=2).stderr.rstrip())
    assert cases.seen == []


def test_what_is_asked_for_twice_runs_once(cases):
    given = ("--set", "m=8,8,16", "--dtype", "float32,float32", "--baseline", "numpy")
    call("run", "exp", "relu", "exp", *given, "--baseline", "numpy")
    runs = [(case.name, case.sizes["m"], case.baselines) for case in cases.seen]
    assert runs == [(name, m, ("numpy",)) for name in ("exp", "relu") for m in (8, 16)]


def test_all_take_the_sizes_and_dtypes_that_they_know(cases):
    call("run", "all", "exp", "--set", "m=3", "--set", "k=64", "--dtype", "float64")
    seen = {case.name: case for case in cases.seen}
    assert seen["exp"].sizes == {"m": 3, "n": 4096}
    assert (seen["matmul"].sizes["m"], seen["matmul"].sizes["k"]) == (3, 64)
    assert "bitwise_and" not in seen
    assert {case.dtype for case in cases.seen} == {"float64"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "q=3"], "all: --set: wanted one of .*, height, .*; got 'q'"),
        (["--dtype", "float7"], "all: --dtype: wanted one of bfloat16, .*; got 'float7'"),
    ],
)
def test_what_none_of_all_takes(cases, arguments, message):
    assert re.search(message, call("run", "all", *arguments, code=2).stderr)
    assert cases.seen == []


def test_sizes_are_given_once(cases):
    text = call("run", "exp", "--set", "m=8", "--set", "m=16", code=2).stderr
    assert "--set m: wanted its sizes once, as m=SIZE,SIZE, got it twice" in text
    assert cases.seen == []


@pytest.mark.parametrize("text", ["m", "m=", "m=a", "m=1,,2", "m=-1"])
def test_sizes_that_are_none(cases, text):
    result = call("run", "exp", "--set", text, code=2)
    assert "--set: wanted NAME=SIZE[,SIZE...]" in result.stderr
