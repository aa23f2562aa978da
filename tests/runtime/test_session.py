"""Loading: sessions, devices and weights."""

import re
import struct
import weakref
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from heddle.runtime import (
    CPU,
    Accelerator,
    Artifact,
    ArtifactError,
    ArtifactReason,
    Buffer,
    Device,
    DeviceError,
    InferenceSession,
    InputError,
    _core,
    accelerator_count,
)
from heddle.runtime.artifact import Weight

needs_no_gpu = pytest.mark.skipif(accelerator_count() > 0, reason="this machine has a GPU")


def test_load_takes_artifacts_and_paths(make, session, tmp_path, four):
    artifact = make("double")
    artifact.save(tmp_path / "m.heddle")
    for source in (artifact, tmp_path / "m.heddle", str(tmp_path / "m.heddle")):
        (y,) = session.load(source).execute(four)
        np.testing.assert_array_equal(y.to_numpy(), 2 * four)


def test_load_asks_a_graph_for_its_artifact(make, session, four):
    class Graph:
        def __heddle_artifact__(self):
            return make("double")

    np.testing.assert_array_equal(session.load(Graph()).execute(four)[0].to_numpy(), 2 * four)


def test_weights_from_a_dict_a_buffer_and_a_file(weighted, session, tmp_path, four):
    w = np.float32([3, 5, 7, 9])
    save_file({"w": w}, tmp_path / "w.safetensors")
    for weights in (
        {"w": w},
        {"w": Buffer.from_numpy(w)},
        {"w": np.repeat(w, 2)[::2]},
        tmp_path / "w.safetensors",
        str(tmp_path / "w.safetensors"),
    ):
        model = session.load(weighted, weights=weights)
        del weights  # the model keeps what it needs
        np.testing.assert_array_equal(model.execute(four)[0].to_numpy(), four * w)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"w": np.broadcast_to(np.float32(1), 1 << 40)}, r"w.*, got float32\[1099511627776\]"),
        ({"w": np.float64([1] * 8)[::2]}, r"weight 'w': wanted float32\[4\], got float64\[4\]"),
        ({"w": np.ones(4, np.float32), "v": np.ones(8)[::2]}, "given, and not wanted: 'v'"),
    ],
)
def test_weights_that_are_refused_are_not_copied(weighted, session, weights, message):
    count = _core.copy_count()
    with pytest.raises(ArtifactError, match=message):
        session.load(weighted, weights=weights)
    assert _core.copy_count() == count


def test_a_weight_that_is_not_dense_is_held_once(make, session):
    size = 1 << 16
    made = make("multiply", weights=(Weight("w", "float32", (size,)),), maximum=size)
    given, count = np.full(2 * size, 3, np.float32), _core.copy_count()
    model, kept = session.load(made, weights={"w": given[::2]}), weakref.ref(given)
    del given
    assert kept() is None
    assert _core.copy_count() == count + 1
    assert model.execute(np.float32([1, 2]))[0].to_numpy().tolist() == [3, 6]


def test_a_weight_between_its_elements_is_copied(make, session):
    size = 1 << 16
    made = make("multiply", weights=(Weight("w", "float32", (size,)),), maximum=size)
    given, count = np.frombuffer(bytearray(4 * size + 1), np.float32, size, 1), _core.copy_count()
    given[:] = 3
    model = session.load(made, weights={"w": given})
    assert _core.copy_count() == count + 1
    assert model.execute(np.float32([1, 2]))[0].to_numpy().tolist() == [3, 6]


@pytest.mark.parametrize(("size", "copied"), [(4, True), (16384, True), (16385, False)])
def test_large_weights_of_a_cpu_model_are_used_where_they_are(make, session, size, copied):
    weighted = make("multiply", weights=(Weight("w", "float32", (size,)),), maximum=size)
    w, x = np.full(size, 3, np.float32), np.arange(size, dtype=np.float32)
    count = _core.copy_count()
    model = session.load(weighted, weights={"w": w})
    w[:] = 1
    wanted = 3 * x if copied else x
    np.testing.assert_array_equal(model.execute(x)[0].to_numpy(), wanted)
    assert _core.copy_count() == count  # of none was the layout wrong


def test_an_output_may_not_be_a_weight_that_is_used_where_it_is(make, session):
    size = 1 << 15
    weighted = make("multiply", weights=(Weight("w", "float32", (size,)),), maximum=size)
    memory = np.full(3 * size, 3, np.float32)
    model = session.load(weighted, weights={"w": memory[size : 2 * size]})
    x = np.ones(size, np.float32)
    wanted = "output 'y': wanted memory of its own, got memory of weight 'w'"
    for first in (1, size, 2 * size - 1):
        with pytest.raises(InputError) as error:
            model.execute(x, out=[memory[first : first + size]])
        assert str(error.value) == wanted
    assert (memory == 3).all()
    for first in (0, 2 * size):
        model.execute(x, out=[memory[first : first + size]])
    assert (memory == 3).all()


