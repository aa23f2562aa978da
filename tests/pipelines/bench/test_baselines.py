"""Peers: what they take, what they refuse, and that they compute the same."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from bench_cases import small

from heddle.graph import DType
from heddle.pipelines.bench import baselines, case, products, workloads
from heddle.pipelines.bench.case import Case, run
from heddle.runtime import CPU


def test_a_baseline_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(products, "find_spec", lambda name: None)
    ours, peer = run(small("exp", baselines=("torch",)))
    assert ours["status"] == "ok"
    assert peer["status"] == "missing"
    assert peer["error"]["message"] == "torch: is not installed; pip install torch"


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("erf", "float32", "numpy: has no erf; use --baseline torch"),
        ("gelu", "float32", "numpy: has no erf; use --baseline torch"),
        ("exp", "bfloat16", "numpy: has no bfloat16; use --dtype float32, or --baseline torch"),
    ],
)
def test_what_numpy_has_not(name, dtype, message):
    prepared = case.prepare(small(name), workloads.find(name), DType[dtype], CPU())
    with pytest.raises(baselines.MissingError, match=message):
        baselines.calls("numpy", small(name), prepared)


@pytest.mark.parametrize(
    ("name", "target", "wanted"), [("numpy", "cuda", "cpu"), ("cublas", "cpu", "cuda")]
)
def test_a_baseline_runs_on_one_target(name, target, wanted):
    message = f"{name}: runs on {wanted} alone here; use --target {wanted}"
    with pytest.raises(baselines.MissingError, match=message):
        baselines.calls(name, Case("exp", {}, target=target), None)


class FakeTensor(np.ndarray):
    def double(self):
        return self.astype(np.float64)


class FakeTorch:
    """As much of torch as the bench uses, on NumPy."""

    def __init__(self):
        self.threads = 0

    def set_num_threads(self, count):
        self.threads = count

    def from_dlpack(self, buffer):
        return buffer.to_numpy().view(FakeTensor)

    def exp(self, x, out):
        return np.exp(x, out=out)

    def softmax(self, x, axis, out):
        raise RuntimeError("never called")

    def __getattr__(self, name):
        inner = name in ("nn", "functional", "_C", "_nn")
        return self if inner else lambda *tensors, out=None, **attrs: None


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_baselines_take_the_attributes_of_their_ops(name):
    workload = workloads.find(name)
    sizes, dtype = workloads.grid(workload, {})[0], workloads.dtype_of(workload, None)
    attrs = workload.canonical(sizes, dtype)
    for own in (
        baselines.numpy_function(workload.row),
        baselines.torch_functions(FakeTorch()).get(workload.op),
    ):
        if isinstance(own, np.ufunc):
            assert not attrs
        elif own is not None:
            inspect.signature(own).bind(*workload.operands, out=None, **attrs)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("attention_causal", {}, "lets query i see the first i keys; give s and t the same size"),
        ("attention_capped", {"s": 4, "t": 4}, "its attention caps no scores"),
    ],
)
def test_torch_has_another_attention(monkeypatch, name, sizes, message):
    monkeypatch.setattr(products, "find_spec", lambda name: object())
    monkeypatch.setattr(products, "import_module", lambda name: FakeTorch())
    found = small(name)
    found = replace(found, sizes={**found.sizes, **sizes})
    prepared = case.prepare(found, workloads.find(found.name), DType.float32, CPU())
    message = f"torch: {message}"
    with pytest.raises(baselines.MissingError, match=message):
        baselines.calls("torch", found, prepared)


@pytest.mark.parametrize("when", ["made", "called"])
def test_a_baseline_that_refuses_a_case_is_a_row(monkeypatch, when):
    def refuse():
        raise RuntimeError("not implemented for 'Half'\nException raised from here")

    def refused(found, prepared):
        return [refuse] if when == "called" else refuse()

    monkeypatch.setitem(baselines.BASELINES, "torch", refused)
    ours, peer = run(small("exp", baselines=("torch",)))
    assert ours["status"] == "ok"
    assert peer["status"] == "missing"
    assert peer["error"]["message"] == "torch: exp of float32: not implemented for 'Half'"


def test_a_baseline_for_which_there_is_no_memory_is_a_row(monkeypatch):
    monkeypatch.setitem(baselines.BASELINES, "numpy", lambda *_: [lambda: np.empty(2**57)])
    ours, peer = run(small("exp", baselines=("numpy",)))
    assert (ours["status"], peer["status"]) == ("ok", "missing")
    assert peer["error"]["message"].startswith("numpy: exp of float32: Unable to allocate 1.00 EiB")


def test_numpy_multiplies_too():
    _, peer = run(small("matmul", baselines=("numpy",)))
    assert peer["status"] == "ok"
    assert peer["max_error"] <= peer["tolerance"]


OF_TORCH = [
    name
    for name, workload in workloads.WORKLOADS.items()
    if workload.op in baselines.torch_functions(FakeTorch()) and "cap" not in workload.sizes
]


@pytest.mark.parametrize("name", OF_TORCH)
def test_torch_computes_the_same_and_writes_it_where_it_is_told(name):
    """Unless its row says that it makes a new result."""
    torch, workload = pytest.importorskip("torch"), workloads.find(name)
    dtype, found = workloads.dtype_of(workload, None), small(name, baselines=("torch",))
    sizes = {size: min(value, 32) for size, value in found.sizes.items()}
    if workload.op == "attention":
        sizes["t"] = sizes["s"]
    found = replace(found, dtype=dtype.name, sizes=sizes)
    _, peer = run(found)
    assert peer["status"] == "ok", peer
    assert peer["max_error"] <= peer["tolerance"]
    prepared = case.prepare(found, workload, dtype, CPU())
    (call, *_) = baselines.calls("torch", found, prepared)
    new = call().data_ptr() != torch.from_dlpack(prepared.outputs[0]).data_ptr()
    assert new == ("new-result" in peer["flags"])


def test_torch_works_on_the_same_memory(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setattr(products, "find_spec", lambda name: object())
    monkeypatch.setattr(products, "import_module", lambda name: fake)
    _, peer = run(small("exp", baselines=("torch",), threads=2))
    assert peer["status"] == "ok"
    assert peer["max_error"] <= peer["tolerance"]
    assert fake.threads == 2
