"""Steps on a GPU, on a CuPy whose copies run as late as they may (fake_cupy.py)."""

import gc
import importlib.util
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import heddle.contexts
from heddle.contexts import GrammarMasks, SamplingParams, StepBatch, TextContext, step_memory
from heddle.runtime import Accelerator, DeviceError

GPU = Accelerator(0)


@pytest.fixture
def cupy(monkeypatch):
    spec = importlib.util.spec_from_file_location("cupy", Path(__file__).with_name("fake_cupy.py"))
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(step_memory, "Buffer", fake.Buffer)
    return fake


def contexts(count, length=2, **options):
    return [
        TextContext(max_length=99, tokens=np.arange(length) + 10 * row, **options)
        for row in range(1, count + 1)
    ]


def read(batch):
    """A kernel on the step's stream that keeps what it finds in the inputs."""
    found = {}

    def kernel():
        found.update({name: array.memory.tolist() for name, array in inputs.items()})

    inputs = batch.inputs
    batch.stream.launch(kernel)
    return found


def test_the_device_gets_what_the_host_wrote(cupy):
    several = contexts(2)
    batch = StepBatch(rows=3, tokens=8, max_length=99, blocks=2, device=GPU)
    assert batch.write(several) == [0, 1]
    batch.write_blocks(1, [6, 7])
    batch.send()
    found = read(batch)
    assert found == {}  # nothing has run: nobody waited
    batch.stream.synchronize()
    assert found == {
        "tokens": [10, 11, 20, 21],
        "positions": [0, 1, 0, 1],
        "row_offsets": [0, 2, 4],
        "lengths": [2, 2],
        "blocks": [[0, 0], [6, 7]],
        "sampling": [[1, 1, 0, 0, 0, 1]] * 2,
        "sampling_integers": [[1, 0]] * 2,
    }
    assert set(batch.buffers) == set(found)


def test_steps_are_written_ahead_and_each_kernel_sees_its_own(cupy):
    (context,) = contexts(1)
    batch = StepBatch(rows=1, tokens=4, max_length=99, device=GPU)
    seen = []
    for token in range(50, 56):
        batch.write([context])
        batch.send()
        seen.append(read(batch))
        # Two slots: before a third step is written, the copies of the first are waited for.
        assert all(found for found in seen[:-3])
        assert not any(seen[-2:])
        context.update(token)
    batch.stream.synchronize()
    assert [found["tokens"] for found in seen] == [[10, 11], [50], [51], [52], [53], [54]]
    assert [found["lengths"] for found in seen] == [[2], [3], [4], [5], [6], [7]]


def test_a_table_changes_after_it_was_copied(cupy):
    several = contexts(2)
    batch = StepBatch(rows=2, tokens=8, max_length=99, blocks=1, device=GPU)
    seen = []
    for block in range(4):
        batch.write(several)
        batch.write_blocks(1, [block])
        batch.send()
        seen.append(read(batch))
    hot = contexts(1, sampling_params=SamplingParams(temperature=2, top_k=5, seed=3))[0]
    batch.write([hot, several[1]])
    batch.send()
    seen.append(read(batch))
    batch.stream.synchronize()
    assert [found["blocks"] for found in seen] == [[[0], [block]] for block in (0, 1, 2, 3, 3)]
    assert seen[4]["sampling"][0] == [2, 1, 0, 0, 0, 1]
    assert seen[4]["sampling_integers"] == [[5, 3], [1, 0]]
    assert seen[3]["sampling_integers"] == [[1, 0], [1, 0]]


def test_a_decode_step_is_four_copies_and_one_back(cupy):
    several = contexts(2)
    batch = StepBatch(rows=2, tokens=8, max_length=99, blocks=1, device=GPU)
    batch.write(several)
    batch.send()
    assert batch.copies == 7
    for step in range(1, 4):
        assert batch.commit(several, cupy.Array(np.array([5, 6]))) == {}
        batch.write(several)
        batch.send()
        assert batch.copies == 7 + 5 * step


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_outputs_come_back_in_stream_order(cupy, dtype):
    several = contexts(3)
    batch = StepBatch(rows=4, tokens=16, max_length=99, device=GPU)
    for token in range(1, 5):
        batch.write(several)
        batch.send()
        chosen = cupy.Array(np.zeros(3, dtype))
        batch.stream.launch(lambda chosen=chosen, token=token: chosen.memory.__iadd__(token))
        assert batch.commit(several, chosen) == {}
        assert [context.last_generated_token for context in several] == [token] * 3


def test_outputs_of_another_stream_are_waited_for(cupy):
    several = contexts(1)
    batch = StepBatch(rows=1, tokens=4, max_length=99, device=GPU)
    other = cupy.Stream()
    chosen = cupy.Array(np.zeros(1, np.int64))
    batch.write(several)
    with other:
        other.launch(lambda: chosen.memory.fill(9))
        assert batch.commit(several, chosen) == {}
    assert several[0].last_generated_token == 9
    batch.write(several)
    assert batch.commit(several, np.array([8])) == {}  # what is on the host is read there
    assert batch.copies == 1


