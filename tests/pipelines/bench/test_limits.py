"""The probes compute what they should, and limits are kept; no figure is tested for its size."""

import json

import numpy as np
import pytest

from heddle.graph.targets import native_level
from heddle.pipelines.bench import limits, machine, probes, runner
from heddle.runtime import Buffer, InferenceSession
from heddle.runtime._core import cpu_info

ARCHS = [arch for arch in limits.VECTORS if arch == "x86-64-v3" or native_level() != "x86-64-v3"]
SLICES, WORDS, REPEATS = 2, 192 * 3, 3


def run(kind, arch, results, dtype=np.int32, source=None):
    artifact = probes.artifact(kind, arch, SLICES, WORDS, REPEATS, results)
    x, y = Buffer("int32", (SLICES * WORDS,)), Buffer("int32", (results,))
    values = np.random.default_rng(3).integers(-(2**31), 2**31, SLICES * WORDS, np.int32)
    x.to_numpy()[...] = values if source is None else source
    y.to_numpy()[...] = 0
    model = InferenceSession(threads=2).load(artifact)
    model.execute(x, out=[y])
    return x.to_numpy().copy(), y.to_numpy().view(dtype)


@pytest.mark.parametrize("arch", ARCHS)
def test_read_reads_every_word_of_its_slice(arch):
    lanes = 16 if arch == "x86-64-v4" else 8
    x, y = run("read", arch, SLICES * REPEATS * lanes)
    wanted = np.bitwise_xor.reduce(x.reshape(SLICES, 1, -1, lanes), axis=2)
    found = y.reshape(SLICES, REPEATS, lanes)
    np.testing.assert_array_equal(found, np.broadcast_to(wanted, found.shape))


@pytest.mark.parametrize("kind", ["copy", "stream"])
@pytest.mark.parametrize("arch", ARCHS)
def test_copies(kind, arch):
    x, y = run(kind, arch, SLICES * WORDS)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("arch", ARCHS)
