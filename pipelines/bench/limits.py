"""The limits of this machine: bandwidth of each level of memory, arithmetic, the cost of a call.

A limit is the best of many short runs: what the machine can do, not what it did on average. Those
of arithmetic and of memory are spread over seconds: a core may be slow for that long, where a
hardware thread beside it works for somebody else or where its power is short, and memory, where
other machines on the same host use it. Limits are measured once for each host and number of
threads, and kept in the cache folder.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from heddle.pipelines.bench import machine, runner
from heddle.pipelines.bench.machine import BUSY
from heddle.runtime import Buffer, InferenceSession, Model, config, whole_file
from heddle.runtime._core import cpu_info

SCHEMA = 3

Limits = dict[str, Any]
"""`threads` (of a GPU its name, `gpu`), `date`, and then `read_gb_s` and `copy_gb_s` by level
(`"L1"` to `"memory"`), `tflop_s` by instruction set and dtype (`"AVX-512 float32"`), `call_us`, an
`execute` of a kernel without work, and `others_share`, how much of the cores others had the least
of `measured` times."""

RUNS, RUN_S, MOST_S = 30, 2e-3, 1.0
PAUSE_S, TRIES, SPREAD_S = 0.05, 3, 6.0
MOST_MEASURED = 3
"""How often limits are measured where other processes disturb each time: some machines are never
without them."""

MEMORY = 64 * 2**20
"""The least bytes that count as memory."""

TILE_PRODUCTS = {"bfloat16": ("tdpbf16ps", 2 * 16 * 16 * 32), "int8": ("tdpbssd", 2 * 16 * 16 * 64)}
"""The instruction for each dtype of AMX, and its operations on full tiles."""

TILES_OF = {"float32": 6, "float16": 5}
"""How many products of bfloat16 make one of numbers that are sums of those: in tiles, products by
weights of these dtypes are computed so (`kernels/cpu/amx/float32.py`)."""

DOT_PRODUCTS = {"bfloat16": ("vdpbf16ps", 2 * 2), "int8": ("vpdpbusd", 2 * 4)}
"""The instruction for each dtype of AVX-512's dot products, and its operations in a lane."""

HALVES = 0x3F003F00
"""Every word of a probe's input: about 0.5 as float32, and a small number as float64."""

VECTORS = {"x86-64-v4": "AVX-512", "x86-64-v3": "AVX2"}
DOTS = "cooperlake"
"""The level that has dot products."""


