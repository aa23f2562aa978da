"""The CUDA device against a fake driver: what is called, in which order, with which arguments.

Each test runs in a process of its own, in which the dynamic linker finds the fake `libcuda.so.1`.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from heddle.runtime.artifact import Weight

HERE = Path(__file__).parent
WEIGHT = Weight("w", "float32", (4,))

PRELUDE = """
import ctypes, gc, os, sys
import numpy as np
from heddle.runtime import *
from heddle.runtime import _core
fake = ctypes.CDLL("libcuda.so.1")
x = np.arange(4, dtype=np.float32)

def fails(kind, call):
    try:
        call()
    except kind as error:
        print(error)
    else:
        raise AssertionError("no error")

def load(**options):
    return InferenceSession([Accelerator()], threads=1).load(sys.argv[1], **options)

def main():
"""

EPILOGUE = """
main()
gc.collect()
assert (fake.fake_live(), fake.fake_bytes(), fake.fake_contexts()) == (0, 0, 0), (
    fake.fake_live(), fake.fake_bytes(), fake.fake_contexts())
assert not any(_core.live_objects().values()), _core.live_objects()
"""


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    """Builds the fake driver; the folder that holds it."""

    def build(*flags):
        folder = tmp_path_factory.mktemp("driver")
        target = folder / "libcuda.so.1"
        command = ["cc", "-shared", "-fPIC", "-O1", *flags, "-o", target, HERE / "fake_cuda.c"]
        subprocess.run(command, check=True)
        return folder

    return build


@pytest.fixture(scope="session")
def driver(fake):
    return fake()


@pytest.fixture
def python(driver, tmp_path):
    """Runs statements beside the fake driver: what they print, and the driver's log."""

    def run(body, artifact=None, folder=driver, **faults):
        log, path = tmp_path / "log", tmp_path / "m.heddle"
        log.write_text("")
        if artifact is not None:
            artifact.save(path)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(folder), FAKE_CUDA_LOG=str(log))
        environment.update({f"FAKE_CUDA_{name}": str(value) for name, value in faults.items()})
        script = PRELUDE + textwrap.indent(textwrap.dedent(body), "    ") + EPILOGUE
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, path],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, log.read_text()

    return run


def test_a_call_from_the_host(python, make_cuda):
    out, log = python(
        """
        model = load()
        print(model.device, model.archs, accelerator_count())
        (y,) = model.execute(np.arange(300, dtype=np.float32))
        print(y, y.to_numpy()[299])
        """,
        make_cuda("double"),
    )
    assert out == "cuda:0 ['sm_90a'] 1\nBuffer(float32[300], cuda:0) 598.0\n"
    launches = [line for line in log.splitlines() if line.startswith("launch")]
    assert launches == ["launch k_double grid 3 1 1 block 128 1 1 shared 0 stream 1 dims 300"]


def test_everything_runs_on_one_stream_in_order(python, make_cuda):
    _, log = python("load().execute(x)[0].to_numpy()", make_cuda("double"))
    words = [line.split() for line in log.splitlines()]
    assert {row[2] for row in words if row[0] in ("alloc_async", "to_device", "to_host")} == {"1"}
    names = [row[0] for row in words]
    assert names[names.index("launch") :] == ["launch", "synchronize", "to_host", "synchronize"]


def test_inputs_and_outputs_on_the_device_are_used_in_place(python, make_cuda):
    _, log = python(
        """
        model = load()
        device = Buffer.from_numpy(x).to(Accelerator())
        target = Buffer("float32", (4,), Accelerator())
        model.execute(device)
        open(os.environ["FAKE_CUDA_LOG"], "w").close()
        assert model.execute(device, out=[target]) == (target,)
        fails(InputError, lambda: model.execute(device, out=[np.zeros(4, np.float32)]))
        """,
        make_cuda("double"),
    )
    assert [line.split()[0] for line in log.splitlines()] == ["launch", "synchronize"]


