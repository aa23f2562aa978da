"""What the runtime's tests share.

Models made by hand, without the heddle compiler: CPU kernels in C, CUDA kernels of the fake driver.
Tests beside the fake driver run in a process of their own, in which the dynamic linker finds it.
"""

import gc
import io
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from heddle.runtime import InferenceSession, _core
from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Dispatch,
    Kernel,
    Launch,
    Program,
    Routine,
    Symbol,
    Tensor,
    Weight,
)
from heddle.runtime.artifact_writer import write

KERNELS = {
    # y = x * w, elementwise
    "multiply": """
        const float* x = buffers[0]; const float* w = buffers[1]; float* y = buffers[2];
        for (long i = first; i < last; i++) y[i] = x[i] * w[i];""",
    # y = x + x; the tasks are the elements
    "double": """
        const float* x = buffers[0]; float* y = buffers[1];
        for (long i = first; i < last; i++) y[i] = x[i] + x[i];""",
    # bytes as they are
    "same": """
        const char* x = buffers[0]; char* y = buffers[1];
        for (long i = first; i < last; i++) y[i] = x[i];""",
    # negative numbers are out of range
    "check": """
        const float* x = buffers[0]; float* y = buffers[1]; long* status = buffers[2];
        for (long i = first; i < last; i++) {
            y[i] = x[i];
            if (x[i] < 0) { status[1] = (long)x[i]; status[2] = dims[0]; status[0] = 1; }
        }""",
    # how many tasks the call has that an element is in
    "share": """
        float* y = buffers[1];
        for (long i = first; i < last; i++) y[i] = last - first;""",
    # burns time: 2000 rounds for each element
    "slow": """
        const float* x = buffers[0]; volatile float* y = buffers[1];
        for (long i = first; i < last; i++) {
            y[i] = x[i];
            for (long k = 0; k < 2000; k++) y[i] = y[i] * 1.0f;
        }""",
}


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Position-independent x86-64 code of each kernel, by name."""
    folder = tmp_path_factory.mktemp("kernels")
    found = {}
    for name, body in KERNELS.items():
        source = folder / f"{name}.c"
        source.write_text(
            "void kernel(const long* dims, void* const* buffers, long first, long last) {"
            f"(void)dims;{body}}}"
        )
        flags = ["-O1", "-fPIC", "-ffreestanding", "-fno-tree-loop-distribute-patterns"]
        flags += ["-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-c"]
        subprocess.run(["cc", *flags, "-o", source.with_suffix(".o"), source], check=True)
        elf = ELFFile(io.BytesIO(source.with_suffix(".o").read_bytes()))
        assert elf.get_section_by_name(".rela.text") is None
        found[name] = elf.get_section_by_name(".text").data()
    return found


def program(kernel, code, *, target="cpu", weights=(), dtype="float32", shape=("n",), **launch):
    """One dispatch over `n` elements (or one, for a shape without): x and the weights in, y out."""
    count = "n" if shape else 1
    size = ("mul", count, _core.dtype_size(dtype))
    checks = kernel == "check"
    buffers = [Buffer("input", size)]
    buffers += [Buffer("weight", 4 * row.shape[0], number) for number, row in enumerate(weights)]
    buffers += [Buffer("output", size)] + [Buffer("status", 32)] * checks
    tasks = size if kernel == "same" else count
    grid = launch.pop("grid", (tasks, 1, 1))
    maps = launch.pop("maps", ())
    numbers = tuple(range(len(buffers)))
    step = Dispatch(0, numbers, (count,), (grid,), tasks, f"{kernel} at m.py:1", maps)
    return Program(
        target=target,
        kernels=(Kernel(kernel, code, checks, (Launch(**launch, tensor_maps=len(maps)),)),),
        buffers=tuple(buffers),
        init=Routine(()),
        main=Routine((step,)),
    )


def artifact(*programs, weights=(), dtype="float32", shape=("n",), maximum=1 << 20):
    """The artifact of `programs`, all of which take and give one tensor."""
    row = ArtifactRecord(
        name="hand",
        symbols=tuple(Symbol(name, 0, maximum) for name in shape),
        inputs=(Tensor("x", dtype, shape),),
        outputs=(Tensor("y", dtype, shape),),
        weights=weights,
        constants=(),
        programs=programs,
        provenance=(("maker", "by hand"),),
    )
    return write(row)


@pytest.fixture(scope="session")
def make(images):
    """Makes the artifact of one elementwise CPU kernel."""

    def made(kernel, *, weights=(), dtype="float32", shape=("n",), arch="x86-64-v3", **options):
        code = (Code(arch, "image", images[kernel]),)
        only = program(kernel, code, weights=weights, dtype=dtype, shape=shape)
        return artifact(only, weights=weights, dtype=dtype, shape=shape, **options)

    return made


FAKE = {"double": 2, "negate": 2, "add": 3, "check": 3}
"""Kernels of the fake driver (fake_cuda.c), with the number of their buffers."""


@pytest.fixture(scope="session")
def make_cuda():
    """Makes the artifact of one elementwise kernel for the fake driver."""

    def made(kernel, codes=("sm_80", "sm_90a"), *, ptx=(), weights=(), **options):
        maps = len(options.get("maps", ()))
        lines = f"kernel k_{kernel} {kernel} {FAKE[kernel]} 1 {maps}\nend\n"
        rows = [Code(arch, "cubin", f"FAKE {arch}\n{lines}".encode()) for arch in codes]
        rows += [Code(arch, "ptx", f".version 8.0\n{lines}\0".encode()) for arch in ptx]
        rows = tuple(replace(row, symbol=f"k_{kernel}") for row in rows)
        launch = {"grid": (("ceildiv", "n", 128), 1, 1), "block": (128, 1, 1), **options}
        return artifact(
            program(kernel, rows, target="cuda", weights=weights, **launch), weights=weights
        )

    return made


@pytest.fixture(scope="session")
def make_chain():
    """Makes the artifact of kernels for the fake driver, each of which reads the one before."""

    def made(*names):
        kernels, steps = [], []
        last = len(names) - 1
        buffers = [Buffer("input", ("mul", "n", 4)), Buffer("status", 32)]
        for number, name in enumerate(names):
            text = f"FAKE\nkernel k {name} {FAKE[name]} 1\nend\n"
            code = (Code("sm_90a", "cubin", text.encode(), symbol="k"),)
            kernels.append(Kernel(name, code, name == "check", (Launch((32, 1, 1)),)))
            kind = "output" if number == last else "arena"
            offset = 0 if number == last else 4096 * number
            buffers.append(Buffer(kind, ("mul", "n", 4), offset=offset))
            source = number + 1 if number else 0
            status = (1,) if name == "check" else ()
            numbers = (source, number + 2, *status)
            steps.append(Dispatch(number, numbers, ("n",), ((1, 1, 1),), "n", f"step {number}"))
        main = Routine(tuple(steps), arena=4096 * last)
        return artifact(
            Program("cuda", tuple(kernels), tuple(buffers), Routine(()), main), maximum=1024
        )

    return made


PRELUDE = '''
import ctypes, gc, os, sys
import numpy as np
from heddle.runtime import *
from heddle.runtime import _core
fake = ctypes.CDLL("libcuda.so.1")
for _name in ("live", "bytes", "faults"): getattr(fake, f"fake_{_name}").restype = ctypes.c_long
x = np.arange(4, dtype=np.float32)

def fails(kind, call):
    try:
        call()
    except kind as error:
        print(error)
    else:
        raise AssertionError("no error")

def tensor(values):
    return Buffer.from_numpy(np.float32(values)).to(Accelerator())

def logged():
    """The launches since this was asked last, by their first words."""
    with open(os.environ["FAKE_CUDA_LOG"], "r+") as file:
        words = [line.split()[0] for line in file]
        file.truncate(0)
    return " ".join(word for word in words if word in ("launch", "graph", "graph_launch"))

def load(**options):
    return InferenceSession([Accelerator()], threads=1).load(sys.argv[1], **options)

def main():
'''

EPILOGUE = """
main()
gc.collect()
fake.fake_catch_up()
left = [getattr(fake, f"fake_{name}")() for name in ("live", "bytes", "contexts", "faults")]
assert left == [0, 0, 0, 0], left
assert not any(_core.live_objects().values()), _core.live_objects()
"""


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    """Builds the fake driver; the folder that holds it."""

    def build(*flags):
        folder = tmp_path_factory.mktemp("driver")
        target = folder / "libcuda.so.1"
        sources = sorted(Path(__file__).parent.glob("fake_cuda*.c"))
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags]
        subprocess.run([*command, "-o", target, *sources], check=True)
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
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, log.read_text()

    return run


WEIGHT = Weight("w", "float32", (4,))


@pytest.fixture
def weighted(make):
    """y = x * w for float32[n], n up to 4, and a weight of four elements."""
    return make("multiply", weights=(WEIGHT,), maximum=4)


@pytest.fixture
def session():
    return InferenceSession(threads=1)


@pytest.fixture
def doubler(make, session):
    """y = x + x for float32[n]."""
    return session.load(make("double"))


@pytest.fixture
def four():
    return np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module", autouse=True)
def older_objects():
    """What is there before a module of tests is not looked at again after each of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def leaks(request):
    """What a test made must be gone when it ends."""
    gc.collect()
    before = _core.live_objects()
    yield
    request.node.funcargs.clear()  # pytest holds the fixtures' values for a little longer
    gc.collect()
    left = {name: now - before[name] for name, now in _core.live_objects().items()}
    assert max(left.values()) <= 0, left