def test_an_output_may_not_be_memory_of_the_artifact(make, session):
    w = np.full(1 << 15, 3, np.float32)
    row = Weight("w", "float32", w.shape, data=w.tobytes())
    content = make("multiply", weights=(row,), maximum=w.size).to_bytes()
    memory = np.zeros(len(content) + 64, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :][: len(content)]
    memory[:] = np.frombuffer(content, np.uint8)
    model = session.load(Artifact.from_bytes(memory, copy=False))
    for out in (memory[:4], memory[-4:]):
        with pytest.raises(InputError) as error:
            model.execute(np.ones(1, np.float32), out=[out.view(np.float32)])
        assert str(error.value).endswith("own, got memory of the artifact <memory>")
    assert memory.tobytes() == content


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "w"),
        ({}, "w"),
        ({"w": np.zeros(4, "f4"), "v": np.zeros(1, "f4")}, "v"),
        ({"w": np.zeros(3, "f4")}, "[3]"),
        ({"w": np.zeros(4, "f8")}, "float64"),
    ],
)
def test_wrong_weights(weighted, session, weights, message):
    with pytest.raises(ArtifactError) as error:
        session.load(weighted, weights=weights)
    assert error.value.reason is ArtifactReason.WEIGHTS
    assert message in str(error.value)


def test_weights_that_are_no_arrays_by_name(weighted, session, four):
    for weights, message in (
        ({"w": [1, 2]}, r"weight 'w': wanted an array"),
        ({1: four}, r"weights: wanted names that are texts, got 1"),
        ([four], r"load: weights: wanted arrays by name, or the path of a .* file, got list \["),
    ):
        with pytest.raises(InputError, match=message):
            session.load(weighted, weights=weights)
    with pytest.raises(ArtifactError, match="cannot be read"):
        session.load(weighted, weights="")


