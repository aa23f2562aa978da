"""Texts that are no Unicode: lone surrogates, as Python has them for bytes that are no UTF-8."""

import re
from pathlib import Path

import numpy as np
import pytest

from heddle.runtime import Artifact, Buffer, Device, replay
from heddle.runtime.errors import DeviceError, InputError

TEXT = "\ud800"
SHOWN = r"\\ud800"
BINDINGS = Path(__file__).parents[2] / "runtime" / "src" / "bindings"


class Named:
    name = TEXT

    def __repr__(self):
        return TEXT


class Refusing:
    def __dlpack__(self, **options):
        raise BufferError(TEXT)

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Buffer(TEXT, (1,)),
        lambda: Buffer(Named(), (1,)),
        lambda: Buffer("int8", Named()),
        lambda: Buffer("int8", (Named(),)),
        lambda: Buffer("int8", (1,), Named()),
        lambda: Buffer.from_numpy(np.ones(2), dtype=TEXT),
        lambda: Buffer.from_dlpack(Named()),
        lambda: Buffer.from_dlpack(Refusing()),
        lambda: Buffer("int8", (1,)).__dlpack__(max_version=Named()),
        lambda: Artifact.load(Named()),
        lambda: Artifact.from_bytes(b"", copy=Named()),
        lambda: replay([Named()]),
        lambda: Device(TEXT),
    ],
)
def test_a_text_that_is_no_unicode_is_shown_by_its_escapes(ask):
    with pytest.raises((InputError, DeviceError), match=SHOWN):
        ask()


def test_arguments_of_a_call(make, session):
    model = session.load(make("double"))
    x = np.ones(4, np.float32)
    for options in ({"out": Named()}, {"out": [Refusing()]}):
        with pytest.raises(InputError, match=SHOWN):
            model.execute(x, **options)
    with pytest.raises(InputError, match=r"^input 'x': DLPack: wanted a tensor, .*: " + SHOWN):
        model.execute(Refusing())
    with pytest.raises(InputError, match=r"^weights: wanted names that are texts, got " + SHOWN):
        session._session.load(model.artifact, {Named(): x})


def test_bindings_take_no_text_of_python_as_it_lies():
    """`c_str()` of such a text is null: `text_of` is the one way."""
    taken = re.compile(r"nb::(str|repr|inst_name)\b.*\.c_str\(\)|cast<nb::str>\(.*\.c_str\(\)")
    for path in sorted(BINDINGS.glob("*.cc")):
        found = [line for line in path.read_text().splitlines() if taken.search(line)]
        assert [line for line in found if "artifact.size_text" not in line] == [], path.name
