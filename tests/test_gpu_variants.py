"""A kit with other constants of kernels: what is timed of them, and what is refused."""

import importlib
import re

import erring_models
import pytest


@pytest.fixture(scope="module")
def scripts(script):
    return script("gpu_kit"), script("gpu_case")


@pytest.fixture
def host_replays(monkeypatch):
    erring_models.on_host(monkeypatch)


AHEAD, SAME = "cpu.scatter.AHEAD=64", "cpu.scatter.PARTS=64"
"""A variant, and one that is what ships."""


@pytest.fixture(scope="module")
def varied(scripts, tmp_path_factory):
    """A kit of two timings, of one of which a variant has other code."""
    made = tmp_path_factory.mktemp("varied")
    timed = [
        ("scatter", "float32", {"rows": 8, "m": 5, "n": 16}),
        ("softmax", "float32", {"m": 4, "n": 40}),
    ]
    shares = [scripts[0].make(made, (), timed, None, variants=(AHEAD, SAME))]
    scripts[0].finish(made, shares)
    return scripts[1].Kit(made, "cpu")


def test_a_variant_is_timed_where_its_code_is_another(scripts, varied, host_replays):
    first, second = varied.content["timings"]
    assert first["variants"].keys() == {AHEAD}
    assert second["variants"] == {}
    row = scripts[1].time_one(varied, first, None)
    assert (row["variants"], row["difference"]) == ({AHEAD: 1.0}, 0.0)
    assert "failed" not in row


def test_a_variant_that_computes_something_else_fails(scripts, varied, host_replays, monkeypatch):
    case, prepared = varied.content["timings"][0], varied.prepared

    def wrapped(asked, arrays):
        model, *rest = prepared(asked, arrays)
        is_variant = asked["path"] != case["path"]
        return (erring_models.Erring(model, lambda call: is_variant), *rest)

    monkeypatch.setattr(varied, "prepared", wrapped)
    (text,) = scripts[1].time_one(varied, case, None)["failed"]
    assert text.startswith(f"differs from {AHEAD} by")


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("cpu.scater.AHEAD=64", "wanted a module of kernels/, got 'cpu.scater'"),
        ("cpu.scatter.AHEDA=64", "wanted a constant of cpu.scatter: PARTS, LEAST, AHEAD"),
        ("cpu.scatter.AHEAD=1.5", "cpu.scatter.AHEAD: wanted one of type int, got '1.5'"),
        ("cpu.scatter.AHEAD", "cpu.scatter.AHEAD: wanted one of type int, got ''"),
        ("cpu.scatter.AHEAD=64,cuda.scatter.EACH=x", "cuda.scatter.EACH: wanted one of type int"),
    ],
)
def test_mistakes_in_variants(script, variant, message):
    variants = script("gpu_variants")
    scatter = importlib.import_module("heddle.kernels.cpu.scatter")
    with pytest.raises(SystemExit, match=re.escape(message)), variants.varied(variant):
        pass
    assert scatter.AHEAD == 4096
