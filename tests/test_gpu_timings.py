"""What a check and a timing of a machine with a GPU see: on the CPU, with models that err."""

import importlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import erring_models
import numpy as np
import pytest

import heddle.runtime


@pytest.fixture(scope="module")
def scripts(script):
    return script("gpu_kit"), script("gpu_case")


CHECKED = ("not_equal", "equal", "softmax", "integer_matmul")

TIMED = (
    ("softmax", "float32", {"m": 4, "n": 40}),
    ("integer_matmul", "int8", {"m": 4, "n": 40, "k": 8}),
)


@pytest.fixture(scope="module")
def folder(scripts, tmp_path_factory):
    gpu_kit, made = scripts[0], tmp_path_factory.mktemp("kit")
    with pytest.MonkeyPatch.context() as patch:  # as little as shows everything
        patch.setattr(gpu_kit, "SMALL", gpu_kit.SMALL[:1])
        patch.setattr(gpu_kit, "LARGER", ())
        gpu_kit.finish(made, [gpu_kit.make(made, CHECKED, TIMED, None)])
    return made


@pytest.fixture
def erring(scripts, folder, monkeypatch):
    """Makes a kit whose models skip calls."""

    def made(skips):
        kit = scripts[1].Kit(folder, "cpu")
        prepared = kit.prepared

        def wrapped(case, arrays):
            model, *rest = prepared(case, arrays)
            return (erring_models.Erring(model, skips), *rest)

        monkeypatch.setattr(kit, "prepared", wrapped)
        return kit

    return made


def test_a_device_that_computes_nothing_fails_every_check(scripts, erring):
    kit = erring(lambda call: True)
    for case in kit.content["checks"]:
        failed = scripts[1].check(kit, case)["failed"]
        named = {text.partition(",")[0] for text in failed}
        assert named == (set(case["name"].split()) if len(case["results"]) > 1 else {case["name"]})


def test_a_graph_that_computes_nothing_fails(scripts, erring):
    """As the runtime would make one of a call that comes again."""
    kit = erring(lambda call: call == 5)
    for case in kit.content["checks"]:
        assert "again" in scripts[1].check(kit, case)["failed"][0]


def test_comparisons_meet_equal_numbers(scripts, folder):
    operands = importlib.import_module("gpu_operands")
    for case in json.loads((folder / "kit.json").read_text())["checks"]:
        if "equal" in case["name"].split():
            a, b = operands.drawn(case, 0, {})[:2]
            assert 0 < np.count_nonzero(a == b) < a.size


@pytest.fixture
def host_replays(monkeypatch):
    erring_models.on_host(monkeypatch)


class Peer:
    """A peer whose results are all the same number."""

    name, refused = "peer", ["another form: no"]

    def __init__(self, case):
        self.shape = case["results"][0]["shape"]

    def replay(self, count):
        return [1e-3] * count

    def result(self):
        return np.full(self.shape, 7.0)


def test_a_timing_of_what_computes_is_fine(scripts, erring, host_replays):
    kit = erring(lambda call: False)
    for case in kit.content["timings"]:
        row = scripts[1].time_one(kit, case, None)
        assert row["us"] > 0
        assert "failed" not in row


def test_a_timing_of_what_computes_nothing_fails(scripts, erring, host_replays):
    kit = erring(lambda call: True)
    texts = [
        text
        for case in kit.content["timings"]
        for text in scripts[1].time_one(kit, case, None)["failed"]
    ]
    assert "160 of 160 elements are not finite" in texts[0]
    assert "into other memory the result is another" in texts[1]


def test_a_timing_that_differs_from_its_peer_fails(scripts, erring, host_replays):
    kit = erring(lambda call: False)
    peers = SimpleNamespace(graph_of=lambda case, sets, repeats: Peer(case))
    row = scripts[1].time_one(kit, kit.content["timings"][0], peers)
    assert (row["peer"], row["peer_refused"]) == ("peer", ["another form: no"])
    assert "differs from the peer" in row["failed"][0]


def test_a_peer_that_refuses_costs_its_own_figures(scripts, erring, host_replays):
    def refuses(case, sets, repeats):
        raise RuntimeError("CUDA out of memory")

    kit = erring(lambda call: False)
    peers = SimpleNamespace(graph_of=refuses)
    row = scripts[1].time_one(kit, kit.content["timings"][0], peers)
    assert row["us"] > 0
    assert row["failed"] == ["peer: RuntimeError: CUDA out of memory"]


class Event:
    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Event.now

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at - self.at


