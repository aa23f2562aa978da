"""Accesses of the kernels cost what the table says, so that a new conflict is seen."""

import pytest
from cuda_traffic import CALLS, DOCUMENT, HEAD, line


@pytest.mark.parametrize("name", CALLS)
def test_the_document_tells_what_accesses_cost(name):
    found = line(name)
    assert found in DOCUMENT.read_text().splitlines(), (
        f"docs/cuda/memory.md: wanted {found!r}; run python tests/kernels/cuda/cuda_traffic.py"
    )


def test_the_document_has_a_line_for_each_call():
    text = DOCUMENT.read_text()
    assert text.startswith(HEAD)
    names = [row.split(" | ")[0].removeprefix("| ") for row in text[len(HEAD) :].splitlines()]
    assert names == list(CALLS)
