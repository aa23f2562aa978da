"""Artifacts go into files and memory piece by piece: the same bytes, held once, all or none."""

import resource
import weakref
from dataclasses import replace

import numpy as np
import pytest

from heddle.runtime.artifact import ArtifactRecord, Constant, Deferred, Symbol, Tensor, Weight
from heddle.runtime.artifact_writer import write
from heddle.runtime.errors import ArtifactError, CompileError, InputError
from heddle.runtime.whole_file import replacing

EMPTY = ArtifactRecord("empty", (), (), (), (), (), ())
LARGE = replace(EMPTY, constants=(Constant(bytes(range(256)) * (1 << 14)), Constant(b"12")))
"""More than what is written at once."""


def test_a_file_has_the_bytes_of_memory(tmp_path):
    """A link stays one, and a device gets what a file would."""
    path, link = tmp_path / "m.heddle", tmp_path / "link"
    link.symlink_to(path)
    artifact = write(LARGE, link)
    assert (artifact.path, write(LARGE).path) == (str(link), "<memory>")
    assert path.read_bytes() == artifact.to_bytes() == write(LARGE).to_bytes()
    assert write(LARGE, "/dev/null").to_bytes() == artifact.to_bytes()
    assert link.is_symlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "m.heddle"]


def test_a_short_name_is_not_made_too_long(tmp_path):
    path = tmp_path / ("n" * 251 + ".hed")
    assert write(EMPTY, path).nbytes == path.stat().st_size


def test_links_in_a_ring_are_no_place_to_write(tmp_path):
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    with pytest.raises(ArtifactError, match=r"ring: cannot be written: Too many levels of symbol"):
        write(EMPTY, ring)


def test_records_that_name_one_long_text_again_and_again_are_refused():
    """Who shows them writes it as often: what is shown is bounded by the size of the file."""
    rows = tuple((f"key {number}", "long" * 50_000) for number in range(60))
    assert len(write(replace(EMPTY, provenance=rows[:5])).provenance) == 5
    with pytest.raises(
        (ArtifactError, CompileError), match=r"wanted at most \d+ bytes of texts in"
    ):
        write(replace(EMPTY, provenance=rows))


def test_tensors_whose_dims_have_one_long_name_are_refused():
    name = "n" * 4096
    inputs = (Tensor("x", "float32", (name,)),)
    rows = tuple(Tensor(f"y{number}", "float32", (name,) * 16) for number in range(100))
    made = replace(EMPTY, symbols=(Symbol(name, 0, 10),), inputs=inputs)
    assert len(write(replace(made, outputs=rows[:5])).outputs) == 5
    with pytest.raises(
        (ArtifactError, CompileError), match=r"wanted at most \d+ bytes of texts in"
    ):
        write(replace(made, outputs=rows))


def test_many_records_may_share_a_short_text():
    """As steps of a loop share the line that says what they are."""
    shared = (("step", "matmul + add + mul + silu (decoder.py:120)"),) * 30_000
    assert write(replace(EMPTY, provenance=shared)).provenance == dict(shared)


@pytest.mark.parametrize("name", ["m.heddle", None], ids=["file", "memory"])
def test_deferred_data_is_made_once_and_held_alone(tmp_path, name):
    made, before = [], []

    def data(number):
        def read():
            before.append([n for n, array in enumerate(made) if array() is not None])
            array = np.full(1000, number, np.uint8)
            made.append(weakref.ref(array))
            return array.data

        return Deferred(1000, read)

    record = replace(
        EMPTY,
        weights=tuple(Weight(f"w{n}", "uint8", (1000,), data=data(n)) for n in (3, 4)),
        constants=(Constant(data(1)), Constant(b"12"), Constant(data(2))),
    )
    artifact = write(record, name and tmp_path / name)
    assert before == [[], [], [], []]
    places = [artifact.to_bytes().index(bytes([n]) * 1000) for n in (1, 2, 3, 4)]
    assert places == sorted(places)


def test_deferred_data_of_another_size_is_refused(tmp_path):
    record = replace(EMPTY, constants=(Constant(Deferred(3, lambda: b"1234")),))
    with pytest.raises(CompileError, match="deferred data: wanted 3 bytes, got 4"):
        write(record, tmp_path / "m.heddle")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    """The reader's refusal, a disk that takes no more, and who interrupts."""
    path = tmp_path / "m.heddle"
    path.write_bytes(b"old")

    def interrupted():
        raise KeyboardInterrupt

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))
    try:
        with pytest.raises(ArtifactError, match=f"^{path}: cannot be written: File too large"):
            write(LARGE, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(KeyboardInterrupt):
        write(replace(EMPTY, constants=(Constant(Deferred(4, interrupted)),)), path)
    with pytest.raises(CompileError, match=rf"'empty' breaks a rule: {path}: section symbols"):
        write(replace(EMPTY, symbols=(Symbol("n", 5, 4),)), path)
    with pytest.raises(ArtifactError, match=f"^{tmp_path}/none/m: .*make its folder first"):
        write(LARGE, tmp_path / "none" / "m")
    with pytest.raises(InputError, match="path: wanted one without NUL"):
        write(LARGE, f"{path}\0")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_who_write_one_path_do_not_share_a_file(tmp_path):
    """Threads, or processes of two containers, whose numbers may be the same."""
    path = tmp_path / "m.heddle"
    with replacing(path) as first, replacing(path) as second:
        assert first != second
        for place, data in ((first, b"first"), (second, b"2nd")):
            place.write_bytes(data)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
