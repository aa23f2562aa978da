"""What no program does on purpose: methods on other objects, objects that were never made."""

import subprocess
import sys

import numpy as np
import pytest

from heddle.runtime import (
    Artifact,
    Buffer,
    DeviceError,
    InferenceSession,
    InputError,
    Model,
    _core,
    replay,
)

METHODS = {
    "to": lambda value: Buffer.to(value, Buffer("int8", ()).device),
    "to_numpy": Buffer.to_numpy,
    "item": Buffer.item,
    "__array__": Buffer.__array__,
    "__dlpack__": Buffer.__dlpack__,
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_buffer_wants_a_buffer(name):
    for value in (5, np.zeros(3), None, Buffer.__new__(Buffer)):
        with pytest.raises(TypeError):
            METHODS[name](value)


def test_objects_that_were_never_made_are_refused(doubler, four):
    unmade = Model.__new__(Model)
    for attempt in (
        lambda: unmade.execute(four),
        lambda: unmade(four),
        lambda: doubler.execute(Buffer.__new__(Buffer)),
        lambda: doubler.execute(four, out=[Buffer.__new__(Buffer)]),
        lambda: replay([(unmade, (four,), (four,))]),
    ):
        with pytest.raises((TypeError, InputError)):
            attempt()


def test_replay_keeps_what_a_sequence_makes_when_asked(make):
    double, session = make("double"), InferenceSession(threads=1)
    before, alive = _core.live_objects(), {}

    class Calls:
        def __getitem__(self, number):
            alive.update(_core.live_objects())
            if number == 3:
                raise IndexError
            model = session.load(double)
            return model, (Buffer("float32", (4,)),), (Buffer("float32", (4,)),)

    with pytest.raises(DeviceError, match="wanted models on a CUDA device"):
        replay(Calls())
    assert alive["models"] - before["models"] == 3
    assert alive["storages"] - before["storages"] == 3 * 3  # and the model's state


def test_a_path_that_is_not_utf8_is_refused_by_name(tmp_path):
    path = bytes(tmp_path) + b"/\xff.heddle"
    with pytest.raises(InputError, match=r"path: wanted one that is UTF-8, got b'/"):
        Artifact.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"data": 3},
        {"data": (None, False)},
        {"data": ()},
        {"shape": 4},
        {"shape": ("n",)},
        {"typestr": 4},
        {"version": "new"},
        {"strides": 3},
    ],
    ids=str,
)
def test_a_malformed_cuda_array_interface_is_refused(doubler, changes):
    plain = {"version": 3, "data": (0, False), "shape": (4,), "typestr": "<f4"}

    class Array:
        __cuda_array_interface__ = plain | changes

    with pytest.raises(InputError, match=r"wanted a __cuda_array_interface__ of its form, got \{"):
        doubler.execute(Array())


@pytest.mark.parametrize("missing", ["version", "data", "shape", "typestr"])
def test_a_cuda_array_interface_without_a_field_is_refused(doubler, missing):
    plain = {"version": 3, "data": (0, False), "shape": (4,), "typestr": "<f4"}
    del plain[missing]

    class Array:
        __cuda_array_interface__ = plain

    with pytest.raises(InputError, match=r"wanted a __cuda_array_interface__ of its form, got \{"):
        doubler.execute(Array())


def test_another_interpreter_of_the_process_is_refused():
    """Threads of such an interpreter cannot come back into it from the runtime."""
    interpreters = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    code = f"""
import {interpreters} as interpreters
made = interpreters.create()
result = interpreters.run_string(made, "import heddle.runtime._core")
assert result is None, result
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "the main interpreter" in done.stderr or "subinterpreters" in done.stderr, done.stderr
