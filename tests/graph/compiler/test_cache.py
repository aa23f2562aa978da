"""The kernel cache: sound entries are found, everything else is a miss."""

import hashlib
import os
import pwd
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from heddle.graph.compiler.cache import CacheWarning, KernelCache, assembler, fingerprint, key
from heddle.graph.compiler.codegen import ptx
from heddle.kernels.spec import Body, Operand, Spec, Step
from heddle.runtime import config
from heddle.runtime.artifact import Code

F32 = Operand("float32", ("d0", 384))
SPEC = Spec("map", (F32,), F32, (F32,), (), Body((F32,), (Step("exp", (0,), "float32"),), (1,)))
CODES = (Code("sm_80", "cubin", bytes(range(256)), symbol="k", registers=40), Code("a", "ptx", b""))


@pytest.fixture
def filled(tmp_path):
    cache = KernelCache(tmp_path)
    cache.put(SPEC, "sm_80", CODES)
    (entry,) = (tmp_path / "kernels").iterdir()
    return cache, entry


def test_what_was_put_is_found(filled):
    cache, _ = filled
    assert cache.get(SPEC, "sm_80") == CODES
    assert cache.get(SPEC, "sm_90a") is None


@pytest.mark.parametrize("length", [0, 10, 64, 65, -1])
def test_truncated_entry_is_a_miss(filled, length):
    cache, entry = filled
    entry.write_bytes(entry.read_bytes()[:length])
    assert cache.get(SPEC, "sm_80") is None
    cache.put(SPEC, "sm_80", CODES)
    assert cache.get(SPEC, "sm_80") == CODES


def test_every_changed_byte_is_a_miss(filled):
    cache, entry = filled
    data = entry.read_bytes()
    for position in range(0, len(data), 7):
        entry.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        assert cache.get(SPEC, "sm_80") is None


@pytest.mark.parametrize("contents", [b'[{"unit": "fpga", "data": ""}]', b"7", b'[{"arch": "a"}]'])
def test_entry_of_another_version_is_a_miss(filled, contents):
    """Its checksum is right; what it holds is not what codes are today."""
    cache, entry = filled
    entry.write_bytes(hashlib.sha256(contents).hexdigest().encode() + b"\n" + contents)
    assert cache.get(SPEC, "sm_80") is None


def test_folder_that_cannot_be_made_warns_once(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    cache = KernelCache(blocker)
    with pytest.warns(CacheWarning, match=r"kernel cache .*: Not a directory; compiling without"):
        cache.put(SPEC, "sm_80", CODES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(SPEC, "sm_80", CODES)
    assert cache.get(SPEC, "sm_80") is None


def test_full_disk_warns_and_leaves_no_partial_entry(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        KernelCache(tmp_path).put(SPEC, "sm_80", CODES)
    assert list((tmp_path / "kernels").iterdir()) == []


def test_no_home_is_no_folder(monkeypatch):
    for name in ("HEDDLE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(user):
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert config.cache_folder() is None


def test_off_keeps_nothing():
    cache = KernelCache(None)
    cache.put(SPEC, "sm_80", CODES)
    assert cache.get(SPEC, "sm_80") is None


def test_concurrent_writers_leave_one_sound_entry(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: KernelCache(tmp_path).put(SPEC, "sm_80", CODES), range(40)))
    assert len(list((tmp_path / "kernels").iterdir())) == 1
    assert KernelCache(tmp_path).get(SPEC, "sm_80") == CODES


def test_keys_are_the_same_in_another_process():
    script = "from heddle.graph.compiler.cache import fingerprint; print(fingerprint('cuda'))"
    command = [sys.executable, "-c", script]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert other == fingerprint("cuda")


def test_targets_have_sources_of_their_own():
    """A change of a CUDA kernel leaves the code of CPU kernels where it is."""
    assert fingerprint("cpu") != fingerprint("cuda")


def test_key_depends_on_spec_and_arch():
    other = Spec(
        "map", (F32,), F32, (F32,), (), Body((F32,), (Step("log", (0,), "float32"),), (1,))
    )
    assert len({key(SPEC, "sm_80"), key(SPEC, "sm_90a"), key(other, "sm_80")}) == 3


def test_code_for_cuda_depends_on_the_assembler(monkeypatch):
    """nvJitLink, another ptxas, none: each has its own entries; code for the CPU does not care."""
    with_nvjitlink, on_cpu = key(SPEC, "sm_80"), key(SPEC, "x86-64-v3")
    assembler.cache_clear()
    monkeypatch.setattr(ptx, "find_nvjitlink", lambda: None)
    monkeypatch.setattr(ptx, "find_ptxas", lambda: "echo")
    assert assembler().startswith("echo (GNU coreutils)")
    with_ptxas = key(SPEC, "sm_80")
    assembler.cache_clear()
    monkeypatch.setattr(ptx, "find_ptxas", lambda: None)
    assert assembler() == ""
    assert len({with_nvjitlink, with_ptxas, key(SPEC, "sm_80")}) == 3
    assert key(SPEC, "x86-64-v3") == on_cpu
    assembler.cache_clear()
