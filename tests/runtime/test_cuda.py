"""The CUDA device against a fake driver: what is called, in which order, with which arguments.

The device's own stream is number 16 of the fake, the next two are for copies and for freeing.
"""

from heddle.runtime.artifact import Weight

WEIGHT = Weight("w", "float32", (4,))


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
    assert launches == ["launch k_double grid 3 1 1 block 128 1 1 shared 0 stream 16 dims 300"]


def test_profiling_is_for_a_cpu(python, make_cuda):
    out, _ = python(
        """
        try:
            load().profile(x)
        except Exception as error:
            print(error)
        """,
        make_cuda("double"),
    )
    assert out == "profile: wanted a model on a CPU, got one on cuda:0\n"


def calls(log):
    """The functions that were called, in order, without their arguments."""
    return [line.split()[0] for line in log.splitlines()]


def test_what_a_call_from_the_host_does(python, make_cuda):
    """It waits for the copy of its input, on the stream for copies, and not for its kernel."""
    _, log = python(
        """
        model = load()
        model.execute(x)[0].to_numpy()
        open(os.environ["FAKE_CUDA_LOG"], "w").close()
        y = model.execute(x)[0]
        open(os.environ["FAKE_CUDA_LOG"], "a").write("now\\n")
        y.to_numpy()
        """,
        make_cuda("double"),
    )
    call, look = log.split("now\n")
    assert call.splitlines()[:5] == [
        "alloc_async 16 17",
        "synchronize 17",
        "to_device 16 17",
        "synchronize 17",
        "alloc_async 16 16",
    ]
    assert calls(call)[5:] == ["launch", "record", "free_async"]
    assert calls(look)[:3] == ["synchronize_event", "to_host", "synchronize"]


def test_what_a_call_on_the_device_costs(python, make_chain):
    """Calls of the driver: what follows the first two is a graph, and what steps that check add."""
    out, _ = python(
        """
        model = load()
        def logged():
            lines = open(os.environ["FAKE_CUDA_LOG"]).read().splitlines()
            open(os.environ["FAKE_CUDA_LOG"], "w").close()
            return " ".join(line.split()[0] for line in lines)
        device = Buffer.from_numpy(x).to(Accelerator())
        target = Buffer("float32", (4,), Accelerator())
        for _ in range(3):
            target.synchronize()
            logged()
            model.execute(device, out=[target])
        print(logged())
        """,
        make_chain("double", "check"),
    )
    assert out == "graph_launch to_host fill record\n"


def test_inputs_and_outputs_on_the_device_are_used_in_place(python, make_cuda):
    _, log = python(
        """
        model = load()
        device = Buffer.from_numpy(x).to(Accelerator())
        target = Buffer("float32", (4,), Accelerator())
        model.execute(device, out=[target])
        target.synchronize()
        open(os.environ["FAKE_CUDA_LOG"], "w").close()
        assert model.execute(device, out=[target]) == (target,)
        fails(InputError, lambda: model.execute(device, out=[np.zeros(4, np.float32)]))
        """,
        make_cuda("double"),
    )
    assert calls(log)[:2] == ["launch", "record"]
    assert "to_device" not in log


def test_arrays_whose_buffer_protocol_refuses(python, make_cuda):
    """As that of CuPy does: the memory is on the device, as its interface says."""
    out, _ = python(
        """
        class Refusing(np.ndarray):  # NumPy has no format for dates.
            @property
            def __cuda_array_interface__(self):
                return device.__cuda_array_interface__

        device = Buffer.from_numpy(x).to(Accelerator())
        dates = np.zeros(4, "M8[s]").view(Refusing)
        try:
            memoryview(dates)
        except ValueError:
            print(load().execute(dates)[0].to_numpy())
        """,
        make_cuda("double"),
    )
    assert out.splitlines() == ["[0. 2. 4. 6.]"]


