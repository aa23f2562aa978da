"""What Python sees of an artifact: reading, saving, describing."""

import json
import os
from mmap import mmap

import numpy as np
import pytest

from heddle.runtime import (
    Artifact,
    ArtifactError,
    ArtifactReason,
    InferenceSession,
    InputError,
    replay,
)
from heddle.runtime.artifact import Weight


def test_save_and_load_give_the_same_bytes(make, tmp_path):
    artifact = make("double")
    path = tmp_path / "m.heddle"
    artifact.save(path)
    assert path.read_bytes() == artifact.to_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["m.heddle"]
    loaded = Artifact.load(path)
    assert loaded.to_bytes() == artifact.to_bytes()
    assert (loaded.path, loaded.nbytes) == (str(path), path.stat().st_size)
    assert repr(loaded) == f"Artifact(hand, {loaded.nbytes} bytes)"
    assert Artifact.from_bytes(bytearray(path.read_bytes())).path == "<memory>"


def test_bytes_are_used_where_they_are(make):
    """Mapped memory starts at a page, so at a multiple of 64."""
    whole = make("double").to_bytes()
    memory = mmap(-1, len(whole))
    memory.write(whole)
    artifact = Artifact.from_bytes(memory, copy=False)
    (y,) = InferenceSession(threads=1).load(artifact).execute(np.ones(3, np.float32))
    assert y.to_numpy().tolist() == [2, 2, 2]
    with pytest.raises(BufferError):
        memory.close()
    del artifact, y
    memory.close()


def test_bytes_that_are_not_aligned_are_copied_or_refused(make):
    whole = make("double").to_bytes()
    memory = mmap(-1, len(whole) + 1)
    memory[1:] = whole
    with memoryview(memory)[1:] as view:
        assert Artifact.from_bytes(view).to_bytes() == whole
        with pytest.raises(InputError, match="wanted bytes at a multiple of 64, got 1 beyond one"):
            Artifact.from_bytes(view, copy=False)
    memory.close()


def test_a_file_may_be_called_by_another_name(make, tmp_path):
    path = tmp_path / "m.heddle"
    make("double").save(path)
    assert Artifact.load(path, name="model").path == "model"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"^model: file: bytes: wanted"):
        Artifact.load(path, name="model")


def test_save_where_it_cannot_be(make, tmp_path):
    (tmp_path / "folder").mkdir()
    for path, wanted in (
        (tmp_path / "none" / "m", "No such file or directory (make its folder first)"),
        (tmp_path / "folder", "Is a directory (give the name of a file)"),
        ("/dev/full", "No space left on device (make room, or save it elsewhere)"),
        ("/proc/m", "No such file or directory (make its folder first)"),
        (tmp_path / ("m" * 300), "File name too long"),
    ):
        with pytest.raises(ArtifactError) as error:
            make("double").save(path)
        assert str(error.value) == f"{path}: cannot be written: {wanted}"
        assert error.value.reason is ArtifactReason.NOT_WRITTEN
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_a_path_with_nul_is_no_other_file(make, tmp_path):
    make("double").save(tmp_path / "m")
    for use in (make("double").save, Artifact.load):
        with pytest.raises(InputError, match=r"path: wanted one without NUL, got one after '.*/m'"):
            use(f"{tmp_path}/m\0.heddle")


def test_save_replaces_neither_links_nor_devices(make, tmp_path):
    artifact = make("double")
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link.heddle"
    link.symlink_to(tmp_path / "folder" / "m.heddle")
    artifact.save(link)
    assert link.is_symlink()
    assert (tmp_path / "folder" / "m.heddle").read_bytes() == artifact.to_bytes()
    (tmp_path / "pipe").mkdir()
    pipe = tmp_path / "pipe" / "p"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        artifact.save(pipe)
        assert os.read(reader, artifact.nbytes + 1) == artifact.to_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_describe_says_everything_as_json(make, images):
    w = np.arange(4, dtype=np.float32)
    weights = (Weight("w", "float32", (4,), sha256=bytes(range(32)), data=w.tobytes()),)
    artifact = make("multiply", weights=weights)
    described = json.loads(json.dumps(artifact.describe()))
    sections = described.pop("sections")
    assert sections["code"] == len(images["multiply"])
    assert described == {
        "name": "hand",
        "path": "<memory>",
        "format": 3,
        "bytes": artifact.nbytes,
        "provenance": {"maker": "by hand"},
        "symbols": [{"name": "n", "minimum": 0, "maximum": 1 << 20}],
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["n"]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["n"]}],
        "weights": [
            {
                "name": "w",
                "dtype": "float32",
                "shape": [4],
                "bytes": 16,
                "embedded": True,
                "settled": False,
                "sha256": bytes(range(32)).hex(),
            }
        ],
        "constant_bytes": 0,
        "requirements": [{"target": "cpu", "any_of": ["x86-64-v3"]}],
        "programs": [
            {
                "target": "cpu",
                "state_bytes": 0,
                "overlaps": False,
                "kernels": [
                    {
                        "name": "multiply",
                        "checks": False,
                        "buffers": 3,
                        "dims": 1,
                        "launches": [
                            {
                                "block": [1, 1, 1],
                                "shared_bytes": 0,
                                "cluster": 1,
                                "resident": 0,
                                "overlaps": False,
                                "tensor_maps": 0,
                            }
                        ],
                        "codes": [
                            {
                                "arch": "x86-64-v3",
                                "format": "image",
                                "bytes": len(images["multiply"]),
                                "offset": artifact.to_bytes().index(images["multiply"]),
                                "entry": 0,
                                "registers": 0,
                                "spilled_bytes": 0,
                                "launch": 0,
                            }
                        ],
                    }
                ],
                "init": {"arena_bytes": 0, "instructions": []},
                "main": {
                    "arena_bytes": 0,
                    "instructions": [
                        {
                            "label": "multiply at m.py:1",
                            "kernel": "multiply",
                            "grids": [["n", 1, 1]],
                            "work": "n",
                        }
                    ],
                },
            }
        ],
    }
    for name in ("provenance", "symbols", "inputs", "outputs", "weights", "programs"):
        assert getattr(artifact, name) == described[name]
    assert artifact.requirements == described["requirements"]