def test_the_cuda_array_interface_and_its_stream(python, make_cuda):
    out, log = python(
        """
        model = load()
        device = Buffer.from_numpy(x).to(Accelerator())

        class Foreign:
            def __init__(self, **changes):
                self.__cuda_array_interface__ = {**device.__cuda_array_interface__, **changes}

        print(sorted(device.__cuda_array_interface__.items())[1:])
        print(model.execute(Foreign(stream=7))[0].to_numpy())
        print(Buffer.from_numpy(Foreign()).to_numpy())
        fails(InputError, lambda: model.execute(Foreign(strides=(8,))))
        fails(InputError, lambda: model.execute(Foreign(typestr="<c8")))
        fails(InputError, lambda: model.execute(Foreign(shape=(1,) * 17)))
        fails(InputError, lambda: Buffer.from_numpy(Foreign(shape=(-1,))))
        """,
        make_cuda("double"),
    )
    assert out.splitlines() == [
        "[('shape', (4,)), ('stream', None), ('strides', None), ('typestr', '<f4'),"
        " ('version', 3)]",
        "[0. 2. 4. 6.]",
        "[0. 1. 2. 3.]",
        "input 'x': wanted a dense row-major array on the device, got strides (8,)",
        "input 'x': wanted an array of a dtype of Heddle, got typestr '<c8'",
        "input 'x': wanted at most 16 dims, got 17",
        "a buffer of float32[-1]: wanted sizes of 0 or more that fit 63 bits in bytes",
    ]
    words = [line.split() for line in log.splitlines()]
    record = next(row for row in words if row[0] == "record")
    wait = next(row for row in words if row[0] == "wait")
    assert record[2] == "7"  # what the foreign stream has been given so far ...
    assert wait == ["wait", "1", record[1]]  # ... is waited for by the stream of Heddle


def test_dlpack_in_and_out(python, make_cuda):
    out, log = python(
        """
        model = load()
        (y,) = model.execute(x)
        print(y.__dlpack_device__())
        class Foreign:  # hands on what it is asked for
            def __dlpack_device__(self): return y.__dlpack_device__()
            def __dlpack__(self, **options):
                print(options)
                return y.__dlpack__(**options)
        print(model.execute(Foreign())[0].to_numpy())
        y.__dlpack__(stream=9)
        y.__dlpack__(stream=-1)
        fails(BufferError, lambda: y.__dlpack__(dl_device=(1, 0)))
        fails(AttributeError, lambda: y.__array_interface__)
        fails(ValueError, lambda: np.asarray(y, copy=False))
        print(np.asarray(y), y.copy().to(CPU()).to_numpy(), y.to(Accelerator()) is y)
        """,
        make_cuda("double"),
    )
    assert out.splitlines() == [
        "(2, 0)",
        "{'stream': 1, 'max_version': (1, 0)}",
        "[ 0.  4.  8. 12.]",
        "Buffer.__dlpack__: the memory is on cuda:0; use Buffer.to() first",
        "Buffer: the memory is on cuda:0, which NumPy cannot see; to_numpy() copies",
        "Buffer.__array__: memory of a GPU cannot be seen without a copy",
        "[0. 2. 4. 6.] [0. 2. 4. 6.] True",
    ]
    records = [line for line in log.splitlines() if line.startswith(("record", "wait 9"))]
    assert len(records) == 2
    assert records[0].endswith(" 1")  # what Heddle's stream has, stream 9 waits for
    assert records[1].startswith("wait 9")


def test_weights_are_copied_to_the_device(python, make_cuda):
    out, _ = python(
        """
        model = load(weights={"w": np.float32([10, 20, 30, 40])})
        print(model.execute(x)[0].to_numpy())
        device = Buffer.from_numpy(x).to(Accelerator())
        fails(InputError, lambda: load(weights={"w": device}))
        """,
        make_cuda("add", weights=(WEIGHT,)),
    )
    assert out.splitlines() == [
        "[10. 21. 32. 43.]",
        "weight 'w': wanted an array in host memory, got one on a CUDA device",
    ]


def test_a_refused_value_names_the_step(python, make_cuda):
    out, _ = python(
        """
        model = load()
        for _ in range(2):
            fails(InputError, lambda: model.execute(np.float32([1, -7, 3])))
            print(model.execute(np.float32([1, 2]))[0].to_numpy())
        """,
        make_cuda("check"),
    )
    refused = "check at m.py:1: wanted an index inside a size of 3, got -7\n[1. 2.]\n"
    assert out == 2 * refused