@pytest.fixture
def gpu_peers(scripts, monkeypatch):
    """The module, beside a stand-in for torch whose replays take `gpu_peers.took` milliseconds."""
    torch, nn = ModuleType("torch"), ModuleType("torch.nn")
    functional, attention = ModuleType("torch.nn.functional"), ModuleType("torch.nn.attention")
    nn.functional, attention.sdpa_kernel = functional, None
    functional.silu = None
    attention.SDPBackend = SimpleNamespace(CUDNN_ATTENTION=0, FLASH_ATTENTION=1)
    torch.__version__, torch.nn = "2.99", nn
    torch.inference_mode, torch.from_dlpack = nullcontext, lambda buffer: buffer.it
    torch.matmul = torch.softmax = torch.sum = torch.add = None
    torch.compile = lambda function, dynamic: function
    flags = SimpleNamespace(allow_tf32=True)
    torch.backends = SimpleNamespace(
        cuda=SimpleNamespace(matmul=flags), cudnn=SimpleNamespace(benchmark=False)
    )

    class CUDAGraph:
        def replay(self):
            Event.now += module.took

    torch.cuda = SimpleNamespace(
        Stream=lambda: SimpleNamespace(synchronize=lambda: None),
        stream=lambda stream: nullcontext(),
        graph=lambda graph: nullcontext(),
        synchronize=lambda: None,
        CUDAGraph=CUDAGraph,
        Event=Event,
    )
    for name, made in {"": torch, ".nn": nn, ".nn.attention": attention}.items():
        monkeypatch.setitem(sys.modules, f"torch{name}", made)
    monkeypatch.delitem(sys.modules, "gpu_peers", raising=False)
    module = importlib.import_module("gpu_peers")
    yield module
    del sys.modules["gpu_peers"]
    assert not flags.allow_tf32


class Held:
    """A stand-in for a Buffer."""

    dtype = "int32"

    def __init__(self, it):
        self.it = it


def test_the_fastest_form_is_the_peer(gpu_peers):
    """Each set keeps the result of its last call; what one form lacks is told."""

    def form(milliseconds):
        def run(x):
            gpu_peers.took = milliseconds
            return x + 1

        return lambda x: lambda: run(x)

    def lacking(x):
        raise RuntimeError("no kernel")

    gpu_peers.FORMS["silu"] = {"slow": form(3.0), "none": lacking, "fast": form(2.0)}
    gpu_peers.FORMS["add"] = {"none": lacking}
    made = gpu_peers.graph_of({"name": "silu"}, [[Held(1)], [Held(5)]], 4)
    assert made.name == "torch 2.99, fast"
    assert made.refused == ["none: RuntimeError: no kernel"]
    assert made._results == [2, 6]
    with pytest.raises(RuntimeError, match="none: RuntimeError: no kernel"):
        gpu_peers.graph_of({"name": "add"}, [[Held(1)]], 1)
    assert gpu_peers.graph_of({"name": "sample_tokens"}, [[Held(1)]], 1) is None


def test_steps_of_fewer_rows_stay_where_more_do_not_fit(scripts, monkeypatch):
    decode = importlib.import_module("gpu_decode")

    def figures(model, moved, rows, device):
        if rows == 64:
            raise MemoryError("no room")
        return {"us": 1.0}

    monkeypatch.setattr(decode, "COPY", 64)
    monkeypatch.setattr(decode, "time_rows", figures)
    monkeypatch.setattr(heddle.runtime.Artifact, "load", lambda path: SimpleNamespace(weights=[]))
    device = heddle.runtime.CPU()
    session = SimpleNamespace(load=lambda *given: None)
    kit = SimpleNamespace(session=session, device=device, folder=Path())
    rows = decode.time_held(kit, "int8")
    assert [row.get("us") for row in rows] == [1.0, 1.0, None]
    assert rows[2]["failed"] == ["MemoryError: no room"]


def test_steps_have_their_variants_in_turns(scripts, monkeypatch):
    """The tiny model in place of the large one, and slower by itself as a variant."""
    decode = importlib.import_module("gpu_decode")
    seconds = {"ships": 3.0, "slow": 6.0, "copy": 1.0}
    device = SimpleNamespace(kind="gpu")
    result = SimpleNamespace(to_numpy=lambda: np.zeros(1))
    monkeypatch.setattr(decode, "step_of", lambda model, *_: ((model, (), (result, result)), 8))
    monkeypatch.setattr(decode, "launches", lambda call, count, _: [seconds[call[0]]] * count)
    models = {"": "ships", "cuda.a.B=1": "slow"}
    row = decode.time_rows(models, ("copy", (), ()), 1, device)
    assert row["us"] == 3e6
    assert row["variants"] == {"cuda.a.B=1": 0.5}
    assert "failed" not in row
    assert "variants" not in decode.time_rows({"": "ships"}, ("copy", (), ()), 1, device)


def test_limits_tell_the_clocks(scripts, tmp_path, monkeypatch):
    """And a program that fails or is not there costs no limits."""
    gpu = importlib.import_module("gpu")
    monkeypatch.setattr(gpu, "peers", lambda: SimpleNamespace(limits=lambda: {"copy_gb_s": 1.0}))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.timed(None, gpu.LIMITS)[0]["clocks"] == ""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 1980 MHz, $1\n")
    program.chmod(0o755)
    (row,) = gpu.timed(None, gpu.LIMITS)
    assert row["clocks"].startswith("1980 MHz, --query-gpu=clocks.sm")
    program.write_text("no program")
    (row,) = gpu.timed(None, gpu.LIMITS)
    assert "nvidia-smi" in row["clocks"]
    assert row["copy_gb_s"] == 1.0
