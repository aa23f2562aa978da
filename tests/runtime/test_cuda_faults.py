"""The CUDA device where something is missing or fails, against a fake driver."""

import pytest

DEVICE = "cuda:0 (Fake 0, compute capability 9.0)"


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
        (90, (f"sm_{10**30}", "sm_80", "sm_90a"), (), "sm_90a"),
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
    assert out == "cuda: the driver for CUDA 13.0 lacks the function cuLaunchKernelEx\n"


def test_a_device_that_is_not_there(python):
    out, _ = python("fails(DeviceError, lambda: InferenceSession([Accelerator(1)]))")
    assert out == "cuda:1: wanted a device below 1, which is how many the driver has\n"


def test_no_program_for_the_device(python, make):
    out, _ = python("fails(DeviceError, load)", make("double"))
    assert out.endswith("m.heddle: wanted a program for cuda:0, got programs for: cpu\n")


def test_out_of_memory(python, make_cuda):
    out, log = python(
        """
        model = load()
        fails(DeviceError, lambda: model.execute(np.zeros(5000, np.float32)))
        print(model.execute(x)[0].to_numpy())
        """,
        make_cuda("double"),
        MEMORY=10_000,
    )
    assert out == (
        f"{DEVICE}: wanted 20000 bytes, 10000 of 10000 are free, 0 are in use by Heddle:"
        " CUDA_ERROR_OUT_OF_MEMORY (out of memory)\n"
        "[0. 2. 4. 6.]\n"
    )
    assert "trim 0\n" in log  # what the pool has kept was given back before


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
    out, _ = python("fails(DeviceError, load)", artifact, LOAD=result, PTX=result)
    assert out == f"{DEVICE}: kernel double: {message}\n"


@pytest.mark.parametrize("result", [200, 209])
def test_a_cubin_that_is_too_new_for_the_driver(python, make_cuda, result):
    """Then the driver translates the PTX that lies beside it."""
    artifact = make_cuda("double", ("sm_80", "sm_90a"), ptx=("sm_80", "sm_90a"))
    out, log = python("print(load().archs, load().execute(x)[0].to_numpy())", artifact, LOAD=result)
    assert out == "['sm_90a'] [0. 2. 4. 6.]\n"
    assert [line for line in log.splitlines() if line.startswith("load")][:2] == [
        "load cubin",
        "load ptx",
    ]
    out, _ = python("fails(DeviceError, load)", artifact, LOAD=result, PTX=222)
    assert "the driver for CUDA 13.0 is too old for the artifact's PTX" in out
    out, log = python("fails(DeviceError, load)", artifact, LOAD=2)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in out
    assert "load ptx" not in log


def test_a_launch_that_the_driver_refuses(python, make_chain):
    """What was started is waited for, as its buffers go; the device is as it was."""
    out, log = python(
        """
        model = load()
        setenv = ctypes.CDLL(None).setenv
        setenv(b"FAKE_CUDA_LAUNCH", b"701", 1)
        fails(DeviceError, lambda: model.execute(x))
        open(os.environ["FAKE_CUDA_LOG"], "a").write("end\\n")
        setenv(b"FAKE_CUDA_LAUNCH", b"0", 1)
        print(model.execute(x)[0].to_numpy())
        """,
        make_chain("double", "check"),
    )
    assert out.splitlines() == [
        f"{DEVICE}: launching kernel double for step 0: error 701",
        "[0. 2. 4. 6.]",
    ]
    assert "fill 64 16\nsynchronize 16\n" in log[: log.index("end")]


def test_a_kernel_that_fails(python, make_chain):
    """Names what was running; everything on the device says so from then on."""
    out, _ = python(
        """
        model = load()
        (y,) = model.execute(x)
        for call in (
            y.to_numpy,
            y.synchronize,
            lambda: model.execute(x),
            lambda: Buffer("float32", (4,), Accelerator()),
            lambda: Stream(Accelerator()),
            load,
        ):
            fails(DeviceError, call)
        """,
        make_chain("double", "negate", "double"),
        FAULT=700,
    )
    lost = (
        f"{DEVICE}: one of the kernels double, negate failed: CUDA_ERROR_ILLEGAL_ADDRESS"
        " (as the fake was told); the session is lost, end this process\n"
    )
    assert out == 6 * lost