def test_requirements_are_what_all_kernels_have(make_cuda):
    artifact = make_cuda("double", ("sm_80", "sm_90a"), ptx=("sm_80",), shared=1024)
    assert artifact.requirements == [
        {"target": "cuda", "any_of": ["sm_80", "sm_90a", "sm_80 (ptx)"]}
    ]
    (kernel,) = artifact.programs[0]["kernels"]
    (launch,) = kernel["launches"]
    assert (launch["block"], launch["shared_bytes"]) == ([128, 1, 1], 1024)
    assert [code["format"] for code in kernel["codes"]] == ["cubin", "cubin", "ptx"]


def test_errors_carry_their_reason(make, tmp_path):
    whole = make("double").to_bytes()
    newer = bytearray(whole)
    newer[8] += 1
    flipped = bytearray(whole)
    flipped[64 + 32 * 20] ^= 1  # the first byte of the first section
    for data, reason in (
        (b"", ArtifactReason.TRUNCATED),
        (b"PK" + whole[2:], ArtifactReason.NOT_AN_ARTIFACT),
        (newer, ArtifactReason.VERSION),
        (whole[:-1], ArtifactReason.TRUNCATED),
        (flipped, ArtifactReason.CHECKSUM),
    ):
        path = tmp_path / "m.heddle"
        path.write_bytes(data)
        for read in (lambda path=path: Artifact.load(path), lambda d=data: Artifact.from_bytes(d)):
            with pytest.raises(ArtifactError) as error:
                read()
            assert error.value.reason is reason
    with pytest.raises(ArtifactError) as error:
        Artifact.load(tmp_path / "none")
    assert error.value.reason is ArtifactReason.NOT_FOUND


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Artifact.load(3), "path: wanted a text, bytes or an os.PathLike, got 3"),
        (lambda: Artifact.load(None), "path: wanted a text, bytes or an os.PathLike, got None"),
        (lambda: Artifact.load("m", 3), "path: wanted a text, bytes or an os.PathLike, got 3"),
        (lambda: Artifact.from_bytes("a"), "Artifact.from_bytes: wanted contiguous bytes, got str"),
        (
            lambda: Artifact.from_bytes(None),
            "Artifact.from_bytes: wanted contiguous bytes, got NoneType",
        ),
        (
            lambda: Artifact.from_bytes(memoryview(b"1234")[::2]),
            "Artifact.from_bytes: wanted contiguous bytes, got memoryview",
        ),
        (
            lambda: Artifact.from_bytes(b"", copy=1),
            "Artifact.from_bytes: copy: wanted True or False, got 1",
        ),
        (lambda: replay(None), "replay: wanted a list of calls, got None"),
        (
            lambda: replay([(1, (), ())]),
            "replay: wanted calls as (model, inputs, outputs), the last two tuples, got (1, ",
        ),
        (
            lambda: replay([], repeats=0),
            "replay: repeats: wanted an integer from 1 to 2147483647, got 0",
        ),
        (
            lambda: replay([], count=1 << 40),
            "replay: count: wanted an integer from 0 to 2147483647, got 1099511627776",
        ),
    ],
)
def test_arguments_of_the_wrong_type(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).startswith(message)


def test_no_path_to_save_to(make):
    with pytest.raises(InputError, match=r"^path: wanted a text, .* got None$"):
        make("double").save(None)