def test_damaged_weight_files(weighted, session, tmp_path, four):
    path = tmp_path / "w.safetensors"
    with pytest.raises(ArtifactError) as error:
        session.load(weighted, weights=path)
    assert error.value.reason is ArtifactReason.NOT_FOUND
    save_file({"w": four}, path)
    whole = path.read_bytes()
    (header,) = struct.unpack("<Q", whole[:8])
    for size in (0, 4, 8, 8 + header // 2, 8 + header, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ArtifactError) as error:
            session.load(weighted, weights=path)
        assert error.value.reason is ArtifactReason.WEIGHTS
        assert str(path) in str(error.value)


def test_a_missing_artifact(session, tmp_path):
    with pytest.raises(ArtifactError, match=r"none\.heddle") as error:
        session.load(tmp_path / "none.heddle")
    assert error.value.reason is ArtifactReason.NOT_FOUND


def test_code_for_another_cpu_is_refused(make, session):
    missing = _core.cpu_info()["missing"]["sapphirerapids"]
    if not missing:
        pytest.skip("this CPU runs all code")
    with pytest.raises(DeviceError, match=missing[0]):
        session.load(make("double", arch="sapphirerapids"))


def test_threads_give_the_same_answer(make):
    x = np.random.default_rng(1).random(1 << 16, np.float32)
    for options in ({"threads": 1}, {"threads": 2}, {"threads": 2, "pin": True}, {}):
        model = InferenceSession(**options).load(make("double"))
        np.testing.assert_array_equal(model.execute(x)[0].to_numpy(), 2 * x)


def test_little_work_stays_on_one_thread(make):
    model = InferenceSession(threads=2).load(make("share"))
    few, many = np.zeros(1000, np.float32), np.zeros(1 << 18, np.float32)
    assert (model.execute(few)[0].to_numpy() == few.size).all()
    assert (model.execute(many)[0].to_numpy() <= many.size / 2).all()


def test_the_setting_gives_the_threads(make, monkeypatch):
    x = np.zeros(1 << 18, np.float32)
    for threads in (1, 2):
        monkeypatch.setenv("HEDDLE_THREADS", str(threads))
        largest = InferenceSession().load(make("share")).execute(x)[0].to_numpy().max()
        assert largest <= x.size / threads
        assert (largest == x.size) == (threads == 1)


def test_wrong_sessions(monkeypatch):
    with pytest.raises(DeviceError, match="wanted at least one device, got none"):
        InferenceSession(devices=[])
    with pytest.raises(InputError, match="wanted threads from 0 to 65536, got -1"):
        InferenceSession(threads=-1)
    with pytest.raises(InputError, match="wanted pin as a bool, got 'yes'"):
        InferenceSession(pin="yes")
    for text in (5000 * "9", "many", "", "65537", "\u00b2"):
        monkeypatch.setenv("HEDDLE_THREADS", text)
        with pytest.raises(InputError) as error:
            InferenceSession()
        assert str(error.value) == f"HEDDLE_THREADS: wanted a number from 0 to 65536, got {text!r}"


def test_what_is_no_device_or_model_is_refused(make):
    session, device = InferenceSession(), "wanted a Device, as CPU() or Accelerator(0), got"
    for attempt, message in (
        (
            lambda: InferenceSession(devices=["cuda"]),
            f"InferenceSession: devices: {device} str 'cuda'",
        ),
        (lambda: session.load(make("double"), device=3), f"load: device: {device} int 3"),
        (
            lambda: session.load(3),
            "load: wanted an Artifact, the path of one or a Graph, got int 3",
        ),
    ):
        with pytest.raises(InputError) as error:
            attempt()
        assert str(error.value) == message


def test_devices_by_name():
    assert CPU() == Device("cpu", 0) != Accelerator(0)
    assert Accelerator(1) == Device("cuda", 1)
    assert {CPU(), Device("cpu"), Accelerator()} == {CPU(), Accelerator()}
    assert [repr(CPU()), repr(Accelerator(1))] == ["CPU()", "Accelerator(1)"]
    assert [str(CPU()), str(Accelerator(1))] == ["cpu:0", "cuda:1"]
    assert (Accelerator(1).kind, Accelerator(1).index) == ("cuda", 1)
    assert repr(InferenceSession(threads=1)) == "InferenceSession([CPU()])"
    kinds = [("gpu", 0), (None, 0), (3, 0), ("cpu", 1)]
    for kind, index in [*kinds, *(("cuda", index) for index in (-1, 2**31, 2**70, 0.5, None))]:
        with pytest.raises(DeviceError) as error:
            Device(kind, index)
        wanted = "('cpu', 0) or ('cuda', an index from 0 to 2147483647)"
        assert str(error.value) == f"Device: wanted {wanted}, got ({kind!r}, {index})"
    with pytest.raises(DeviceError, match=r"got \('cuda', 1099511627776\)"):
        Accelerator(2**40)


@needs_no_gpu
def test_no_driver_is_an_error_never_a_run_on_the_cpu():
    wanted = r"cuda: wanted the NVIDIA driver's libcuda\.so\.1, but it could not be opened"
    assert _core.cuda_info()["devices"] == []
    for attempt in (
        lambda: InferenceSession(devices=[Accelerator()]),
        lambda: InferenceSession(devices=[Accelerator(), CPU()]),
        lambda: Buffer("float32", (2,), Accelerator()),
        lambda: Buffer("float32", (2,)).to(Accelerator()),
    ):
        with pytest.raises(DeviceError, match=wanted):
            attempt()


def test_cpu_info():
    info = _core.cpu_info()
    assert info["cores"] >= 1
    assert list(info["missing"]) == ["sapphirerapids", "cooperlake", "x86-64-v4", "x86-64-v3"]
    assert info["amx"] is (not any(m.startswith("amx") for m in info["missing"]["sapphirerapids"]))


def test_no_feature_is_missing_that_linux_lists():
    """It lists what the CPU has and the kernel enabled, under names with other dashes."""
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
    there = {flag.replace("_", "") for flag in flags.split()}
    for missing in _core.cpu_info()["missing"].values():
        names = {text.partition(" ")[0].replace("-", "") for text in missing}
        assert not names & there


def test_an_artifact_outlives_its_file(make, session, tmp_path, four):
    path = tmp_path / "m.heddle"
    make("double").save(path)
    artifact = Artifact.load(path)
    model = session.load(artifact)
    path.unlink()
    del artifact
    np.testing.assert_array_equal(model.execute(four)[0].to_numpy(), 2 * four)


def test_threads_may_be_any_integer(make):
    """NumPy's too; fractions are refused."""
    model = InferenceSession(threads=np.int64(2)).load(make("double"))
    (y,) = model.execute(np.ones(3, np.float32))
    assert y.to_numpy().tolist() == [2, 2, 2]
    with pytest.raises(InputError, match=r"wanted threads from 0 to 65536, got 2\.5"):
        InferenceSession(threads=2.5)
