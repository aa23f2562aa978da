"""How ragged rows are shared out: pieces of short ones, and parts of those that decode."""

import ctypes

import numpy as np
import pytest
import ragged_batches as ragged
from native import ARCHS, DOTS, GUARD, load, run
from reference import size

from heddle.kernels.cpu.decode.parts import (
    KEYS,
    MOST,
    SLOTS,
    STEP,
    most_parts,
    part_size,
    share,
    sums,
)
from heddle.kernels.registry import find


def test_a_short_row_is_shared_out():
    """Half of the tasks are half of the heads, though more pieces than one were possible."""
    spec = ragged.attention("paged_attention", heads=8, key_heads=4)
    dims, arrays = ragged.batch(spec, [20], [30])
    written = []

    def noting(spec, arch):
        function, memory = load(spec, arch)

        def call(values, pointers, first, last):
            function(values, pointers, first, last)
            places = (ctypes.c_void_p * (len(arrays) + 1)).from_address(pointers)
            result = np.frombuffer(ctypes.string_at(places[len(arrays)], arrays[0].nbytes), "u1")
            heads = result.reshape(20, 8, -1) != GUARD
            written.append(int(heads.any(axis=(0, 2)).sum()))

        return call, memory

    run(spec, arrays, dims, cuts=(0.5,), load=noting)
    assert written == [4, 8]


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("window", [0, 700])
def test_parts_of_a_row(arch, window):
    """Shared out over tasks, in one task, or in one among too many rows: the same bits."""
    kind = "bfloat16" if arch not in ARCHS else "float32"
    spec = ragged.attention("paged_attention", kind, heads=6, size=20, window=window)
    dims, arrays = ragged.batch(spec, [2], [1000])
    launch = find(spec.op, "cpu").launch(spec)
    assert size(launch.workspace, dims) == 2 * 4 * sums(spec) * size(most_parts(spec, 1000), dims)
    (alone,), _ = run(spec, arrays, dims, arch)
    for cuts in ((0.1, 0.5, 0.6, 0.9), (0.3,)):
        (found,), _ = run(spec, arrays, dims, arch, cuts)
        assert found.tobytes() == alone.tobytes()
    query, *caches, _, _, table = arrays
    rows = SLOTS // 2
    query = np.concatenate([query, *[query] * (rows // 2)])
    offsets = np.concatenate([[0], np.arange(2, rows + 3)])
    lengths = np.array([1000, *[0] * rows])
    many = dims | {"d0": rows + 2, "d2": rows + 2, "d3": rows + 1}
    assert size(launch.workspace, many) == 0
    (found,), _ = run(
        spec, [query, *caches, offsets, lengths, np.repeat(table, rows + 1, 0)], many, arch
    )
    assert found[:2].tobytes() == alone.tobytes()
    assert not found[2:].astype(np.float32).any()


@pytest.mark.parametrize("keys", [1, 17, 256, 257, 300, 1000, 4096, 8192, 8200, 100_000])
def test_parts_are_of_nearly_one_size(keys):
    size = part_size(keys, STEP)
    parts = -(-keys // size)
    assert size % STEP == 0
    assert parts <= MOST
    assert size <= max(KEYS, -(-keys // MOST) + STEP)
    assert keys - (parts - 1) * size > size - parts * STEP


@pytest.mark.parametrize(("slots", "parts"), [(8, 0), (8, 1), (8, 2), (8, 5), (8, 8), (32, 3)])
def test_every_part_is_in_one_task_and_halves_are_even(slots, parts):
    cuts = [share(slot, slot + 1, slots, parts) for slot in range(slots)]
    assert [part for first, last in cuts for part in range(first, last)] == list(range(parts))
    half = share(0, slots // 2, slots, parts)
    assert half == (0, -(-parts // 2))
    assert share(slots // 2, slots, slots, parts) == (half[1], parts)
