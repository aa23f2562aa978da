"""Damaged GGUF files, and others that are not read."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import write

from heddle.pipelines.checkpoint import GgufCheckpoint
from heddle.pipelines.gguf.file import GgufFile
from heddle.runtime.errors import ArtifactError, ArtifactReason, InputError

WEIGHTS = {"model.embed_tokens.weight": np.arange(128, dtype=np.float32).reshape(2, 64)}

CONFIG = {"num_attention_heads": 2, "hidden_size": 64}


@pytest.fixture
def path(tmp_path):
    more = [("a.text", "a\u00e9", "string"), ("a.list", [1, 2, 3], "array")]
    return write(tmp_path / "model.gguf", "llama", CONFIG, WEIGHTS, "Q8_0", more=more)


def text(value):
    return struct.pack("<Q", len(value)) + value


def headed(tensors=0, *pairs, version=3, magic=b"GGUF"):
    """The beginning of a file: its keys, each with a type's number and the bytes of its value."""
    found = magic + struct.pack("<IQQ", version, tensors, len(pairs))
    return found + b"".join(
        text(key) + struct.pack("<I", kind) + value for key, kind, value in pairs
    )


def tensor(name=b"x", shape=(32, 1), kind=8, offset=0):
    dims = struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + dims + struct.pack("<IQ", kind, offset)


def test_values_and_tensors(path):
    found = GgufFile.read(path)
    assert found.value("a.text", str) == "a\u00e9"
    assert found.listed("a.list", int, 3) == [1, 2, 3]
    assert found.value("a.none", float, 1.5) == 1.5
    (own,) = found.tensors.values()
    assert (own.name, own.kind, own.shape) == ("token_embd.weight", "Q8_0", (2, 64))
    chosen = gguf.GGMLQuantizationType.Q8_0
    wanted = gguf.quants.quantize(WEIGHTS["model.embed_tokens.weight"], chosen)
    np.testing.assert_array_equal(own.rows, wanted)
    assert not own.rows.flags.owndata
    for key, kind, message in (
        ("a.text", int, "a.text: wanted an integer, got 'a\u00e9'"),
        ("a.none", str, "a.none: wanted a text, got none"),
    ):
        with pytest.raises(ArtifactError, match=message):
            found.value(key, kind)
    with pytest.raises(ArtifactError, match=r"a\.list: wanted 4, got 3"):
        found.listed("a.list", int, 4)
    with pytest.raises(ArtifactError, match=r"a\.list: wanted a text each, got 1"):
        found.listed("a.list", str)


def split(folder, count=3, **changes):
    """A model of so many tensors, each in a file of its own; changes are numbers in the last."""
    paths = [folder / f"m-{number + 1:05d}-of-{count:05d}.gguf" for number in range(count)]
    for number, path in enumerate(paths):
        own = {"no": number, "all": count, "tensor": number, "tensors": count}
        own |= changes if number == count - 1 else {}
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.no", own["no"])
        writer.add_uint16("split.count", own["all"])
        writer.add_int32("split.tensors.count", own["tensors"])
        writer.add_tensor(f"x{own['tensor']}", np.full((2, 4), number, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_several_files_of_a_model(tmp_path):
    paths = split(tmp_path)
    found = GgufFile.read(paths[0])
    for number in range(3):
        rows = found.tensors[f"x{number}"].rows.view(np.float32)
        np.testing.assert_array_equal(rows, np.full((2, 4), number))
    found.forget_pages()
    assert all(resident(path) == 0 for path in paths)
    assert GgufCheckpoint(paths[0]).name == "m"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"no": 1}, r"-00003-of-00003\.gguf: wanted split.no 2 and split.count 3, got 1 and 3"),
        ({"all": 4}, r"-00003-of-00003\.gguf: wanted split.no 2 and split.count 3, got 2 and 4"),
        ({"tensor": 0}, r"-00003-of-00003\.gguf: x0: wanted it in one of 3 files, got it again"),
        (
            {"tensors": 4},
            r"-00003-of-00003\.gguf: split\.tensors\.count: wanted 3, as all files have, got 4$",
        ),
    ],
)
def test_files_that_are_not_of_one_model(tmp_path, change, message):
    with pytest.raises(ArtifactError, match=message):
        GgufFile.read(split(tmp_path, **change)[0])