def measure(threads: int) -> Limits:
    """Measures the limits of `threads` threads, in this process."""
    from heddle.graph.targets import native_level
    from heddle.kernels.registry import MACHINES
    from heddle.pipelines.bench import probes

    session, others = InferenceSession(threads=threads), machine.Others()
    best = "x86-64-v4" if native_level() != "x86-64-v3" else "x86-64-v3"
    result: Limits = {"threads": threads, "read_gb_s": {}, "copy_gb_s": {}, "tflop_s": {}}
    for name, size in working_sets(threads).items():
        far = name == "memory"
        kinds = ("copy", "stream") if far else ("copy",)
        result["read_gb_s"][name] = _bandwidth(session, "read", best, threads, size, far)
        rates = [_bandwidth(session, kind, best, threads, size // 2, far) for kind in kinds]
        result["copy_gb_s"][name] = max(rates)
    for arch in list(VECTORS)[list(VECTORS).index(best) :]:
        for dtype in ("float32", "float64"):
            lanes = MACHINES[arch].vector_bytes * 8 // int(dtype[-2:])
            rate = _arithmetic(session, dtype, arch, threads, 2 * lanes * probes.CHAINS)
            result["tflop_s"][f"{VECTORS[arch]} {dtype}"] = rate
    if MACHINES[native_level()].dots:
        for dtype, (product, operations) in DOT_PRODUCTS.items():
            step = 16 * operations * probes.DOT_CHAINS
            rate = _arithmetic(session, product, DOTS, threads, step)
            result["tflop_s"][f"AVX-512 {dtype}"] = rate
    result["call_us"] = 1e6 * _call(session, best)
    result["others_share"] = round(others.share(), 3)
    return result


def measure_tiles(threads: int) -> dict[str, float]:
    """TFLOP/s of AMX by dtype, from registers and with the operands in the second cache."""
    session, rates = InferenceSession(threads=threads), {}
    for dtype, (product, operations) in TILE_PRODUCTS.items():
        for place, size, note in (("registers", 2**18, ""), ("memory", resident(), " from L2")):
            rate = _tile_rate(session, f"{product} from {place}", size, threads, operations)
            rates[f"AMX {dtype}{note}"] = rate
    return rates


def resident() -> int:
    """Bytes of a thread's tiles that are in the second cache: half of what it holds."""
    return next((level.size for level in machine.caches() if level.name == "L2"), MEMORY) // 2


def working_sets(threads: int) -> dict[str, int]:
    """For each level the bytes that one thread works on: well inside of it, its share if shared.

    Four times the level before are enough, of which that keeps next to nothing. A cache that is
    nearly full is slower, and the last one may be shared with other machines on the same CPU.
    """
    found, before = {}, math.inf
    for level in machine.caches():
        sharing = max(1, min(threads, level.shared))
        found[level.name] = int(min(level.size * 3 // 4 // sharing, machine.PER_CACHE * before))
        before = level.size
    found["memory"] = max(MEMORY, machine.PER_CACHE * machine.last_cache(threads)) // threads
    return found


def _bandwidth(
    session: InferenceSession, kind: str, arch: str, threads: int, size: int, spread: bool
) -> float:
    """GB/s, reads and writes together, when each thread works on `size` bytes of its own."""
    from heddle.pipelines.bench import probes

    step = probes.CHAINS * 64
    words = max(size // step, 1) * step // 4
    moved = 4 * words * threads * (1 if kind == "read" else 2)

    def run(repeats: int) -> Callable[[], object]:
        tasks = threads * repeats
        results = tasks * 16 if kind == "read" else words * threads
        artifact = probes.artifact(kind, arch, threads, words, repeats, results)
        return _calls(session.load(artifact), threads * words, results)

    seconds, repeats = _fastest(run, spread)
    return moved * repeats / seconds / 1e9


def _arithmetic(
    session: InferenceSession, kind: str, arch: str, threads: int, operations: int
) -> float:
    """TFLOP/s of a probe of arithmetic in registers, of so many `operations` in a step."""
    from heddle.pipelines.bench import probes

    count = 4096
    total = operations * count * threads

    def run(repeats: int) -> Callable[[], object]:
        results = threads * repeats * 16
        artifact = probes.artifact(kind, arch, threads, count, repeats, results)
        return _calls(session.load(artifact), threads * count, results)

    seconds, repeats = _fastest(run, spread=True)
    return total * repeats / seconds / 1e12


def _tile_rate(
    session: InferenceSession, kind: str, size: int, threads: int, operations: int
) -> float:
    """TFLOP/s of a probe of tiles that goes through `size` bytes for each thread."""
    from heddle.pipelines.bench import probes

    steps = size // (4 * probes.TILES)
    words = steps * probes.TILES

    def run(repeats: int) -> Callable[[], object]:
        results = threads * repeats * probes.TILE
        artifact = probes.artifact(kind, "sapphirerapids", threads, words, repeats, results)
        return _calls(session.load(artifact), threads * words, results)

    seconds, repeats = _fastest(run, spread=True)
    return 4 * operations * steps * threads * repeats / seconds / 1e12


def _call(session: InferenceSession, arch: str) -> float:
    """Seconds of an `execute` whose kernel has no work."""
    from heddle.pipelines.bench import probes

    call = _calls(session.load(probes.artifact("copy", arch, 1, 192, 0, 192)), 192, 192)
    return min(_time(call, 1000) for _ in range(RUNS)) / 1000


def _calls(model: Model, words: int, results: int) -> Callable[[], object]:
    """`execute` with aligned buffers of its own."""
    x, y = Buffer("int32", (words,)), Buffer("int32", (results,))
    x.to_numpy()[...] = HALVES
    y.to_numpy()[...] = 0  # the pages exist before anything is timed
    out = [y]
    return lambda: model.execute(x, out=out)


def _fastest(run: Callable[[int], Callable[[], object]], spread: bool = False) -> tuple[float, int]:
    """The least time of a run, and the repeats with which one takes about `RUN_S`.

    Runs go on until `RUNS` of them in a row were no better by 1%, or for `MOST_S`. Where they are
    `spread`, `TRIES` runs count as one, each `PAUSE_S` after those before, for up to `SPREAD_S`.
    """
    call = run(1)
    call()
    repeats = max(1, round(RUN_S / min(_time(call, 1) for _ in range(5))))
    call = run(repeats)
    best, since = _time(call, 1), 0
    end = time.monotonic() + (SPREAD_S if spread else MOST_S)
    while since < RUNS and time.monotonic() < end:
        if spread:
            time.sleep(PAUSE_S)
        seconds = min(_time(call, 1) for _ in range(TRIES if spread else 1))
        since = 0 if seconds < 0.99 * best else since + 1
        best = min(best, seconds)
    return best, repeats


def _time(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - begin


# The limits that are kept


class LimitsWarning(UserWarning):
    """Limits were measured, but cannot be kept for the next time."""


def path() -> Path | None:
    """The file with the limits of this host, or None where the cache is off."""
    folder = config.cache_folder()
    return folder / "limits" / f"{machine.host_key()}.json" if folder else None


def known() -> dict[int | str, Limits]:
    """The limits that are kept, by number of threads, or by a GPU's name."""
    file = path()
    if file is None:
        return {}
    try:
        content = json.loads(file.read_text())
        rows = content["limits"] if content["schema"] == SCHEMA else []
        return {row.get("gpu") or row["threads"]: row for row in rows}
    except (OSError, json.JSONDecodeError, AttributeError, KeyError, TypeError):
        return {}


def of(threads: int, again: bool = False) -> Limits:
    """The limits of `threads` threads: those that are kept, else measured in a child and kept.

    Where other processes disturbed the measurement, up to `MOST_MEASURED` times, or `again`, they
    are measured once more; of both, the better figures count.

    Raises:
        ChildError: The child crashed or hung.
    """

    def measured() -> Limits:
        found: Limits = asked({"limits": threads, "threads": threads})
        if not cpu_info()["missing"]["sapphirerapids"]:
            found["tflop_s"] |= asked({"tiles": threads, "threads": threads})
        return found

    return kept(threads, again, measured)


def asked(request: dict[str, Any]) -> Any:
    """What a child answers to a request for limits."""
    return runner.ask(request, runner.SETUP_S)


def kept(key: int | str, again: bool, measured: Callable[[], Limits]) -> Limits:
    """The limits that are kept under `key`, else those that are `measured`, as `of` says."""
    found = known()
    before = found.get(key)
    if before and not again and settled(before):
        return before
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    result = {**measured(), "measured": 1, "date": date}
    if before:
        result = better(before, result)
    try:
        _keep({**found, key: result})
    except OSError as error:
        warnings.warn(f"limits: {error}; they are not kept", LimitsWarning, stacklevel=3)
    return result


def settled(found: Limits | None) -> bool:
    """Whether limits, if there are any, need not be measured again."""
    if found is None:
        return False
    return bool(found["others_share"] <= BUSY or found["measured"] >= MOST_MEASURED)


def _keep(found: dict[int | str, Limits]) -> None:
    """Writes limits to the cache folder, in one step."""
    file = path()
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [found[key] for key in sorted(found, key=str)]
    whole_file.save(file, json.dumps({"schema": SCHEMA, "limits": rows}, indent=2).encode())


def better(a: Limits, b: Limits) -> Limits:
    """The limits that `a` and `b` show together: what was reached once can be reached."""
    merged = {**a, **b}
    for name in ("read_gb_s", "copy_gb_s", "tflop_s"):
        both = [*a[name], *(key for key in b[name] if key not in a[name])]
        merged[name] = {key: max(a[name].get(key, 0), b[name].get(key, 0)) for key in both}
    for name in ("call_us", "others_share"):
        merged[name] = min(a[name], b[name])
    merged["measured"] = a["measured"] + b["measured"]
    return merged