def test_outputs_that_do_not_fit_are_refused(cupy):
    batch = StepBatch(rows=1, tokens=4, max_length=99, device=GPU)
    with pytest.raises(ValueError, match=r"at most 8 bytes, got shape \[2\] of int64"):
        batch.commit(contexts(2), cupy.Array(np.zeros(2, np.int64)))
    with pytest.raises(ValueError, match=r"one dimension .* got shape \[1, 1\] of int64"):
        batch.commit(contexts(1), cupy.Array(np.zeros((1, 1), np.int64)))


def test_masks_reach_the_device_in_stream_order(cupy, compiler, constrained):
    stream = cupy.Stream()
    masks = GrammarMasks(compiler.tokenizer, rows=4, device=GPU, stream=stream)
    context, free = constrained(), constrained(None)
    seen, wanted = [], []
    for byte in b'{"a":1':
        masks.fill([free, context])
        wanted.append(masks.bitmask[:2].copy())
        stream.launch(lambda: seen.append(masks.device_bitmask.memory[:2].copy()))
        context.update(byte)
    assert masks.fill_drafts([context], [list(b"2}")]) == [2]
    wanted.append(masks.bitmask[:2].copy())
    stream.launch(lambda: seen.append(masks.device_bitmask.memory[:2].copy()))
    stream.synchronize()
    assert len(seen) == 7
    assert all(np.array_equal(*pair) for pair in zip(seen, wanted, strict=True))


def test_a_batch_uses_the_stream_that_it_is_given(cupy):
    stream = cupy.Stream()
    assert StepBatch(rows=1, tokens=4, max_length=99, device=GPU, stream=stream).stream is stream


def test_page_locked_memory_stays_until_its_copies_are_done(cupy):
    (context,) = contexts(1)
    batch = StepBatch(rows=1, tokens=4, max_length=99, device=GPU)
    batch.write([context])
    batch.send()
    stream = batch.stream
    assert stream.done == 0
    del batch
    gc.collect()
    assert stream.done == len(stream.queue)


def test_a_step_on_a_device_grows_nothing(cupy):
    several = contexts(16)
    batch = StepBatch(rows=16, tokens=64, max_length=99, device=GPU)
    room = tracemalloc.Filter(True, str(Path(heddle.contexts.__file__).parent / "*"))

    def held(steps):
        for _ in range(steps):
            batch.write(several)
            batch.send()
            batch.stream.synchronize()
            batch.stream.queue.clear()
            batch.stream.done = 0
        traces = tracemalloc.take_snapshot().filter_traces([room])
        return sum(trace.size for trace in traces.traces)

    page_locked = len(cupy._page_locked)
    tracemalloc.start()
    try:
        held(5)
        before = held(5)
        after = held(50)
    finally:
        tracemalloc.stop()
    assert after == before
    assert len(cupy._page_locked) == page_locked


BESIDE_THE_FAKE_DRIVER = """
import sys
import fake_cupy
import numpy as np
from heddle.contexts import StepBatch, TextContext
from heddle.runtime import Accelerator, Buffer

sys.modules["cupy"] = fake_cupy
context = TextContext(max_length=9, tokens=np.array([4, 5, 6]))
batch = StepBatch(rows=2, tokens=4, max_length=9, blocks=1, device=Accelerator())
for token in (7, 8):
    batch.write([context])
    batch.write_blocks(0, [token])
    batch.send()
    batch.stream.synchronize()
    print({name: buffer.to_numpy()[:1].tolist() for name, buffer in batch.buffers.items()})
    assert batch.commit([context], Buffer.from_numpy(np.array([token])).to(Accelerator())) == {}
print(context.generated_tokens, batch.copies)
"""


def test_buffers_of_the_runtime_hold_what_the_host_wrote(tmp_path):
    sources = (Path(__file__).parents[1] / "runtime").glob("fake_cuda*.c")
    driver = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", driver, *sources], check=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BESIDE_THE_FAKE_DRIVER],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).parent),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    kept = "'sampling': [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0]], 'sampling_integers': [[1, 0]]}"
    assert done.stdout.splitlines() == [
        "{'tokens': [4], 'positions': [0], 'row_offsets': [0], 'lengths': [3], 'blocks': [[7]], "
        + kept,
        "{'tokens': [7], 'positions': [3], 'row_offsets': [0], 'lengths': [4], 'blocks': [[8]], "
        + kept,
        "[7 8] 16",
    ]


def test_without_cupy_or_gpu_the_reason_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match="cuda:0: wanted CuPy for the arrays of a step, got none"):
        StepBatch(rows=1, tokens=4, max_length=99, device=GPU)