def test_of_several_steps_that_check_the_one_that_refused_is_named(python, make_chain):
    out, _ = python(
        """
        model = load()
        fails(InputError, lambda: model.execute(np.float32([5])))
        fails(InputError, lambda: model.execute(np.float32([-6])))
        print(model.execute(np.float32([0]))[0].to_numpy())
        """,
        make_chain("double", "check", "negate", "check"),
    )
    assert out.splitlines() == [
        "step 3: wanted an index inside a size of 1, got -10",
        "step 1: wanted an index inside a size of 1, got -12",
        "[-0.]",
    ]


@pytest.mark.parametrize(
    ("capability", "codes", "ptx", "chosen"),
    [
        (90, ("sm_80", "sm_90a"), (), "sm_90a"),
        (90, ("sm_80", "sm_90", "sm_90a"), (), "sm_90a"),
        (80, ("sm_80", "sm_90a"), (), "sm_80"),
        (89, ("sm_80", "sm_86", "sm_90a"), (), "sm_86"),
        (89, ("sm_80",), ("sm_80",), "sm_80"),
        (100, ("sm_80", "sm_90a"), ("sm_80",), "sm_80"),
        (100, (), ("sm_75", "sm_80", "sm_90a"), "sm_80"),
    ],
)
def test_the_code_for_a_capability(python, make_cuda, capability, codes, ptx, chosen):
    out, log = python(
        "print(load().archs)", make_cuda("double", codes, ptx=ptx), CAPABILITY=capability
    )
    assert out == f"['{chosen}']\n"
    loaded = "load ptx" if capability == 100 else "load cubin"
    assert [line for line in log.splitlines() if line.startswith("load")] == [loaded]


@pytest.mark.parametrize(
    ("capability", "codes", "ptx", "found"),
    [
        (75, ("sm_80", "sm_90a"), ("sm_80",), "sm_80, sm_90a, sm_80 (ptx)"),
        (100, ("sm_80", "sm_90a"), ("sm_90a",), "sm_80, sm_90a, sm_90a (ptx)"),
    ],
)
def test_no_code_for_a_capability(python, make_cuda, capability, codes, ptx, found):
    out, _ = python(
        "fails(DeviceError, load)", make_cuda("double", codes, ptx=ptx), CAPABILITY=capability
    )
    assert out == (
        f"cuda:0 (Fake 0, compute capability {capability // 10}.{capability % 10}): kernel double:"
        f" wanted code that this device runs, the artifact has {found}\n"
    )


DEVICE = "cuda:0 (Fake 0, compute capability 9.0)"


def test_dynamic_shared_memory_is_asked_for_above_48_kib(python, make_cuda):
    _, log = python("load().execute(x)", make_cuda("double", shared=50_000))
    assert "attribute 8 50000" in log
    assert "shared 50000" in log
    _, log = python("load().execute(x)", make_cuda("double", shared=49_152))
    assert "attribute" not in log
    out, _ = python("fails(DeviceError, load)", make_cuda("double", shared=300_000))
    assert out == (
        f"{DEVICE}: kernel double: wanted 300000 bytes of shared memory, the device has 232448\n"
    )


def test_a_grid_that_the_device_does_not_allow(python, make_cuda):
    out, log = python(
        """
        model = load()
        model.execute(np.zeros(9, np.float32))
        fails(InputError, lambda: model.execute(np.zeros(11, np.float32)))
        """,
        make_cuda("double", grid=(1, "n", 1)),
        GRID=10,
    )
    assert out == (
        "double at m.py:1: this shape needs a grid of 1 x 11 x 1 blocks,"
        f" {DEVICE} allows 2147483647 x 10 x 10\n"
    )
    assert log.count("launch") == 1