def test_multiply_adds(dtype, arch):
    lanes = (64 if arch == "x86-64-v4" else 32) // np.dtype(dtype).itemsize
    source = np.full(SLICES * WORDS * 4 // np.dtype(dtype).itemsize, 0.5, dtype).view(np.int32)
    _, y = run(dtype, arch, SLICES * REPEATS * 16, dtype, source)
    # x -> x / 2 + 1 / 2 comes closer to 1 with each of the many steps.
    found = y[: SLICES * REPEATS * lanes]
    np.testing.assert_allclose(found, probes.CHAINS, rtol=1e-6)


@pytest.mark.parametrize(("product", "opcode"), [("tdpbf16ps", 0x5C), ("tdpbssd", 0x5E)])
@pytest.mark.parametrize("place", ["registers", "memory"])
def test_probes_of_tiles_have_their_four_products(product, opcode, place):
    data = probes.code(f"{product} from {place}", "sapphirerapids").data
    # VEX.128, map 0F38: tmm0 to tmm3 from tmm4 or tmm5 and tmm6 or tmm7 (Intel SDM, volume 2).
    third = {0x5C: (0x4A, 0x42), 0x5E: (0x4B, 0x43)}[opcode]
    pairs = [(third[n % 2], 0xC4 + n // 2 + 8 * n) for n in range(4)]
    wanted = [bytes([0xC4, 0xE2, vvvv, opcode, modrm]) for vvvv, modrm in pairs]
    assert [data.count(code) for code in wanted] == [1, 1, 1, 1]


@pytest.mark.parametrize(("product", "opcode"), [("vdpbf16ps", 0x52), ("vpdpbusd", 0x50)])
def test_probes_of_dot_products_have_one_for_each_chain(product, opcode):
    data = probes.code(product, "cooperlake").data
    # EVEX, map 0F38, registers alone: the opcode is the fifth byte (Intel SDM, volume 2).
    prefixes = [at for at, byte in enumerate(data[:-5]) if byte == 0x62]
    found = [at for at in prefixes if data[at + 4] == opcode and data[at + 5] >= 0xC0]
    assert len(found) == probes.DOT_CHAINS


@pytest.mark.skipif(bool(cpu_info()["missing"]["cooperlake"]), reason="there are no dot products")
@pytest.mark.parametrize(
    ("product", "source", "dtype", "step"),
    [("vdpbf16ps", 0x3F003F00, np.float32, 2 * 0.25), ("vpdpbusd", 0x02020202, np.int32, 4 * 4)],
)
def test_probes_of_dot_products_compute_them(product, source, dtype, step):
    _, y = run(product, "cooperlake", SLICES * REPEATS * 16, dtype, source)
    np.testing.assert_array_equal(y, step * WORDS * probes.DOT_CHAINS)


@pytest.mark.skipif(bool(cpu_info()["missing"]["sapphirerapids"]), reason="there is no AMX")
def test_probes_of_tiles_compute_products():
    artifact = probes.artifact("tdpbf16ps from memory", "sapphirerapids", 1, 4096, 1, probes.TILE)
    x, y = Buffer("int32", (4096,)), Buffer("int32", (probes.TILE,))
    x.to_numpy()[...] = limits.HALVES
    InferenceSession(threads=1).load(artifact).execute(x, out=[y])
    # Four steps, each of 32 products of one half by one half.
    np.testing.assert_array_equal(y.to_numpy().view(np.float32), 4 * 32 * 0.25)


@pytest.mark.skipif(bool(cpu_info()["missing"]["sapphirerapids"]), reason="there is no AMX")
def test_tiles_have_limits(monkeypatch):
    monkeypatch.setattr(limits, "RUNS", 1)
    assert min(limits.measure_tiles(1).values()) > 0


def test_a_measurement_has_every_limit(monkeypatch):
    monkeypatch.setattr(limits, "RUNS", 1)
    monkeypatch.setattr(limits, "RUN_S", 1e-5)
    monkeypatch.setattr(limits, "PAUSE_S", 0)
    monkeypatch.setattr(limits, "MEMORY", 2**20)
    levels = [machine.Level("L1", 32768, 1), machine.Level("L2", 65536, 2)]
    monkeypatch.setattr(machine, "caches", lambda: levels)
    found = limits.measure(2)
    assert found["threads"] == 2
    assert list(found["read_gb_s"]) == list(found["copy_gb_s"]) == ["L1", "L2", "memory"]
    vectors = [limits.VECTORS[arch] for arch in ARCHS]
    kinds = [f"{vector} {dtype}" for vector in vectors for dtype in ("float32", "float64")]
    if not cpu_info()["missing"]["cooperlake"]:
        kinds += ["AVX-512 bfloat16", "AVX-512 int8"]
    assert list(found["tflop_s"]) == kinds
    figures = [*found["read_gb_s"].values(), *found["copy_gb_s"].values(), found["call_us"]]
    assert min(*figures, *found["tflop_s"].values()) > 0
    assert json.loads(json.dumps(found)) == found


class Clock:
    """A clock that only sleeping and working moves."""

    now = 0.0

    def monotonic(self):
        return self.now

    perf_counter = monotonic

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(("spread", "slower"), [(False, 4), (True, 1)])
def test_a_slow_second_is_waited_for(spread, slower, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)

    def run(repeats):
        return lambda: clock.sleep(repeats * 1e-4 * (4 if clock.now < 1 else 1))

    seconds, repeats = limits._fastest(run, spread)
    assert seconds / repeats == pytest.approx(slower * 1e-4)
    assert repeats == limits.RUN_S / 4e-4
    assert clock.now < limits.SPREAD_S + 1


def test_working_sets(monkeypatch):
    levels = [machine.Level("L1", 40_000, 1), machine.Level("L3", 200_000, 2)]
    monkeypatch.setattr(machine, "caches", lambda: levels)
    assert limits.working_sets(1) == {"L1": 30_000, "L3": 150_000, "memory": 2**26}
    assert limits.working_sets(2) == {"L1": 30_000, "L3": 75_000, "memory": 2**25}
    levels[1] = machine.Level("L3", 2**25, 2)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(8)))
    # Eight threads find the last cache four times.
    assert limits.working_sets(8)["memory"] * 8 == 4 * 4 * 2**25
    # No more of it than drops out of the first one: it may be shared with other machines.
    assert limits.working_sets(8)["L3"] == 4 * 40_000
    monkeypatch.setattr(machine, "caches", list)
    assert limits.working_sets(1) == {"memory": 2**26}


LIMITS = {
    "read_gb_s": {"memory": 1.0},
    "copy_gb_s": {"memory": 1.0},
    "tflop_s": {},
    "call_us": 1.0,
    "others_share": 0.0,
}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Threads of requests that reach the child; it answers with `LIMITS` and rising bandwidth.

    Tiles, which a machine with AMX is asked for too, have no limits.
    """
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path))
    requests = []

    def ask(request, seconds):
        if "tiles" in request:
            return {}
        requests.append(request["limits"])
        rate = {"memory": float(len(requests))}
        return {**LIMITS, "threads": request["limits"], "read_gb_s": rate}

    monkeypatch.setattr(runner, "ask", ask)
    return requests


def test_limits_are_measured_once(asked):
    first = limits.of(1)
    assert limits.of(1) == first
    limits.of(2)
    assert limits.of(1) == first
    assert asked == [1, 2]
    assert sorted(limits.known()) == [1, 2]


def test_measured_again_the_better_figures_count(asked):
    limits.of(1)
    assert limits.of(1, again=True)["read_gb_s"] == {"memory": 2.0}
    assert limits.known()[1]["read_gb_s"] == {"memory": 2.0}


def test_a_disturbed_measurement_is_repeated(asked, monkeypatch):
    monkeypatch.setitem(LIMITS, "others_share", 0.5)
    limits.of(1)
    assert not limits.settled(limits.known()[1])
    limits.of(1)
    assert asked == [1, 1]
    monkeypatch.setitem(LIMITS, "others_share", 0.0)
    limits.of(1)
    assert limits.settled(limits.known()[1])
    limits.of(1)
    assert asked == [1, 1, 1]


def test_where_others_are_always_busy_limits_are_settled_after_some_tries(asked, monkeypatch):
    monkeypatch.setitem(LIMITS, "others_share", 0.5)
    for _ in range(limits.MOST_MEASURED + 1):
        limits.of(1)
    assert asked == [1] * limits.MOST_MEASURED
    limits.of(1, again=True)
    assert len(asked) == limits.MOST_MEASURED + 1


def test_damaged_or_older_files_are_no_limits(asked):
    limits.of(1)
    for text in ("{", "[]", '{"schema": 0, "limits": []}', '{"schema": 1, "limits": [{}]}'):
        limits.path().write_text(text)
        assert limits.known() == {}


def test_without_a_cache_nothing_is_kept(asked, monkeypatch):
    monkeypatch.setenv("HEDDLE_CACHE", "off")
    limits.of(1)
    limits.of(1)
    assert asked == [1, 1]


def test_a_cache_that_cannot_be_written_costs_a_warning(asked, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("HEDDLE_CACHE", str(file))
    with pytest.warns(limits.LimitsWarning, match=r"limits: .*; they are not kept"):
        assert limits.of(1)["threads"] == 1
