"""scatter on the emulator, and assembled."""

import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from emulator.memory import EmulatorError
from reference import evaluate
from scattered import operands, scattering

from heddle.kernels.cuda import _block, scatter
from heddle.kernels.registry import find

CASES = {
    "rows": scattering("float32", (), "d0", "d1", (12,)),
    "elements": scattering("int64", (), "d0", "d1", ()),
    "runs of elements": scattering("bfloat16", ("d2",), "d0", "d1", (), "max", "int32"),
    "sums": scattering("float32", ("d2",), "d0", "d1", ("d3",), "add"),
    "products": scattering("int8", (2,), "d0", "d1", (3,), "mul", "uint8"),
    "the least": scattering("float16", ("d2",), "d0", "d1", (40,), "min"),
}


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("sizes", [(7, 5, 3, 40), (300, 9, 2, 9), (3, 0, 1, 1), (1, 2, 300, 33)])
@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name, sizes, shift):
    spec = CASES[name]
    dims = dict(zip(("d0", "d1", "d2", "d3"), sizes, strict=True))
    arrays = operands(spec, dims)
    (found,), status = run(spec, arrays, dims, shift, prepared=True)
    assert status == [0, 0, 0, 0]
    np.testing.assert_array_equal(found, evaluate(spec, dims, arrays)[0])


@pytest.mark.parametrize("reduce", ["none", "add"])
def test_more_updates_than_a_block_notes(reduce, monkeypatch):
    """All of them of one block, so that it works on them in between."""
    monkeypatch.setattr(scatter, "BLOCKS", 1)
    spec = scattering("float32", (), 5, "d0", (), reduce)
    count = 2 * scatter.NOTED + scatter.STEP + 3
    arrays = operands(spec, {"d0": count})
    arrays[2] = np.arange(count, dtype=np.float32)
    (found,), _ = run(spec, arrays, {"d0": count}, prepared=True)
    np.testing.assert_array_equal(found, evaluate(spec, {"d0": count}, arrays)[0])


def test_wide_rows():
    """Several blocks of columns, of which each takes all places."""
    spec = scattering("float32", (), 4, 6, (2 * scatter.COLUMNS + 5,))
    arrays = operands(spec)
    (found,), _ = run(spec, arrays, {}, prepared=True)
    np.testing.assert_array_equal(found, evaluate(spec, {}, arrays)[0])


def test_nothing_to_write_to():
    spec = scattering("float32", (2,), "d0", 3, (5,))
    arrays = [np.zeros((2, 0, 5), np.float32), np.zeros((2, 3), np.int64)]
    arrays.append(np.ones((2, 3, 5), np.float32))
    assert run(spec, arrays, {"d0": 0}, prepared=True)[0][0].size == 0


@pytest.mark.parametrize(("kind", "bad"), [("int64", -1), ("uint64", 2**64 - 1), ("int8", 4)])
def test_an_index_outside_is_reported_and_its_row_dropped(kind, bad):
    spec = scattering("float32", (2,), 4, 3, (5,), kind=kind)
    arrays = operands(spec)
    arrays[1][1, 2] = bad
    (found,), status = run(spec, arrays, {}, prepared=True)
    assert status == [3 if kind == "uint64" else 1, -1 if bad > 4 else bad, 4, 0]
    kept = [arrays[0], arrays[1][:, :2], arrays[2][:, :2]]
    shorter = scattering("float32", (2,), 4, 2, (5,), kind=kind)
    (wanted,), _ = run(shorter, kept, {}, prepared=True)
    np.testing.assert_array_equal(found[1], wanted[1])


def test_a_missing_barrier_is_caught(monkeypatch):
    """The one in front of the last work, behind those of running sums and of the work before."""
    barrier, calls = _block.barrier, iter(range(99))
    monkeypatch.setattr(_block, "barrier", lambda: next(calls) == 4 or barrier())
    spec = scattering("float32", (), 50, 70, ())
    with pytest.raises(EmulatorError, match="race"):
        run(spec, operands(spec), {}, prepared=True)


def test_refusals():
    spec = scattering("float16", (), 4, 3, (5,), "mul")
    assert find("scatter", "cuda").supports(spec) == "mul of float16, which is rounded once"


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name, arch):
    check_no_spills(CASES[name], arch)