def test_a_driver_without_memory_pools(python, make_cuda):
    out, log = python("print(load().execute(x)[0].to_numpy())", make_cuda("double"), POOLS=0)
    assert out == "[0. 2. 4. 6.]\n"
    assert "alloc_async" not in log


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (
            {"VERSION": 11040},
            "cuda: wanted a driver for CUDA 12.0 or newer, got one for CUDA 11.4",
        ),
        ({"DEVICES": 0}, "cuda: wanted a device, but the driver has none"),
        (
            {"INIT": 100},
            "cuda: cuInit: CUDA_ERROR_NO_DEVICE (as the fake was told)",
        ),
        ({"INIT": 987}, "cuda: cuInit: error 987"),
    ],
)
def test_a_driver_that_cannot_be_used(python, make_cuda, faults, message):
    out, _ = python(
        """
        fails(DeviceError, load)
        print(accelerator_count(), _core.cuda_info()["problem"])
        """,
        make_cuda("double"),
        **faults,
    )
    assert out == f"{message}\n0 {message}\n"


def test_a_driver_that_lacks_a_function(python, make_cuda, fake):
    out, _ = python(
        "fails(DeviceError, load)", make_cuda("double"), folder=fake("-DWITHOUT_LAUNCH")
    )
    assert out == "cuda: the driver for CUDA 13.0 lacks the function cuLaunchKernel\n"


def test_a_device_that_is_not_there(python, make_cuda):
    out, _ = python("fails(DeviceError, lambda: InferenceSession([Accelerator(1)]))")
    assert out == "cuda:1: wanted a device below 1, which is how many the driver has\n"


def test_no_program_for_the_device(python, make):
    out, _ = python("fails(DeviceError, load)", make("double"))
    assert out.endswith("m.heddle: wanted a program for cuda:0, got programs for: cpu\n")


def test_out_of_memory(python, make_cuda):
    out, _ = python(
        """
        model = load()
        fails(DeviceError, lambda: model.execute(np.zeros(5000, np.float32)))
        print(model.execute(x)[0].to_numpy())
        """,
        make_cuda("double"),
        MEMORY=10_000,
    )
    assert out == (
        f"{DEVICE}: allocating 20000 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory)\n"
        "[0. 2. 4. 6.]\n"
    )


@pytest.mark.parametrize(
    ("ptx", "result", "message"),
    [
        (
            (),
            200,
            "loading its sm_90a code: CUDA_ERROR_INVALID_IMAGE (as the fake was told):"
            " fake assembler: line 1",
        ),
        (
            ("sm_90a",),
            222,
            "the driver for CUDA 13.0 is too old for the artifact's PTX:"
            " CUDA_ERROR_UNSUPPORTED_PTX_VERSION (as the fake was told)",
        ),
    ],
)
def test_code_that_the_driver_refuses(python, make_cuda, ptx, result, message):
    artifact = make_cuda("double", () if ptx else ("sm_90a",), ptx=ptx)
    out, _ = python("fails(DeviceError, load)", artifact, LOAD=result)
    assert out == f"{DEVICE}: kernel double: {message}\n"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            {"LAUNCH": 719},
            "launching kernel double for double at m.py:1: CUDA_ERROR_LAUNCH_FAILED",
        ),
        (
            {"SYNC_AFTER_LAUNCH": 700},
            "one of the kernels double failed: CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
    ],
)
def test_a_kernel_that_fails(python, make_cuda, fault, message):
    out, log = python(
        """
        model = load()
        fails(DeviceError, lambda: model.execute(x))
        """,
        make_cuda("double"),
        **fault,
    )
    assert log.endswith("synchronize 1\n")  # nothing runs on when its buffers go
    assert out == (
        f"{DEVICE}: {message} (as the fake was told); the session is lost, end this process\n"
    )


def test_cuda_info(python):
    out, _ = python("print(_core.cuda_info())", DEVICES=2, CAPABILITY=89)
    row = (
        "{{'index': {0}, 'name': 'Fake {0}', 'capability': '8.9', 'memory_bytes': 1073741824,"
        " 'multiprocessors': 132}}"
    )
    rows = ", ".join(row.format(index) for index in range(2))
    assert out == f"{{'problem': '', 'driver': '13.0', 'devices': [{rows}]}}\n"


def test_many_threads(python, make_cuda):
    python(
        """
        import threading
        model = load()
        wrong = []
        def work(seed):
            values = np.random.default_rng(seed).random(64 + seed, np.float32)
            for _ in range(50):
                if not np.array_equal(model.execute(values)[0].to_numpy(), 2 * values):
                    wrong.append(seed)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert wrong == []
        """,
        make_cuda("double"),
    )