def test_the_cuda_array_interface_and_its_stream(python, make_cuda):
    out, log = python(
        """
        model = load()
        device = Buffer.from_numpy(x).to(Accelerator())
        other = Stream(Accelerator())

        class Foreign:
            def __init__(self, **changes):
                self.__cuda_array_interface__ = {**device.__cuda_array_interface__, **changes}

        print(sorted(device.__cuda_array_interface__.items())[1:])
        print(model.execute(Foreign(stream=other.handle))[0].to_numpy())
        print(Buffer.from_numpy(Foreign()).to_numpy())
        fails(InputError, lambda: model.execute(Foreign(strides=(8,))))
        fails(InputError, lambda: model.execute(Foreign(typestr="<c8")))
        fails(InputError, lambda: model.execute(Foreign(shape=(1,) * 17)))
        fails(InputError, lambda: Buffer.from_numpy(Foreign(shape=(-1,))))
        fails(InputError, lambda: model.execute(Foreign(stream=99)))
        odd = (device.__cuda_array_interface__["data"][0] + 1, False)
        fails(InputError, lambda: model.execute(Foreign(shape=(3,), data=odd)))
        fails(InputError, lambda: model.execute(Foreign(data=(x.ctypes.data, False))))
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
        "input 'x': stream: wanted one of cuda:0, got one that the driver refuses:"
        " CUDA_ERROR_INVALID_HANDLE (as the fake was told)",
        "input 'x': wanted memory at a multiple of 4 bytes, got 1 beyond one",
        "input 'x': wanted memory of cuda:0, got an address that is no GPU's",
    ]
    words = [line.split() for line in log.splitlines()]
    record = next(row for row in words if row[0] == "record" and row[2] == "19")
    waits = [row for row in words if row[0] == "wait"]
    # What the foreign stream was given before comes first, what it gets later comes after.
    assert waits[0] == ["wait", "16", record[1]]
    assert waits[1][1] == "19"


def test_dlpack_in_and_out(python, make_cuda):
    out, log = python(
        """
        model = load()
        stream = Stream(Accelerator())
        (y,) = model.execute(x)
        print(y.__dlpack_device__())
        class Foreign:  # hands on what it is asked for
            def __dlpack_device__(self): return y.__dlpack_device__()
            def __dlpack__(self, **options):
                print(options)
                return y.__dlpack__(**options)
        print(model.execute(Foreign())[0].to_numpy())
        print(model.execute(Foreign(), stream=stream)[0].to_numpy())
        (z,) = model.execute(x)
        open(os.environ["FAKE_CUDA_LOG"], "w").close()
        z.__dlpack__(stream=stream.handle)
        z.__dlpack__(stream=1)
        z.__dlpack__()
        z.__dlpack__(stream=-1)
        open(os.environ["FAKE_CUDA_LOG"], "a").write("end\\n")
        fails(BufferError, lambda: y.__dlpack__(dl_device=(1, 0)))
        fails(AttributeError, lambda: y.__array_interface__)
        fails(ValueError, lambda: np.asarray(y, copy=False))
        print(np.asarray(y), y.copy().to(CPU()).to_numpy(), y.to(Accelerator()) is y)
        """,
        make_cuda("double"),
    )
    assert out.splitlines() == [
        "(2, 0)",
        "{'stream': 16, 'max_version': (1, 0)}",
        "[ 0.  4.  8. 12.]",
        "{'stream': 19, 'max_version': (1, 0)}",
        "[ 0.  4.  8. 12.]",
        "Buffer.__dlpack__: the memory is on cuda:0; use Buffer.to() first",
        "Buffer: the memory is on cuda:0, which NumPy cannot see; to_numpy() copies",
        "Buffer.__array__: memory of a GPU cannot be seen without a copy",
        "[0. 2. 4. 6.] [0. 2. 4. 6.] True",
    ]
    waits = [line.split()[:2] for line in log[: log.index("end")].splitlines()]
    assert waits == [["wait", "19"], ["wait", "1"], ["wait", "1"]]


def test_weights_are_copied_to_the_device(python, make_cuda):
    out, _ = python(
        """
        import weakref
        given = np.float32([10, 20, 30, 40])
        model, kept = load(weights={"w": given}), weakref.ref(given)
        del given
        print(model.execute(x)[0].to_numpy(), kept())
        device = Buffer.from_numpy(x).to(Accelerator())
        fails(InputError, lambda: load(weights={"w": device}))
        """,
        make_cuda("add", weights=(WEIGHT,)),
    )
    assert out.splitlines() == [
        "[10. 21. 32. 43.] None",
        "weight 'w': wanted an array in host memory, got one on a CUDA device",
    ]


def test_a_driver_without_memory_pools(python, make_cuda):
    out, log = python("print(load().execute(x)[0].to_numpy())", make_cuda("double"), POOLS=0)
    assert out == "[0. 2. 4. 6.]\n"
    assert "alloc_async" not in log


def test_cuda_info(python):
    out, _ = python("print(_core.cuda_info())", DEVICES=2, CAPABILITY=89)
    row = (
        "{{'index': {0}, 'name': 'Fake {0}', 'capability': '8.9', 'memory_bytes': 1073741824,"
        " 'multiprocessors': 132, 'l2_bytes': 1048576}}"
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
