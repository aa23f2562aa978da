"""Names of targets."""

import pytest

from heddle.graph import Graph, Target, compile, targets
from heddle.runtime.errors import CompileError, DeviceError


def archs(*names):
    return [machine.arch for target in Target.merge(names) for machine in target.machines]


def test_a_kind_is_all_of_its_architectures():
    assert archs("cpu") == ["x86-64-v3", "x86-64-v4", "cooperlake", "sapphirerapids"]
    assert archs("cuda") == ["sm_80", "sm_90a"]


def test_targets_merge_in_table_order():
    assert archs("cuda:sm_90a", "cpu:x86-64-v4", "cpu:x86-64-v3", "cuda:sm_90a") == [
        "x86-64-v3",
        "x86-64-v4",
        "sm_90a",
    ]


@pytest.mark.parametrize("name", ["gpu", "cpu:sm_80", "cuda:native", "cuda:", "", "cpu:x86-64-v2"])
def test_an_unknown_target_lists_those_that_exist(name):
    with pytest.raises(CompileError) as caught:
        Target.parse(name)
    assert str(caught.value) == (
        f"target {name!r}: wanted one of cpu, cpu:cooperlake, cpu:native, cpu:sapphirerapids, "
        "cpu:x86-64-v3, cpu:x86-64-v4, cuda, cuda:sm_80, cuda:sm_90a"
    )


def test_no_target_is_refused():
    with pytest.raises(CompileError, match=r"^targets: wanted at least one of cpu, .*, got none$"):
        Target.merge(())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a",), "compile: wanted a Graph, got 'a'"),
        ((Graph("g"), None), "targets: wanted names of targets or Targets, got None"),
        ((Graph("g"), ["cpu", 3]), "targets: wanted names of targets or Targets, got 3"),
    ],
)
def test_what_compile_does_not_take(arguments, text):
    if isinstance(arguments[0], Graph):
        arguments[0].output()
    with pytest.raises(CompileError) as caught:
        compile(*arguments)
    assert str(caught.value) == text


def test_one_target_needs_no_list():
    assert targets.listed(Target.parse("cpu")) == (Target.parse("cpu"),)


@pytest.mark.parametrize(
    ("missing", "level"),
    [
        (None, "sapphirerapids"),
        ("amx-bf16", "cooperlake"),
        ("avx512bf16", "x86-64-v4"),
        ("avx512vl", "x86-64-v3"),
    ],
)
def test_native_is_the_best_level_that_this_machine_has(monkeypatch, missing, level):
    from llvmlite import binding

    features = {name: name != missing for _, names in targets._LEVELS for name in names}
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    assert archs("cpu:native") == [level]


def test_native_of_an_old_machine(monkeypatch):
    from llvmlite import binding

    monkeypatch.setattr(binding, "get_host_cpu_features", dict)
    with pytest.raises(DeviceError, match="this machine lacks x86-64-v3, the lowest level"):
        Target.parse("cpu:native")
