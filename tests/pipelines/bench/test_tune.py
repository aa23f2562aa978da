"""`heddle bench tune`: the search over scripted children, and one real child."""

import json
from dataclasses import replace

import numpy as np
import pytest

from heddle.graph.targets import native_cpu
from heddle.kernels import tuning
from heddle.kernels.registry import find
from heddle.pipelines.bench import candidates, tune
from heddle.pipelines.bench.case import Case
from heddle.pipelines.bench.runner import ChildError
from heddle.runtime.errors import DeviceError, InputError

SIZES = {"m": 100, "n": 70}


def problem(**changes):
    (found,) = tune.problems(Case("transpose", SIZES, **changes))
    return found


class Child:
    """Answers with a time for each candidate; `fate` may end it or fail a candidate."""

    def __init__(self, times, fate=lambda values: "ok"):
        self.times, self.fate, self.asked = times, fate, []

    def __call__(self, request, seconds):
        ahead = [candidate["transpose"]["ahead"] for candidate in request["candidates"]]
        self.asked.append((ahead, request["case"]["verify"]))
        rows = []
        for value in ahead:
            status = self.fate(value)
            if status in ("crashed", "hung"):
                raise ChildError(status, "gone")
            time = self.times.get(value, 100.0)
            turns = [time + noise / 10 for noise in range(12)] if status == "ok" else []
            rows.append({"status": status, "turns_us": turns, "message": "why"})
        return rows


def searched(child, found=None):
    return list(tune.search(found or problem(), 1.0, child))


def test_the_problem_of_a_case():
    found = problem()
    assert (found.kernel.op, found.default) == ("transpose", {"ahead": 64})
    assert [values["ahead"] for values in found.others] == [0, 32, 128, 256]
    assert found.kernel.space.shape_class(found.spec) == {"rows": 128, "columns": 128}


def test_a_case_whose_kernels_have_no_parameters():
    wanted = r"exp: its kernels have no parameters; those of .*transpose.* have"
    with pytest.raises(InputError, match=wanted):
        tune.problems(Case("exp", {"m": 8, "n": 8}))


def test_the_better_half_goes_on_and_the_last_are_verified(monkeypatch):
    monkeypatch.setattr(tune, "FINALISTS", 1)
    child = Child({0: 90.0, 32: 80.0, 128: 70.0, 256: 110.0})
    rounds = searched(child)
    assert [[result.values["ahead"] for result in results] for results in rounds] == [
        [128, 32, 0, 256],
        [128, 32],
        [128],
    ]
    assert child.asked == [
        ([64, 0, 32, 128, 256], False),
        ([64, 128, 32], False),
        *[([64, 128], True), ([128, 64], True)] * 2,
        ([64, 128], True),
    ]
    assert rounds[-1][0].ratios == pytest.approx([0.7] * tune.PROCESSES, rel=0.01)
    assert tune.winner(problem(), rounds[-1]) == {"ahead": 128}


@pytest.mark.parametrize("time", [99.0, 100.0, 120.0])
def test_the_default_stays_unless_one_is_clearly_better(time):
    rounds = searched(Child(dict.fromkeys((0, 32, 128, 256), time)))
    assert tune.winner(problem(), rounds[-1]) == {"ahead": 64}


def test_a_candidate_has_to_win_in_every_process():
    class Lucky(Child):
        def __call__(self, request, seconds):
            self.times = {32: 50.0} if len(self.asked) < tune.PROCESSES else {32: 99.0}
            return super().__call__(request, seconds)

    last = searched(Lucky({}))[-1]
    (result,) = [result for result in last if result.values == {"ahead": 32}]
    assert result.ratio < 0.6
    assert tune.winner(problem(), last) == {"ahead": 64}


def test_what_differs_from_process_to_process_does_not_win():
    """All are equal, but in each process each is off by 2%, as where memory lies does it."""
    random = np.random.default_rng(0)

    class Equal(Child):
        def __call__(self, request, seconds):
            values = (64, 0, 32, 128, 256)
            self.times = dict(zip(values, 100 * np.exp(random.normal(0, 0.02, 5)), strict=True))
            return super().__call__(request, seconds)

    found, child = problem(), Equal({})
    chosen = [tune.winner(found, searched(child, found)[-1]) for _ in range(100)]
    assert chosen.count({"ahead": 64}) >= 98


