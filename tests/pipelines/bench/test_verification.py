"""Results that are wrong in ways that a bench could overlook."""

import numpy as np
import pytest

from heddle.graph import DType
from heddle.pipelines.bench import candidates, case, workloads
from heddle.pipelines.bench.accuracy import error_of
from heddle.pipelines.bench.case import Case, run
from heddle.pipelines.bench.verification import Verification
from heddle.runtime import CPU, InferenceSession

SIZES = {"m": 6, "n": 40}


def prepared(name, dtype="float32", cache="warm", **sizes):
    """A case, its operands and Heddle's own calls."""
    found = Case(name, {**SIZES, **sizes}, dtype, cache=cache, verify=True, max_time=0.001)
    ready = case.prepare(found, workloads.find(name), DType[dtype], CPU())
    session = InferenceSession(threads=1)
    return found, ready, session, case.heddle_calls(ready, case.load(found, ready, session))


def verified(found, ready, session, calls, name="heddle"):
    return Verification(found, ready, session).row(name, calls)


def after(calls, ready, change):
    """The calls, after each of which `change` is made to the elements that it wrote."""

    def made(call, out):
        def run():
            result = call()
            change(out.to_numpy())
            return result

        return run

    return [made(call, out) for call, out in zip(calls, ready.outputs, strict=True)]


def test_what_is_right_is_ok():
    found, ready, session, calls = prepared("exp")
    row = verified(found, ready, session, calls)
    assert 0 <= row["max_error"] <= row["tolerance"]
    assert "status" not in row


def test_long_sums_may_be_off_by_more():
    """The last of a running sum is one of as many terms as the axis has."""
    found, ready, session, calls = prepared("cumsum", m=2, n=1 << 17, axis=1)
    row = verified(found, ready, session, calls)
    assert 0 < row["max_error"] <= row["tolerance"] < 2e-3
    assert "status" not in row


@pytest.mark.parametrize("name", ["exp", "less", "argmax"])
def test_a_kernel_that_writes_nothing_is_wrong(name):
    sizes = {"axis": 1} if name == "argmax" else {}
    found, ready, session, calls = prepared(name, **sizes)
    calls[0]()  # the right answer is there already
    row = verified(found, ready, session, [lambda: None])
    assert row["status"] == "wrong"


def test_rows_that_are_left_out_are_found_even_where_zero_is_right():
    found, ready, session, calls = prepared("relu")
    for array in ready.arrays:
        array[...] = -1  # the result is zeros, as fresh memory is
    sets = [[case.data.buffer_of(a, DType.float32) for a in ready.arrays]]
    ready = case.Prepared(ready.workload, ready.dtype, ready.arrays, sets, ready.outputs)
    calls = case.heddle_calls(ready, case.load(found, ready, session))
    kept = ready.outputs[0].to_numpy()

    def half():
        before = kept[3:].copy()
        calls[0]()
        kept[3:] = before

    assert "status" not in verified(found, ready, session, calls)
    assert verified(found, ready, session, [half])["status"] == "wrong"


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_one_element_is_enough(value):
    found, ready, session, calls = prepared("exp")

    def spoil(out):
        out[2, 7] = value

    assert verified(found, ready, session, after(calls, ready, spoil))["status"] == "wrong"


def test_errors_of_some_hundred_roundings_are_wrong():
    found, ready, session, calls = prepared("exp")

    def scale(out):
        out *= np.float32(1 + 300 * 2.0**-23)

    assert verified(found, ready, session, after(calls, ready, scale))["status"] == "wrong"


def test_the_last_set_is_checked_too():
    found, ready, session, calls = prepared("exp", cache="cold")
    assert len(calls) > 2
    calls[-1] = lambda: None
    assert verified(found, ready, session, calls)["status"] == "wrong"


def test_a_peer_may_be_wrong():
    found, ready, session, _ = prepared("exp")
    row = verified(found, ready, session, [lambda: None], "numpy")
    assert row["max_error"] > row["tolerance"]
    assert "status" not in row


def test_a_candidate_of_a_tuning_does_not_pass_on_what_another_one_wrote(monkeypatch):
    right = case.heddle_calls
    made = []

    def calls(*given):
        made.append(right(*given))
        return made[-1] if len(made) == 1 else [lambda: None] * len(made[-1])

    monkeypatch.setattr(candidates, "heddle_calls", calls)
    found = Case("transpose", SIZES, verify=True, max_time=0.001)
    default, other = candidates.run(found, [{}, {}])
    assert default["status"] == "ok"
    assert other["status"] == "wrong"
    assert other["turns_us"] == []


def test_a_kernel_that_stops_while_it_is_timed_is_wrong(monkeypatch):
    right = case.heddle_calls

    def calls(*given):
        (call,), left = right(*given), iter(range(20))
        return [lambda: call() if next(left, None) is not None else None]

    monkeypatch.setattr(case, "heddle_calls", calls)
    monkeypatch.setattr(candidates, "heddle_calls", calls)
    found = Case("exp", SIZES, verify=True, max_time=0.001)
    (row,) = run(found)
    assert row["status"] == "wrong"
    assert candidates.run(found, [{}])[0]["status"] == "wrong"


def test_infinities_hide_nothing():
    wanted = np.array([np.inf, 1.0, 2.0])
    assert error_of(wanted, wanted) == 0
    assert error_of(np.array([np.inf, 1.0, 3.0]), wanted) == pytest.approx(0.5)
    assert error_of(np.array([1e300, 1.0, 2.0]), wanted) == np.inf
    assert error_of(np.array([-np.inf, 1.0, 2.0]), wanted) == np.inf
    assert error_of(np.array([np.nan, 1.0, 2.5]), np.array([np.nan, 1.0, 2.0])) == 0.25
    assert error_of(np.ones((3, 1)), np.ones((1, 3))) == np.inf
