"""The machine code that ships of attention of float32 in AMX tiles."""

import re

import machine_code
import pytest
from test_amx_attention_parts import MACHINE, tiled


@pytest.mark.parametrize("size", [32, 64, 96, 128])
def test_tiles_are_not_spilled(size):
    text = machine_code.assembly(tiled(size, causal=True), MACHINE)
    # Scores begin a task, or come beside exponentials, with sums and without; sums come beside
    # them, with scores and without, or end a task. Six products of parts take three pairs of one
    # side and six of the other.
    places, groups = 3, size // 32
    assert text.count("tdpbf16ps") == places * groups * (24 + 24)
    assert text.count("tilezero") == 4 * places
    assert text.count("tilestored") == 4 * places * (1 + groups)
    assert text.count("tileloadd") == places * groups * (18 + 18 + 4)
    assert re.search(r"tile(loadd|stored).*%rsp", text) is None
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1


def test_the_stack_is_small():
    text = machine_code.assembly(tiled(128), MACHINE)
    assert max(int(size) for size in re.findall(r"\tsubq\t\$(\d+), %rsp", text)) < 1.1 * 2**20


@pytest.mark.parametrize("size", [32, 128])
def test_tiles_are_multiplied_beside_exponentials(size):
    """A group of four products at a time stands between two rows."""
    text = machine_code.assembly(tiled(size), MACHINE)
    most = machine_code.products_beside_rows(text)
    assert len(most) == 3
    assert 4 <= min(most) <= max(most) <= 4 * size // 32