def test_a_candidate_that_is_wrong_does_not_win():
    child = Child({0: 10.0, 32: 50.0}, lambda value: "wrong" if value == 0 else "ok")
    rounds = searched(child)
    assert rounds[0][-1].status == "wrong"
    assert rounds[0][-1].turns == ()
    assert tune.winner(problem(), rounds[-1]) == {"ahead": 32}


@pytest.mark.parametrize("status", ["crashed", "hung"])
def test_a_crash_is_that_of_one_candidate(status):
    child = Child({32: 50.0}, lambda value: status if value == 128 else "ok")
    first = searched(child)[0]
    assert {result.values["ahead"]: result.status for result in first} == {
        **dict.fromkeys((0, 32, 256), "ok"),
        128: status,
    }
    assert tune.winner(problem(), first) == {"ahead": 32}


def test_a_default_that_fails_ends_the_search():
    with pytest.raises(InputError, match="transpose: the default: why"):
        searched(Child({}, lambda value: "wrong" if value == 64 else "ok"))


def test_the_table_that_is_kept(tmp_path):
    found = problem()
    (path,) = tune.keep(found, {"ahead": 128}, tmp_path)
    tune.keep(replace(found, spec=replace(found.spec, op="another")), {"ahead": 0}, tmp_path)
    (path,) = tune.keep(found, {"ahead": 256}, tmp_path)
    table = tuning.Table.read(path)
    assert (table.place, table.cpu) == (found.machine.arch, native_cpu())
    assert [(row.op, row.values) for row in table.rows] == [
        ("another", {"ahead": 0}),
        ("transpose", {"ahead": 256}),
    ]
    assert table.rows[1].sources == tuning.fingerprint(find("transpose", "cpu"))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    with tuning.using([table]):
        assert found.kernel.space.values(found.spec, found.machine) == {"ahead": 256}


def test_an_interrupt_leaves_the_old_table_whole(tmp_path, monkeypatch):
    found = problem()
    (path,) = tune.keep(found, {"ahead": 128}, tmp_path)
    before = path.read_text()

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tune.keep(found, {"ahead": 0}, tmp_path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_of_another_cpu_is_left_alone(tmp_path):
    path = tmp_path / "x86-64-v4.json"
    path.write_text(tuning.Table("x86-64-v4", "pentium4", "Pentium").to_json())
    with pytest.raises(InputError, match=r"tuned on pentium4 \(Pentium\), this is .*--output"):
        tune.table_at(path, "cpu")


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(tune, "cuda_info", lambda: {"devices": [], "problem": "no driver"})
    with pytest.raises(DeviceError, match="cuda: no driver"):
        tune.processor("cuda")
    gpu = {"capability": "9.0", "name": "a GPU"}
    monkeypatch.setattr(tune, "cuda_info", lambda: {"devices": [gpu], "problem": ""})
    assert tune.processor("cuda") == ("a GPU", "a GPU")
    assert tune.machine_of("cuda").arch == "sm_90a"


def test_candidates_are_compiled_timed_and_verified():
    case = Case("transpose", SIZES, verify=True, max_time=0.05)
    values = [{"transpose": {"ahead": ahead}} for ahead in (64, 0)]
    rows = candidates.run(case, values)
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert all(len(row["turns_us"]) >= 2 for row in rows)
    assert json.loads(json.dumps(rows)) == rows


def test_a_candidate_that_does_not_compile_or_is_wrong_is_not_timed(monkeypatch):
    case = Case("transpose", SIZES, verify=True, max_time=0.05)

    class Wrong(candidates.Verification):
        def row(self, *arguments):
            return {**super().row(*arguments), "status": "wrong", "max_error": 0.5}

    monkeypatch.setattr(candidates, "Verification", Wrong)
    (row,) = candidates.run(case, [{}])
    assert (row["status"], row["turns_us"]) == ("wrong", [])
    assert row["message"].startswith("wrong by 5.0e-01, allowed are ")

    def refuse(*arguments):
        raise DeviceError("no")

    monkeypatch.setattr(candidates, "load", refuse)
    (row,) = candidates.run(case, [{}])
    assert (row["status"], row["message"]) == ("error", "no")