def test_some_files_of_a_model(tmp_path):
    paths = split(tmp_path)
    for other in (paths[1], paths[0].rename(tmp_path / "m.gguf")):
        with pytest.raises(
            ArtifactError, match=r"wanted the first of 3 files, called \.\.\.-00001-"
        ):
            GgufFile.read(other)
    (tmp_path / "m.gguf").rename(paths[0])
    paths[2].unlink()
    with pytest.raises(ArtifactError, match=r"m-00003-of-00003\.gguf: no such file"):
        GgufFile.read(paths[0])


def test_pages_are_given_back(path):
    found = GgufFile.read(path)
    (own,) = found.tensors.values()
    before = own.rows.copy()
    found.forget_pages()
    assert resident(path) == 0
    np.testing.assert_array_equal(own.rows, before)
    assert resident(path) > 0


def resident(path):
    """KiB of the file `path` that are mapped and present in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith(str(path)))
    return int(next(line for line in lines if line.startswith("Rss:")).split()[1])


def test_every_shorter_file_is_refused(path):
    """With a sentence, however much of it there is."""
    whole = path.read_bytes()
    padding = -(2 * 68) % 32  # behind the only tensor
    for size in range(len(whole) - padding):
        path.write_bytes(whole[:size])
        with pytest.raises(ArtifactError, match="wanted") as caught:
            GgufFile.read(path)
        assert size < 4 or caught.value.reason == ArtifactReason.TRUNCATED


HUGE = struct.pack("<Q", 1 << 62)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "wanted a GGUF file, got an empty one"),
        (headed(magic=b"GGML"), "wanted a GGUF file, got another one"),
        (headed(version=1), "wanted version 2 or 3, got 1"),
        (headed(version=3 << 24), "wanted version 2 or 3, got 50331648, in big-endian order"),
        (headed(0, (b"k", 8, HUGE)), f"wanted {1 << 62} bytes at"),
        (headed(0, (b"k", 9, struct.pack("<I", 4) + HUGE)), f"wanted {1 << 64} bytes at"),
        (headed(0, (b"k", 9, struct.pack("<I", 8) + HUGE)), "wanted 8 bytes at"),
        (headed(0, (b"k", 9, struct.pack("<I", 9) + HUGE)), "wanted numbers or texts, got values"),
        (headed(0, (b"k", 13, b"")), "k: wanted numbers or texts, got values of type 13"),
        (headed(0, (b"k", 0, b"1"), (b"k", 0, b"1")), "k: wanted it once, got it again"),
        (headed(0, (b"k", 8, text(b"\xff"))), "wanted a text in UTF-8 at 37, got other bytes"),
        (
            headed(0, (b"split.count", 2, b"\x03\0")),
            "wanted the first of 3 files, called ...-00001-of-00003",
        ),
        (headed(0, (b"general.alignment", 4, bytes(4))), "alignment: wanted at least 1, got 0"),
        (headed(1 << 62), "wanted 8 bytes at 24, got the end of the file"),
        (headed(1) + tensor(shape=()), "x: wanted 1 to 4 dims, got 0"),
        (headed(1) + tensor(shape=(1,) * 9), "x: wanted 1 to 4 dims, got 9"),
        (headed(1) + tensor(kind=99), "x: wanted a known type of tensors, got 99"),
        (headed(1) + tensor(shape=(33, 1)), "x: wanted rows of whole 32 in Q8_0, got (1, 33)"),
        (headed(1) + tensor(shape=(32, 0)), "x: wanted rows of whole 32 in Q8_0, got (0, 32)"),
        (headed(1) + tensor(shape=(1 << 40, 1 << 40)), "got the end of the file"),
        (headed(1) + tensor(offset=1 << 40), "wanted 34 bytes at"),
        (headed(2) + tensor() * 2 + bytes(200), "x: wanted one tensor of this name, got two"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path, content, message):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=f"^{path}: .*{re.escape(message)}"):
        GgufFile.read(path)


def test_the_package_is_loaded_for_a_file_alone(path, monkeypatch):
    program = "import sys, heddle.pipelines.weights, heddle.pipelines.generation.tokenizer\n"
    program += "assert 'gguf' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(InputError, match="wanted the package gguf, which is not installed; pip"):
        GgufFile.read(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ArtifactError, match="no such file") as caught:
        GgufFile.read(tmp_path / "model.gguf")
    assert caught.value.reason == ArtifactReason.NOT_FOUND
