"""rotate_and_write: what it turns and writes, what it leaves alone, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import ragged_batches as ragged
from native import ARCHS, run

from heddle.kernels.registry import find
from heddle.kernels.spec import Operand

ROWS = ([1, 0, 6, 3], [7, 2, 6, 30])
CASES = {
    "halves": ragged.rotating(),
    "neighbours": ragged.rotating(size=40, interleaved=True),
    "odd halves": ragged.rotating(size=22, key_heads=1),
    "rounded to bfloat16": ragged.rotating(cache="bfloat16"),
    "bfloat16": ragged.rotating("bfloat16", interleaved=True),
    "rounded to 8 bits": ragged.rotating(cache="float8_e4m3fn", size=64),
    "a part": ragged.rotating(size=64, part=48),
    "a part that is no whole vector, neighbours": ragged.rotating(
        cache="bfloat16", size=40, part=14, interleaved=True
    ),
}


def untouched(spec, arrays):
    """The arrays with caches full of one byte, which is how outputs start."""
    return [np.full(a.nbytes, 0xA5, np.uint8).view(a.dtype).reshape(a.shape) for a in arrays[:2]]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
def test_a_step(name, arch):
    spec = CASES[name]
    dims, arrays = ragged.rotation(spec, *ROWS)
    wanted = ragged.rotated(spec, [*untouched(spec, arrays), *arrays[2:]])
    (whole, status), (parts, _) = (run(spec, arrays, dims, arch, c) for c in ((), (0.3, 0.8)))
    assert status.tolist() == [0, 0, 0, 0]
    step = {"float32": 1e-6, "bfloat16": 2**-8, "float8_e4m3fn": 2**-3}[spec.result.dtype]
    word = np.dtype(f"u{arrays[0].itemsize}")
    for found, again, exact in zip(whole, parts, wanted, strict=True):
        assert found.tobytes() == again.tobytes()
        left = exact.view(word) == int.from_bytes(b"\xa5" * word.itemsize, "little")
        np.testing.assert_array_equal(found.view(word)[left], exact.view(word)[left])
        found, exact = (np.nan_to_num(x.astype(np.float32)) for x in (found, exact))
        np.testing.assert_allclose(found, exact, rtol=step, atol=1e-6)
    assert whole[1].tobytes() == wanted[1].tobytes()  # values are copied


@pytest.mark.parametrize(
    ("place", "value", "status"),
    [
        ((-3, 2), 10, [2, 10, 9, 2]),
        ((-2, 1), 21, [1, 21, 21, 0]),
        ((-1, (1, 2)), 99, [1, 99, 6, 0]),
        ((-2, 1), 4, [1, -1, 4, 0]),
    ],
)
def test_what_is_wrong_is_reported(place, value, status):
    """And nothing outside is read or written: every buffer ends where memory ends."""
    spec = CASES["halves"]
    dims, arrays = ragged.rotation(spec, [2, 7], [6, 10])
    arrays[place[0]][place[1]] = value
    assert run(spec, arrays, dims)[1].tolist() == status


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_refusals(target):
    supports, spec = find("rotate_and_write", target).supports, CASES["halves"]
    key = spec.operands[2]

    def changed(number, operand):
        operands = (*spec.operands[:number], operand, *spec.operands[number + 1 :])
        return replace(spec, operands=operands)

    assert supports(spec) is None
    for wrong, reason in (
        (ragged.rotating("float64"), "wanted floats of up to 32 bits, rounded once, got float64"),
        (
            ragged.rotating("bfloat16", "float16"),
            "wanted floats of up to 32 bits, rounded once, got bfloat16",
        ),
        (
            changed(3, replace(key, dtype="int8")),
            "wanted values like keys, in caches of one type, got Operand(dtype='int8'",
        ),
        (
            changed(2, replace(key, shape=("d0", 2, "d9"))),
            "wanted a static, even head size, got d9",
        ),
        (
            changed(5, Operand("float32", ("d0", 2, 16))),
            "wanted a row of the tables for each token, got ('d0', 2, 16)",
        ),
        (
            ragged.rotating(part=34),
            "wanted a row of the tables for each token, got ('d0', 1, 17)",
        ),
        (
            changed(4, replace(spec.operands[4], shape=("d0", 6, 64))),
            "wanted queries of the tokens and the size of keys, got ('d0', 6, 64)",
        ),
    ):
        assert supports(wrong).startswith(reason)