def test_dynamic_shared_memory_is_asked_for(python, make_cuda):
    """Whatever its size: 48 KiB go without asking, but with the static part."""
    for size in (50_000, 49_152):
        _, log = python("load().execute(x)", make_cuda("double", shared=size))
        assert f"attribute 8 {size}" in log
        assert f"shared {size}" in log
    _, log = python("load().execute(x)", make_cuda("double"))
    assert "attribute" not in log
    out, _ = python("fails(DeviceError, load)", make_cuda("double", shared=300_000))
    assert out == (
        f"{DEVICE}: kernel double: wanted 300000 bytes of shared memory, the device has 232448\n"
    )


RECORD = "Stream(Accelerator()).record()"


@pytest.mark.parametrize(
    ("function", "call", "message"),
    [
        (
            "cuDriverGetVersion",
            "load()",
            "cuda: libcuda.so.1 does not tell its version: not an NVIDIA driver",
        ),
        ("cuDeviceGetCount", "load()", "cuda: cuDeviceGetCount"),
        ("cuDeviceGetName", "load()", "cuda: cuDeviceGetName"),
        ("cuDeviceTotalMem_v2", "load()", "cuda: cuDeviceTotalMem"),
        ("cuDeviceGetAttribute", "load()", "cuda: cuDeviceGetAttribute"),
        ("cuDevicePrimaryCtxRetain", "load()", f"{DEVICE}: cuDevicePrimaryCtxRetain"),
        ("cuCtxPushCurrent_v2", "load()", f"{DEVICE}: cuCtxPushCurrent"),
        ("cuStreamCreate", "load()", f"{DEVICE}: cuStreamCreate"),
        (
            "cuMemcpyHtoDAsync_v2",
            "Buffer.from_numpy(x).to(Accelerator())",
            f"{DEVICE}: copying 16 bytes from the host",
        ),
        (
            "cuMemcpyDtoHAsync_v2",
            "Buffer.from_numpy(x).to(Accelerator()).to_numpy()",
            f"{DEVICE}: copying 16 bytes to the host",
        ),
        ("cuEventCreate", RECORD, f"{DEVICE}: making an event"),
        ("cuEventRecord", RECORD, f"{DEVICE}: recording an event"),
        ("cuModuleGetFunction", "load()", f"{DEVICE}: kernel check: looking up k_check"),
        (
            "cuFuncSetAttribute",
            "load()",
            f"{DEVICE}: kernel check: asking for 50000 bytes of shared memory",
        ),
        ("cuMemsetD8Async", "load().execute(x)", f"{DEVICE}: clearing memory"),
        (
            "cuMemHostAlloc",
            "load().execute(x)",
            f"{DEVICE}: making 4096 bytes of page-locked memory",
        ),
        ("cuMemPoolCreate", "load()", f"{DEVICE}: making a memory pool"),
        ("cuMemPoolSetAttribute", "load()", f"{DEVICE}: making a memory pool"),
        (
            "cuMemPoolGetAttribute",
            "memory_statistics(Accelerator())",
            f"{DEVICE}: asking for the pool's size",
        ),
        ("cuEventQuery", "(model := load()).execute(x)[0].ready", f"{DEVICE}: asking for an event"),
        (
            "cuEventSynchronize",
            "(model := load()).execute(x)[0].synchronize()",
            f"{DEVICE}: waiting for the device",
        ),
        (
            "cuStreamWaitEvent",
            "(model := load()).execute(x)[0].__dlpack__()",
            f"{DEVICE}: ordering two streams",
        ),
    ],
)
def test_functions_that_fail(python, make_cuda, function, call, message):
    artifact = make_cuda("check", shared=50_000)
    out, _ = python(f"fails(DeviceError, lambda: {call})", artifact, FAIL=function)
    reason = "" if function == "cuDriverGetVersion" else ": CUDA_ERROR_INVALID_VALUE"
    assert out.startswith(message + reason)


def test_a_call_whose_end_cannot_be_recorded_leaves_nothing_behind(python, make_cuda):
    out, _ = python(
        """
        model, setenv = load(), ctypes.CDLL(None).setenv
        model.execute(x)[0].synchronize()
        before = fake.fake_live()
        setenv(b"FAKE_CUDA_FAIL", b"cuEventRecord", 1)
        for _ in range(3):
            fails(DeviceError, lambda: model.execute(x))
        setenv(b"FAKE_CUDA_FAIL", b"", 1)
        print(fake.fake_live() - before, model.execute(x)[0].to_numpy())
        """,
        make_cuda("check"),
    )
    *failed, left = out.splitlines()
    told = f"{DEVICE}: recording an event: CUDA_ERROR_INVALID_VALUE"
    assert len(failed) == 3
    assert all(line.startswith(told) for line in failed)
    assert left == "0 [0. 1. 2. 3.]"
