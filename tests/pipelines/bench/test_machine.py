"""What a row says about its machine, from files as Linux writes them."""

import json
import os

import pytest

from heddle.pipelines.bench import datasheet, machine


@pytest.fixture
def cpus(tmp_path):
    core = min(os.sched_getaffinity(0))
    rows = [
        ("1", "Data", "48K", str(core)),
        ("1", "Instruction", "32K", str(core)),
        ("3", "Unified", "32M", "0-127"),
        ("2", "Unified", "1024K", f"{core}"),
    ]
    for index, (level, kind, size, cores) in enumerate(rows):
        folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(level + "\n")
        (folder / "type").write_text(kind + "\n")
        (folder / "size").write_text(size + "\n")
        (folder / "shared_cpu_list").write_text(cores + "\n")
    return tmp_path


def test_caches(cpus):
    usable = len(os.sched_getaffinity(0))
    assert machine.caches(cpus) == [
        machine.Level("L1", 48 * 1024, 1),
        machine.Level("L2", 1024 * 1024, 1),
        machine.Level("L3", 32 * 2**20, usable),
    ]


def test_the_last_cache_is_that_of_all_groups_of_cores(monkeypatch):
    levels = [machine.Level("L2", 2**20, 1), machine.Level("L3", 2**25, 4)]
    monkeypatch.setattr(machine, "caches", lambda: levels)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(10)))
    assert [machine.last_cache(threads) for threads in (1, 2, 10)] == [2**25, 2**26, 3 * 2**25]
    monkeypatch.setattr(machine, "caches", list)
    assert machine.last_cache(2) == 0


def test_no_caches_where_linux_names_none(tmp_path):
    assert machine.caches(tmp_path) == []


def test_cpu_fields(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("vendor_id\t: X\nmodel name\t: Y 1: 2\n\nvendor_id\t: Z\n")
    assert machine.cpu_fields(path) == {"vendor_id": "X", "model name": "Y 1: 2"}


def test_the_description_is_plain_data():
    here = machine.describe()
    assert json.loads(json.dumps(here)) == here
    assert here["cores"] == len(os.sched_getaffinity(0))
    assert set(here["sources"]) == {"cpu", "cuda"}


def test_limits_belong_to_the_cores_that_are_used_and_what_they_can_do(monkeypatch):
    here = machine.host_key()
    assert here == machine.host_key()
    monkeypatch.setattr(machine, "cpu_fields", lambda: {"flags": "avx2"})
    narrow = machine.host_key()
    assert narrow != here
    keys = set()
    for cores in ({100, 101}, {100, 102}):  # as many
        monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _, cores=cores: cores)
        keys.add(machine.host_key())
    assert len(keys | {narrow}) == 3


def test_the_share_of_others(tmp_path, monkeypatch):
    cores = sorted(os.sched_getaffinity(0))
    ticks = os.sysconf("SC_CLK_TCK")
    clock = iter([100.0, 110.0])
    monkeypatch.setattr(machine.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(machine.Others, "_own", staticmethod(iter([1.0, 3.0]).__next__))
    stat = tmp_path / "stat"

    def write(seconds):
        lines = [f"cpu{core} {int(seconds * ticks)} 0 0 9 9 0 0 0 0 0\n" for core in cores]
        stat.write_text("cpu 1 1 1 1 1 1 1 1 0 0\n" + "".join(lines) + "intr 1\n")

    write(50)
    others = machine.Others(stat)
    write(54)
    # Of ten seconds on each core four were busy, two of all of them with our own work.
    assert others.share() == pytest.approx((4 * len(cores) - 2) / (10 * len(cores)))


def test_datasheets():
    def of(vendor, family, model):
        fields = {"vendor_id": vendor, "cpu family": family, "model": model}
        return datasheet.of(fields)

    assert of("GenuineIntel", "6", "143").name == "Sapphire Rapids"
    assert of("AuthenticAMD", "26", "2").name == "Turin"
    assert of("AuthenticAMD", "25", "17").operations["AVX-512 float32"] == 32
    assert of("GenuineIntel", "6", "1") is None
    assert datasheet.of({}) is None
